"""Summary: everything the report shows, as typed records. Nothing in this room trains or chooses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..runs.choice import Choice
from ..runs.data_facts import Data
from ..runs.options import RunOptions
from ..runs.results import FinishedFit
from ..settings import Setting
from ..tasks import label_of


@dataclass(frozen=True)
class ProbeResult:
    """Accuracy of a fresh probe that reads the subject from z of a fold's training windows."""

    test_subject: str  # of the fold
    accuracy: float
    chance: float
    bits: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run, finished or not. Names of data sets, classes, channels and subjects are the user's: escape them."""

    name: str  # of the data set
    source: str  # what the user gave: a path or a name
    command: str  # the command line that reproduces the run
    jobs_done: int
    jobs_total: int  # known so far; stage two is added when stage one has ended
    started: str  # ISO time
    seconds: float  # computing time
    device: str
    versions: dict[str, str]  # autotransfer, python, torch, numpy ...
    options: RunOptions
    data: Data
    folds: int = 0
    fits: tuple[FinishedFit, ...] = ()
    choice: Choice | None = None  # None: the run is not finished
    # By role, as `networks`: what probes read.
    leakage: dict[str, list[ProbeResult]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.choice is not None

    @property
    def chance(self) -> float:
        """Return what guessing would score by the metric that decides."""
        known = None if self.choice is None else self.choice.chance
        return self.data.chance if known is None else known

    @property
    def metric(self) -> str:
        """Return the label of the metric that decides, inside a sentence."""
        return label_of(self.options.metric if self.choice is None else self.choice.metric)

    @property
    def title_prefix(self) -> str:
        """Return the prefix of the title of an unfinished run."""
        if self.choice is None:
            return "INCOMPLETE: "
        n = len(self.choice.stages)
        return f"SO FAR, {n} stage{'s' * (n != 1)}: " if n and self.choice.end_reason is None else ""

    def require(self, at_least: float | None) -> Summary:
        """Return the summary with another score required of every person; None: that of the run."""
        if self.choice is None or at_least is None:
            return self
        return replace(self, choice=replace(self.choice, at_least=at_least))

    @property
    def network_labels(self) -> dict[str, str]:
        """Return the labels of `networks`."""
        plain = "EEGNet (paper)" if self.choice is None else self.choice.paper_network_label
        return {"paper_network": plain, "uncensored": "Best single, without its censor", "chosen": "Best single"}

    @property
    def networks(self) -> dict[str, Setting]:
        """Return the networks to compare, by role: the paper's, the chosen one, and the chosen one without its penalty.

        The last is left out unless it was trained on the same folds; the paper's may preprocess windows differently. A
        linear model is no network.
        """
        choice, settings = self.choice, dict[str, Setting]()
        if choice is None:
            return {"paper_network": self.options.reference}
        paper, chosen = None if choice.paper_network is None else choice.paper_network.setting, choice.chosen.setting
        settings |= {} if paper is None else {"paper_network": paper}
        settings |= {} if choice.paper_network_won else {"chosen": chosen}
        if chosen.penalty is not None:
            folds: dict[Setting, set[int]] = {}
            for training in self.fits:
                folds.setdefault(training.setting, set()).add(training.fold)
            twins = (chosen.uncensored(batches) for batches in (chosen.training.batches, "shuffled"))
            twin = next((twin for twin in twins if folds.get(chosen, set()) <= folds.get(twin, set())), paper)
            settings |= {"uncensored": twin} if twin is not None and twin != paper else {}
        return {role: setting for role, setting in settings.items() if not setting.network.closed_form}
