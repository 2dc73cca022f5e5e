"""What a run chose, for whom, by which rule and with which scores: choice.json, checked when it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import schema
from ..errors import UserError
from ..models.card import check_trust
from ..preprocessing import TRANSFORMS
from ..settings import Setting
from ..tasks import Task, task_of
from ..tasks.classification import BALANCED_ACCURACY, CLASSIFICATION
from ..training.centering import CenteringRule
from ..training.conformal import REPORTED_COVERAGE, Intervals, Thresholds
from ..training.intervals import NextSubject, bootstrap_interval, check_at_least, next_subject
from .headline import BestBaseline, best_baseline, headline

Scores = dict[str, float]  # by subject or by the name of a setting


def _check_scores(tables: Iterable[Scores], lowest: float = -1.0) -> None:
    """Raise unless every score that is known is possible: choice.json lies in the open and may have been edited."""
    for table in tables:
        if not all(math.isnan(value) or value == -math.inf or lowest <= value <= 1 for value in table.values()):
            raise UserError(f"a score lies outside [{lowest:g}, 1]")


@dataclass(frozen=True)
class NamedSetting:
    """A setting and the name that it has in a run, unique there."""

    name: str
    setting: Setting

    def to_dict(self) -> dict[str, Any]:
        """Return every field that a setting can have, flat, for readers of choice.json."""
        return {"name": self.name} | self.setting.as_row()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NamedSetting:
        fields = {k: v for k, v in values.items() if k != "name" and (v != "none" or k in TRANSFORMS)}
        if not isinstance(values.get("name"), str):
            raise UserError(f"invalid value for name: {values.get('name')!r}")
        return cls(values["name"], Setting.from_dict(fields))


@dataclass(frozen=True)
class WeightedCandidate:
    """A candidate in the weighted ensemble."""

    name: str
    family: str  # eegnet, shallow, features, tangent, templates, or the name of a user's encoder
    share: float  # of the weights; all shares sum to 1
    weight: float  # of its probabilities: the share over the temperature; if a number is predicted, its weight
    strength: float | None = None  # of the ridge penalty, if a number is predicted


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Weights of candidates, which multiply their log-probabilities."""

    candidates: list[WeightedCandidate]  # the heaviest first
    nested: dict[str, dict[str, float]]  # by subject, found without them: weights by name
    nested_uncensored: dict[str, dict[str, float]] = field(default_factory=dict)  # of candidates without a penalty

    def __post_init__(self) -> None:
        every = [self.weights, *self.nested.values(), *self.nested_uncensored.values()]
        finite = all(beta >= 0 and math.isfinite(beta) for found in every for beta in found.values())
        is_numeric = any(
            weighted.strength is not None for weighted in self.candidates
        )  # a constant may have all weight
        if not (finite and (is_numeric or all(sum(found.values()) > 0 for found in every))):
            raise UserError("weights of the weighted ensemble are not finite and positive")

    @property
    def weights(self) -> dict[str, float]:
        return {weighted.name: weighted.weight for weighted in self.candidates}

    @property
    def temperature(self) -> float:
        """Return the temperature, which divides the weighted log-probabilities."""
        return 1 / (sum(self.weights.values()) or 1.0)

    @property
    def families(self) -> dict[str, float]:
        """Return the share of each kind of candidate, the heaviest first."""
        shares: dict[str, float] = {}
        for weighted in self.candidates:
            shares[weighted.family] = shares.get(weighted.family, 0.0) + weighted.share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Calibration:
    """Confidence compared with accuracy over all test subjects, each predicted with weights and a temperature that were
    found without the subject. A bin without windows is left out."""

    confidence: list[float]  # of each bin, the mean probability of the predicted class
    accuracy: list[float]
    share: list[float]  # of all windows
    error: float  # expected calibration error
    error_before: float  # the same without the temperature


@dataclass(frozen=True)
class Reliability:
    """Confidence of the delivered model compared with its accuracy on one person; each class counts the same."""

    confidence: float  # the mean probability of the predicted class
    accuracy: float
    error: float  # expected calibration error

    @property
    def overconfidence(self) -> float:
        """Return confidence minus accuracy: above 0 the model is overconfident, below 0 underconfident."""
        return self.confidence - self.accuracy


HARM = 0.02  # of a score: whoever loses more is harmed


def _harmed(gains: list[float]) -> tuple[float, int]:
    return (sum(gain < -HARM for gain in gains) / len(gains) if gains else 0.0), len(gains)


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """Scores of held-out subjects whose windows are replayed, by fits and weights that left the subject out."""

    zero_shot: dict[str, Scores]  # by order of the windows (recorded, balanced, …): without adaptation
    adapted: dict[str, Scores]  # by order, with the adaptation method that is selected on the other subjects
    methods: dict[str, dict[str, Scores]]  # by adaptation method and order
    before_calibration: dict[str, Scores]  # by number of labels per class: the delivered model on unlabeled windows
    calibrated: dict[str, Scores]  # by number of labels per class: the calibrated model on these windows
    personal: dict[str, Scores]  # by number of labels per class: a classifier trained on the labels alone
    adaptation_method: str  # selected on all subjects; "none" if the mean gain is not positive
    calibrates_with: list[int]  # numbers of labels per class by which subjects gained
    trust: dict[str, list[float]] = field(default_factory=dict)  # share and sharpness by number of labels per class
    # The remaining fields are about the online ensemble, and empty if there is none.
    online: dict[str, Scores] = field(default_factory=dict)  # by order, with the rule selected on the other subjects
    all_windows: Scores = field(default_factory=dict)  # with all windows of a subject at once
    rule: CenteringRule | None = None  # selected on all subjects
    online_session: bool = False  # whether sessions of the delivered model use it
    online_all_windows: bool = False  # whether adapt="all" uses it

    @property
    def session_method(self) -> str:
        """Return the method by which a session of the delivered model adapts; "none" if it does not adapt."""
        return self.rule.name if self.online_session and self.rule is not None else self.adaptation_method

    @property
    def gains(self) -> dict[str, float]:
        """Return each person's gain by online adaptation without labels, the mean over orders of the windows."""
        gains: dict[str, list[float]] = {}
        for order, scores in self.zero_shot.items():
            for name, value in scores.items():
                gains.setdefault(name, []).append(self.adapted[order][name] - value)
        return {name: sum(by_order) / len(by_order) for name, by_order in gains.items()}

    @property
    def gain(self) -> float:
        return sum(self.gains.values()) / (len(self.gains) or 1)

    @property
    def harmed(self) -> tuple[float, int]:
        """Return the share of people who lose more than HARM by online adaptation, and the number of people."""
        return _harmed(list(self.gains.values()))

    @property
    def harmed_by_labels(self) -> dict[str, tuple[float, int]]:
        """Return the share of people who lose more than HARM by calibration, and the number of people, by the number of
        labeled windows of each class."""
        before = self.before_calibration
        return {
            n: _harmed([score - before[n][name] for name, score in scores.items() if name in before[n]])
            for n, scores in self.calibrated.items()
        }

    def __post_init__(self) -> None:
        check_trust(self.trust)
        without_labels = (self.zero_shot, self.adapted, *self.methods.values(), self.online, {"all": self.all_windows})
        for tables in (*without_labels, self.before_calibration, self.calibrated, self.personal):
            _check_scores(tables.values())


@dataclass(frozen=True, kw_only=True)
class PredictionSetScores:
    """Prediction sets and abstention on held-out people, with thresholds from the other people; every window of a
    person counts the same."""

    thresholds: Thresholds  # from everybody: those of the delivered model
    coverage: dict[str, Scores]  # by the coverage that is asked for: how often a set holds the true class
    set_size: dict[str, Scores]  # the same: classes in a set, the mean over windows
    answered_share: dict[str, Scores]  # by the share of windows to be left unanswered: the share that is answered
    answered_accuracy: dict[str, Scores]  # of these; somebody without an answer is missing

    def __post_init__(self) -> None:
        for tables in (self.coverage, self.answered_share, self.answered_accuracy):
            _check_scores(tables.values(), 0.0)
        alike = [{name: set(scores) for name, scores in tables.items()} for tables in (self.coverage, self.set_size)]
        if alike[0] != alike[1] or not set(self.answered_accuracy) <= set(self.answered_share):
            raise UserError("the tables of answering are not about the same people and shares")


@dataclass(frozen=True)
class IntervalCheck:
    """Intervals about predicted numbers of held-out people, each with half-widths that the others gave."""

    intervals: Intervals  # from everybody: those of the delivered model
    coverage: Scores  # share of each person's windows within the 90 % interval; empty: no finite one is so wide

    def __post_init__(self) -> None:
        _check_scores([self.coverage], 0.0)

    @property
    def radius(self) -> float:
        """Return half the width of the delivered 90 % interval; infinite if there are too few people."""
        return self.intervals.radius(REPORTED_COVERAGE)


@dataclass(frozen=True, kw_only=True)
class StageScore:
    """Score of a run after a stage, from everything trained up to then."""

    name: str
    number: int  # of the stage in the plan
    seconds: float  # since the run began
    scores: Scores  # by subject, or by unit where parts of people are held out; each decided without them
    score: float  # the mean over people
    interval: list[float]  # 95 % over people; empty for a single one

    def __post_init__(self) -> None:
        _check_scores([self.scores], -math.inf)

    @classmethod
    def from_scores(
        cls, name: str, number: int, seconds: float, scores: Scores, by_person: Scores | None = None
    ) -> StageScore:
        values = list((scores if by_person is None else by_person).values())
        interval = list(bootstrap_interval(values, seed=0) or ())
        mean = math.fsum(values) / len(values)
        return cls(name=name, number=number, seconds=seconds, scores=scores, score=mean, interval=interval)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Model that a run delivers, and the one that it would have delivered without each subject. No test score has been
    read."""

    shortlist: list[NamedSetting]  # the candidates: settings that were trained on every fold
    chosen: NamedSetting  # the best single candidate, delivered alone if there is no ensemble
    best_uncensored: NamedSetting
    paper_network: NamedSetting | None  # the network as published; None if it was not trained
    validation_q25: Scores  # by name of a candidate: lower quartile over validation subjects
    validation_mean: Scores
    nested_choices: dict[str, str]  # by held-out subject: name of the best single candidate without them
    nested_uncensored_choices: dict[str, str]
    adaptation: str  # what the delivered model uses of a new subject
    ensemble: Ensemble | None = None  # None: the chosen setting is delivered alone

    @property
    def settings(self) -> dict[str, Setting]:
        """Return the candidates by name."""
        return {named.name: named.setting for named in self.shortlist}

    @property
    def delivered(self) -> dict[Setting, float]:
        """Return the weights of the delivered candidates."""
        return {self.chosen.setting: 1.0} if self.ensemble is None else self.by_setting(self.ensemble.weights)

    def by_setting(self, weights: dict[str, float]) -> dict[Setting, float]:
        """Return the weights by setting, in the order of candidates."""
        return {named.setting: weights[named.name] for named in self.shortlist if named.name in weights}

    @property
    def paper_network_won(self) -> bool:
        return self.paper_network is not None and self.chosen.setting == self.paper_network.setting

    @property
    def paper_network_label(self) -> str:
        """Return the label of the plain network in tables. A user's encoder takes the place of the paper's network."""
        encoder = "eegnet" if self.paper_network is None else self.paper_network.setting.encoder
        return "EEGNet (paper)" if encoder == "eegnet" else f"{encoder} as given"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Test scores by subject of a selection that was made without them."""

    test_scores: dict[str, Scores]  # by role (chosen, best_uncensored, paper_network): single networks, as published
    nested_test_scores: Scores  # what is delivered
    # What could have been delivered instead: best_single, equal_weights, uncensored (no candidate with a penalty), and
    # paper_network, the ensemble of these networks.
    alternatives: dict[str, Scores] = field(default_factory=dict)
    baselines: dict[str, Scores] = field(default_factory=dict)  # by name: simple models on the same folds
    skipped_baselines: dict[str, str] = field(default_factory=dict)  # by name: why a simple model has no scores
    metric: str = BALANCED_ACCURACY  # of all scores but other_metrics
    chance: float | None = None  # what guessing would score; None: nobody knows
    guessing: Scores = field(default_factory=dict)  # the same by person, where it differs between people
    other_metrics: dict[str, Scores] = field(default_factory=dict)  # by name: of what is delivered
    fingerprint: str = ""  # of the recordings, which had not changed when scores were computed
    unscored_subjects: list[str] = field(default_factory=list)  # people with windows of one class, who are in no scores


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Mistakes and confidence of the delivered model, by subject."""

    confusions: dict[str, list[list[int]]] = field(default_factory=dict)  # counts (C, C) of true × predicted class
    reliability: dict[str, Reliability] = field(default_factory=dict)
    prediction_sets: PredictionSetScores | None = None  # None: too few people
    intervals: IntervalCheck | None = None  # if a number is predicted; None: too few people
    calibration: Calibration | None = None  # of an ensemble

    def __post_init__(self) -> None:
        square = all(len({len(counts), *map(len, counts)}) <= 1 for counts in self.confusions.values())
        if not square or any(n < 0 for counts in self.confusions.values() for row in counts for n in row):
            raise UserError("confusions are no square tables of counts")


@dataclass(frozen=True, kw_only=True)
class Choice(Diagnosis, Evaluation, Selection):
    """The result of a run, as choice.json has it: what was selected, how it scores, and what the report draws."""

    replay: ReplayResult | None = None  # None: nobody could be played back
    undelivered_stages: list[str] = field(default_factory=list)  # what a run with --time had no time for
    stages: list[StageScore] = field(default_factory=list)  # what is in it, in order; empty: trained all at once
    end_reason: str | None = None  # why a run that answers in stages did no more; None: it goes on, or has no stages
    target: str = CLASSIFICATION  # what is predicted, as --target says it
    at_least: float | None = None  # the score that the user asks of every person
    hold_out: str = "subject"  # what was held out: people, their sessions ("session"), or the values of this column
    # What follows from the scores, for readers of choice.json; whatever is given is replaced.
    headline: str = ""
    best_baseline: BestBaseline | None = None
    next_subject: NextSubject | None = None

    @classmethod
    def combine(cls, selection: Selection, evaluation: Evaluation, diagnosis: Diagnosis, **facts: Any) -> Choice:
        return cls(**vars(selection), **vars(evaluation), **vars(diagnosis), **facts)

    def __post_init__(self) -> None:
        super().__post_init__()
        metric = self.task.metric(self.metric)
        lowest = metric.lowest
        tables = [self.validation_q25, self.validation_mean, self.nested_test_scores, *self.test_scores.values()]
        tables += [*self.alternatives.values(), *self.baselines.values(), self.guessing]
        _check_scores(tables, lowest)
        _check_scores(self.other_metrics.values(), min(other.lowest for other in self.task.metrics.values()))
        scored = ("chosen",) if self.paper_network is None else ("chosen", "paper_network")
        if not (self.nested_test_scores and all(self.test_scores.get(role) for role in scored)):
            raise UserError("nested_test_scores or test_scores are empty")
        check_at_least(self.at_least, lowest, metric.highest)
        baseline = best_baseline(self.estimate, self.baselines)
        sentence = headline(
            self.estimate, baseline, task=self.task, interval=self.interval, is_guessing=self.is_guessing,
            metric=self.metric, chance=self.chance, hold_out=self.hold_out, skipped=bool(self.skipped_baselines),
        )  # fmt: skip
        expected = next_subject(list(self.estimate.values()), lowest=lowest, highest=metric.highest)
        object.__setattr__(self, "best_baseline", baseline)
        object.__setattr__(self, "next_subject", expected)
        object.__setattr__(self, "headline", sentence)

    @property
    def task(self) -> Task:
        return task_of(self.target)

    @cached_property
    def estimate(self) -> Scores:
        """Return the scores of the delivered model by subject, each selected without the subject."""
        return {subject: value for subject, value in self.nested_test_scores.items() if math.isfinite(value)}

    @property
    def below(self) -> Scores:
        """Return people who score less than the user asks for, the lowest first."""
        least = -math.inf if self.at_least is None else self.at_least
        return dict(sorted(((p, v) for p, v in self.estimate.items() if v < least), key=lambda item: item[1]))

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval over people of the mean score; None for a single person."""
        return bootstrap_interval(list(self.estimate.values()), seed=0)

    @property
    def is_guessing(self) -> bool:
        """Return whether the delivered model is not clearly better than guessing: its interval reaches chance or, if
        guessing has a score for each person, the interval of the differences reaches 0."""
        if self.guessing:
            gains = [value - self.guessing[who] for who, value in self.estimate.items() if who in self.guessing]
            limits = bootstrap_interval(gains, seed=0)
            return limits is None or limits[0] <= 0
        return self.chance is not None and self.interval is not None and self.interval[0] <= self.chance


def read_choice(folder: Path) -> Choice:
    """Read choice.json of a run. It lies in the open and may have been edited, so every value is checked."""
    path = folder / "choice.json"
    try:
        return schema.from_json(Choice, path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        raise UserError(
            f"there is no {path}; if the run is not finished, continue it with: autotransfer resume {folder}; if the "
            "file was lost, restore it from a copy or start a new run"
        ) from None
    except UserError as error:
        raise UserError(f"{path} is damaged ({error}); restore it from a copy or start a new run") from None


def describe_unfinished(folder: Path) -> list[str]:
    """Say in one line which stages the model of an unfinished run contains, or that choice.json does not say so: the
    model works without it."""
    if not (folder / "choice.json").exists():
        return []
    try:
        choice = read_choice(folder)
    except UserError as error:
        return [str(error)]
    if not choice.stages or choice.end_reason is not None:
        return []
    names = "; ".join(stage.name for stage in choice.stages)
    return [f"{folder} is not finished; this is what it had come to after: {names}"]
