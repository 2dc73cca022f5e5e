"""Summary of a run: the content of the report as typed records."""

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
    """Leakage of a fit: accuracy of predicting the subject from latent features of training windows."""

    test_subject: str  # test subject of the fold
    accuracy: float
    chance: float
    bits: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Facts and results of a run, finished or not. Names come from the user and must be escaped."""

    name: str  # name of the recordings
    source: str  # path or name of the recordings, as given
    command: str  # the command line that reproduces the run
    jobs_done: int
    jobs_total: int  # number of jobs so far; later stages add further jobs
    started: str  # ISO time
    seconds: float  # computing time
    device: str
    versions: dict[str, str]  # autotransfer, python, torch, numpy ...
    options: RunOptions
    data: Data
    folds: int = 0
    fits: tuple[FinishedFit, ...] = ()
    choice: Choice | None = None  # None: the run is not finished
    leakage: dict[str, list[ProbeResult]] = field(default_factory=dict)  # by key of `networks`

    @property
    def complete(self) -> bool:
        return self.choice is not None

    @property
    def chance(self) -> float:
        """Return the score of guessing by the metric of the run."""
        chance = None if self.choice is None else self.choice.chance
        return self.data.chance if chance is None else chance

    @property
    def metric(self) -> str:
        """Return the label of the metric of the run."""
        return label_of(self.options.metric if self.choice is None else self.choice.metric)

    @property
    def title_prefix(self) -> str:
        """Return the prefix of the page title, which is empty for a finished run."""
        if self.choice is None:
            return "INCOMPLETE: "
        n = len(self.choice.stages)
        return f"SO FAR, {n} stage{'s' * (n != 1)}: " if n and self.choice.end_reason is None else ""

    def require(self, at_least: float | None) -> Summary:
        """Return the summary with another required score; with None, the required score of the run is kept."""
        if self.choice is None or at_least is None:
            return self
        return replace(self, choice=replace(self.choice, at_least=at_least))

    @property
    def network_labels(self) -> dict[str, str]:
        """Return the label of each role in `networks`."""
        return {
            "paper_network": "EEGNet (paper)" if self.choice is None else self.choice.paper_network_label,
            "uncensored": "Best single network, uncensored",
            "chosen": "Best single network",
        }

    @property
    def networks(self) -> dict[str, Setting]:
        """Return networks by role: the paper's network, the best network, and the best network without its penalty.

        The last network is left out unless it was trained on the same folds. Linear models are left out.
        """
        choice, settings = self.choice, dict[str, Setting]()
        if choice is None:
            return {"paper_network": self.options.reference}
        paper, chosen = None if choice.paper_network is None else choice.paper_network.setting, choice.chosen.setting
        settings |= {} if paper is None else {"paper_network": paper}
        settings |= {} if choice.is_paper_network_chosen else {"chosen": chosen}
        if chosen.penalty is not None:
            folds: dict[Setting, set[int]] = {}
            for fit in self.fits:
                folds.setdefault(fit.setting, set()).add(fit.fold)
            uncensored = (chosen.uncensored(batches) for batches in (chosen.training.batches, "shuffled"))
            setting = next((s for s in uncensored if folds.get(chosen, set()) <= folds.get(s, set())), paper)
            settings |= {"uncensored": setting} if setting is not None and setting != paper else {}
        return {role: setting for role, setting in settings.items() if not setting.network.is_closed_form}
