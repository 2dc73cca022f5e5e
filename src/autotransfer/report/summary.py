"""Summary: everything the report shows, as typed records. Nothing in this room trains or chooses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from ..runs.choice import Choice, Ensemble
from ..runs.data_facts import Data
from ..runs.options import RunOptions
from ..runs.results import Trained
from ..settings import Setting
from ..tasks import label_of


@dataclass(frozen=True)
class Leak:
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
    trainings: tuple[Trained, ...] = ()
    choice: Choice | None = None  # None: the run is not finished
    # By role ("paper_network", "chosen" and "uncensored", the chosen setting without its penalty): what probes read.
    leakage: dict[str, list[Leak]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.choice is not None

    @property
    def chance(self) -> float:
        """What guessing would score by the metric that decides."""
        known = None if self.choice is None else self.choice.chance
        return self.data.chance if known is None else known

    @property
    def metric(self) -> str:
        """The label of that metric, inside a sentence."""
        return label_of(self.options.metric if self.choice is None else self.choice.metric)

    @property
    def mark(self) -> str:
        """Prefix of the title of an unfinished run."""
        if self.choice is None:
            return "INCOMPLETE: "
        n = len(self.choice.stages)
        return f"SO FAR, {n} stage{'s' * (n != 1)}: " if n and self.choice.ended is None else ""

    def asking(self, at_least: float | None) -> Summary:
        """The same summary with the score required of every person; None: as the run has it."""
        if self.choice is None or at_least is None:
            return self
        return replace(self, choice=replace(self.choice, at_least=at_least))

    @property
    def role_names(self) -> dict[str, str]:
        """Labels of the settings that figures compare."""
        plain = "EEGNet (paper)" if self.choice is None else self.choice.plain_label
        return {"paper_network": plain, "uncensored": "Best single, without its censor", "chosen": "Best single"}

    @cached_property
    def plain(self) -> Setting:
        """The paper's network in this run."""
        network = None if self.choice is None else self.choice.paper_network
        return self.options.plain if network is None else network.setting

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """All trained settings by name, in the order of training."""
        return {training.name: training.setting for training in self.trainings}

    @property
    def ensemble(self) -> Ensemble | None:
        """The delivered ensemble; None if the chosen setting is delivered alone."""
        return None if self.choice is None else self.choice.ensemble

    @property
    def roles(self) -> dict[str, Setting]:
        """Settings to compare: the paper's network and, if different, the chosen setting."""
        if self.choice is None or self.choice.paper_network_won:
            return {"paper_network": self.plain}
        if self.choice.paper_network is None:
            return {"chosen": self.choice.chosen.setting}
        return {"paper_network": self.plain, "chosen": self.choice.chosen.setting}
