"""Result of a run: the selected model, its test scores and data for the figures of the report, in choice.json."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import schema
from ..errors import UserError
from ..files import write_atomically
from ..models.adaptation import CLASS_MEANS, NO_ADAPTATION
from ..models.card import check_trust
from ..preprocessing import TRANSFORMS
from ..settings import Setting
from ..tasks import Task, task_of
from ..tasks.classification import BALANCED_ACCURACY, CLASSIFICATION
from ..training.conformal import REPORTED_COVERAGE, Intervals, Thresholds
from ..training.intervals import (
    UNLIMITED,
    NextSubject,
    check_at_least,
    is_better_than_guessing,
    mean_interval,
    next_subject,
)
from .headline import BestBaseline, best_baseline, headline

Scores = dict[str, float]  # by subject or by the name of a setting


def _check_scores(tables: Iterable[Scores], lowest: float = -1.0) -> None:
    """Raise unless every score is possible, because choice.json may have been edited."""
    for table in tables:
        if not all(math.isnan(value) or value == -math.inf or lowest <= value <= 1 for value in table.values()):
            raise UserError(f"a score is outside [{lowest:g}, 1]")


@dataclass(frozen=True)
class NamedSetting:
    """Setting with a name that is unique in a run."""

    name: str
    setting: Setting

    def to_dict(self) -> dict[str, Any]:
        """Return the name and all keywords of the setting as one flat dict."""
        return {"name": self.name} | self.setting.as_row()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NamedSetting:
        fields = {k: v for k, v in values.items() if k != "name" and (v != "none" or k in TRANSFORMS)}
        if not isinstance(values.get("name"), str):
            raise UserError(f"invalid value for name: {values.get('name')!r}")
        return cls(values["name"], Setting.from_dict(fields))


@dataclass(frozen=True)
class WeightedCandidate:
    """Candidate of the weighted ensemble."""

    name: str
    family: str  # model family: eegnet, shallow, features, tangent, templates, or a user's encoder
    share: float  # fraction of the sum of all weights
    weight: float  # factor of its log-probabilities, share / temperature; in regression, factor of its predictions
    strength: float | None = None  # strength of the ridge penalty in regression


@dataclass(frozen=True, kw_only=True)
class EnsembleWeights:
    """Weights of candidates, which multiply their log-probabilities."""

    candidates: list[WeightedCandidate]  # in descending order of weight
    nested: dict[str, dict[str, float]]  # by subject: weights by name, fitted without the subject
    nested_uncensored: dict[str, dict[str, float]] = field(default_factory=dict)  # as `nested`, without penalties

    def __post_init__(self) -> None:
        tables = [self.weights, *self.nested.values(), *self.nested_uncensored.values()]
        are_finite = all(beta >= 0 and math.isfinite(beta) for table in tables for beta in table.values())
        is_numeric = any(candidate.strength is not None for candidate in self.candidates)
        # In regression, all weights are 0 if the mean of the training targets predicts best.
        if not (are_finite and (is_numeric or all(sum(table.values()) > 0 for table in tables))):
            raise UserError("weights of the ensemble are not finite and positive")

    @property
    def weights(self) -> dict[str, float]:
        return {candidate.name: candidate.weight for candidate in self.candidates}

    @property
    def temperature(self) -> float:
        """Return the temperature, the divisor of the weighted log-probabilities."""
        return 1 / (sum(self.weights.values()) or 1.0)

    @property
    def families(self) -> dict[str, float]:
        """Return the share of each model family in descending order."""
        shares: dict[str, float] = {}
        for candidate in self.candidates:
            shares[candidate.family] = shares.get(candidate.family, 0.0) + candidate.share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Calibration:
    """Confidence versus accuracy over all test subjects, in bins of similar confidence; empty bins are left out."""

    confidence: list[float]  # mean probability of the predicted class, by bin
    accuracy: list[float]  # by bin
    share: list[float]  # fraction of all windows, by bin
    error: float  # expected calibration error
    error_before: float  # expected calibration error without the temperature


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy of the delivered model on one subject, with equal weights of all classes."""

    confidence: float  # mean probability of the predicted class
    accuracy: float
    error: float  # expected calibration error

    @property
    def overconfidence(self) -> float:
        """Return confidence minus accuracy: above 0 the model is overconfident, below 0 underconfident."""
        return self.confidence - self.accuracy


HARM = 0.02  # decrease of the score above which a subject counts as harmed


def _compute_harm(gains: list[float]) -> tuple[float, int]:
    """Return the share of gains below −HARM, and the number of gains."""
    return (sum(gain < -HARM for gain in gains) / len(gains) if gains else 0.0), len(gains)


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """Scores of held-out subjects whose windows are replayed, with fits and weights that exclude the subject."""

    zero_shot: dict[str, Scores]  # by order of windows (recorded, balanced, …): scores without adaptation
    adapted: dict[str, Scores]  # by order: scores with the method that is selected on the other subjects
    before_calibration: dict[str, Scores]  # by number of labels per class: the delivered model on unlabeled windows
    calibrated: dict[str, Scores]  # by number of labels per class: the calibrated model on these windows
    personal: dict[str, Scores]  # by number of labels per class: a classifier trained on the labels alone
    calibrates_with: list[int]  # numbers of labels per class with which calibration does not lower scores
    trust: dict[str, list[float]] = field(default_factory=dict)  # share and sharpness by number of labels per class
    all_windows: Scores = field(default_factory=dict)  # with all windows at once, by the method of other subjects
    session_method: str = NO_ADAPTATION  # method of online sessions of the delivered model
    transductive_method: str = NO_ADAPTATION  # method of the delivered model for all windows of a subject at once

    @property
    def uses_online_ensemble(self) -> bool:
        """Return whether a method of the delivered model uses the online ensemble."""
        return not {self.session_method, self.transductive_method} <= {NO_ADAPTATION, CLASS_MEANS}

    @property
    def gains(self) -> dict[str, float]:
        """Return the mean gain over orders of windows by online adaptation without labels, for each subject."""
        gains: dict[str, list[float]] = {}
        for order, scores in self.zero_shot.items():
            for name, value in scores.items():
                gains.setdefault(name, []).append(self.adapted[order][name] - value)
        return {name: sum(by_order) / len(by_order) for name, by_order in gains.items()}

    @property
    def gain(self) -> float:
        return sum(self.gains.values()) / (len(self.gains) or 1)

    @property
    def transductive_gain(self) -> float:
        """Return the mean gain over subjects if all windows of a subject are used at once."""
        zero_shot = self.zero_shot["recorded"]
        gains = [score - zero_shot[name] for name, score in self.all_windows.items()]
        return sum(gains) / (len(gains) or 1)

    @property
    def harm(self) -> tuple[float, int]:
        """Return the share of subjects harmed by online adaptation, and the number of subjects."""
        return _compute_harm(list(self.gains.values()))

    @property
    def harm_by_labels(self) -> dict[str, tuple[float, int]]:
        """Return the share of subjects harmed by calibration and the number of subjects, by number of labels."""
        before = self.before_calibration
        return {
            n: _compute_harm([score - before[n][name] for name, score in scores.items() if name in before[n]])
            for n, scores in self.calibrated.items()
        }

    def __post_init__(self) -> None:
        check_trust(self.trust)
        without_labels = (self.zero_shot, self.adapted, {"all": self.all_windows})
        for tables in (*without_labels, self.before_calibration, self.calibrated, self.personal):
            _check_scores(tables.values())


@dataclass(frozen=True, kw_only=True)
class PredictionSetScores:
    """Scores of prediction sets and abstention on held-out subjects, with thresholds from the other subjects."""

    thresholds: Thresholds  # thresholds of the delivered model, from all subjects
    coverage: dict[str, Scores]  # by requested coverage and subject: share of sets with the true class
    set_size: dict[str, Scores]  # by requested coverage and subject: mean number of classes in a set
    answered_share: dict[str, Scores]  # by requested share of abstention and subject: share of predicted windows
    answered_accuracy: dict[str, Scores]  # by requested share of abstention and subject: accuracy on these windows

    def __post_init__(self) -> None:
        for tables in (self.coverage, self.answered_share, self.answered_accuracy):
            _check_scores(tables.values(), 0.0)
        if not all(re.fullmatch(r"0(\.\d+)?", share) for share in (*self.coverage, *self.answered_share)):
            raise UserError("the tables of prediction_sets have names that are no shares")
        subjects = [{name: set(scores) for name, scores in tables.items()} for tables in (self.coverage, self.set_size)]
        if subjects[0] != subjects[1] or not set(self.answered_accuracy) <= set(self.answered_share):
            raise UserError("the tables of prediction_sets have different subjects or shares")


@dataclass(frozen=True)
class IntervalCheck:
    """Coverage of prediction intervals on held-out subjects, with half-widths from the other subjects."""

    intervals: Intervals  # intervals of the delivered model, from all subjects
    coverage: Scores  # by subject: share of windows within the 90 % interval; empty if the interval is infinite

    def __post_init__(self) -> None:
        _check_scores([self.coverage], 0.0)

    @property
    def radius(self) -> float:
        """Return half the width of the delivered 90 % interval; infinite if there are too few subjects."""
        return self.intervals.radius(REPORTED_COVERAGE)


@dataclass(frozen=True, kw_only=True)
class StageScore:
    """Interim result of all models that are trained after a stage."""

    name: str
    number: int  # index of the stage in the plan
    seconds: float  # time since the run started
    scores: Scores  # by subject or held-out unit, of models selected without the subject
    score: float  # mean over subjects
    interval: list[float]  # 95 % interval of the mean; empty for a single subject

    def __post_init__(self) -> None:
        _check_scores([self.scores], -math.inf)

    @classmethod
    def from_scores(
        cls, name: str, number: int, seconds: float, scores: Scores, by_subject: Scores | None = None,
        limits: tuple[float, float] = UNLIMITED,
    ) -> StageScore:  # fmt: skip
        values = list((scores if by_subject is None else by_subject).values())
        interval = list(mean_interval(values, limits) or ())
        mean = math.fsum(values) / len(values)
        return cls(name=name, number=number, seconds=seconds, scores=scores, score=mean, interval=interval)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Model that a run delivers, and models selected without each subject. The selection uses no test scores."""

    shortlist: list[NamedSetting]  # candidates: settings that were trained on every fold
    chosen: NamedSetting  # best single candidate, which is delivered alone if there is no ensemble
    best_uncensored: NamedSetting
    paper_network: NamedSetting | None  # EEGNet (paper); None if it was not trained
    validation_q25: Scores  # by name of a candidate: lower quartile over validation subjects
    validation_mean: Scores
    nested_choices: dict[str, str]  # by held-out subject: name of the best single candidate without the subject
    nested_uncensored_choices: dict[str, str]  # as `nested_choices`, among candidates without a penalty
    adaptation: str  # use of a new subject's unlabeled windows: none, online or transductive
    ensemble: EnsembleWeights | None = None  # None if the chosen setting is delivered alone

    @property
    def settings(self) -> dict[str, Setting]:
        """Return the candidates by name."""
        return {named.name: named.setting for named in self.shortlist}

    @property
    def delivered(self) -> dict[Setting, float]:
        """Return the weights of the delivered candidates by setting."""
        return {self.chosen.setting: 1.0} if self.ensemble is None else self.by_setting(self.ensemble.weights)

    def by_setting(self, weights: dict[str, float]) -> dict[Setting, float]:
        """Return weights by setting, in the order of candidates."""
        return {named.setting: weights[named.name] for named in self.shortlist if named.name in weights}

    @property
    def is_paper_network_chosen(self) -> bool:
        return self.paper_network is not None and self.chosen.setting == self.paper_network.setting

    @property
    def paper_network_label(self) -> str:
        """Return the label of the paper's network, or of the user's encoder in its place, in tables."""
        encoder = "eegnet" if self.paper_network is None else self.paper_network.setting.encoder
        return "EEGNet (paper)" if encoder == "eegnet" else f"{encoder} as given"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Test scores of selected models by subject. The selection does not depend on test scores."""

    test_scores: dict[str, Scores]  # single settings by role: chosen, best_uncensored, paper_network
    nested_test_scores: Scores  # scores of the delivered model, selected without each subject
    # Models that could be delivered instead: best_single, equal_weights, uncensored (no candidate with a penalty), and
    # paper_network, the ensemble of these networks.
    alternatives: dict[str, Scores] = field(default_factory=dict)
    baselines: dict[str, Scores] = field(default_factory=dict)  # by name of a baseline, on the same folds
    skipped_baselines: dict[str, str] = field(default_factory=dict)  # reason for missing scores by name of a baseline
    metric: str = BALANCED_ACCURACY  # metric of all scores except other_metrics
    chance: float | None = None  # score of guessing; None if unknown
    guessing: Scores = field(default_factory=dict)  # score of guessing by subject, if subjects have different scores
    other_metrics: dict[str, Scores] = field(default_factory=dict)  # scores of the delivered model by metric
    fingerprint: str = ""  # digest of the recordings that were scored
    unscored_subjects: list[str] = field(default_factory=list)  # subjects with windows of one class, without scores


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Errors and confidence of the delivered model by subject."""

    confusions: dict[str, list[list[int]]] = field(default_factory=dict)  # counts (C, C) of true × predicted class
    reliability: dict[str, Reliability] = field(default_factory=dict)
    prediction_sets: PredictionSetScores | None = None  # None with too few subjects
    intervals: IntervalCheck | None = None  # in regression; None with too few subjects
    calibration: Calibration | None = None  # in classification, if an ensemble is delivered

    def __post_init__(self) -> None:
        square = all(len({len(counts), *map(len, counts)}) <= 1 for counts in self.confusions.values())
        if not square or any(n < 0 for counts in self.confusions.values() for row in counts for n in row):
            raise UserError("confusions are not square tables of counts")


@dataclass(frozen=True, kw_only=True)
class Choice(Diagnosis, Evaluation, Selection):
    """Result of a run: selection, test scores and diagnosis, as stored in choice.json."""

    replay: ReplayResult | None = None  # None if no subject could be replayed
    undelivered_stages: list[str] = field(default_factory=list)  # stages of the plan for which there was no time
    stages: list[StageScore] = field(default_factory=list)  # interim results; empty for a run without stages
    end_reason: str | None = None  # reason why a run with stages ended; None if the run continues
    target: str = CLASSIFICATION  # value of --target
    at_least: float | None = None  # value of --at-least
    hold_out: str = "subject"  # held-out unit: subject, session, or the name of a column
    # The next three fields are computed from the scores. Values in choice.json are ignored.
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
        roles = ("chosen",) if self.paper_network is None else ("chosen", "paper_network")
        if not (self.nested_test_scores and all(self.test_scores.get(role) for role in roles)):
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
        """Return the finite scores of the delivered model by subject, selected without each subject."""
        return {subject: value for subject, value in self.nested_test_scores.items() if math.isfinite(value)}

    @property
    def low_scores(self) -> Scores:
        """Return the scores below `at_least` by subject, the lowest first."""
        limit = -math.inf if self.at_least is None else self.at_least
        return dict(sorted(((s, v) for s, v in self.estimate.items() if v < limit), key=lambda item: item[1]))

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean score over subjects; None for a single subject."""
        return mean_interval(list(self.estimate.values()), self.task.metric(self.metric).limits)

    @property
    def is_guessing(self) -> bool:
        """Return whether the model is not clearly better than guessing."""
        return self.is_guessing_without(None)

    def is_guessing_without(self, subject: str | None) -> bool:
        """Return whether the model is not clearly better than guessing on the subjects without this one."""
        if self.chance is None:
            return False
        guesses = self.guessing or dict.fromkeys(self.estimate, self.chance)
        gains = [score - guesses[name] for name, score in self.estimate.items() if name != subject and name in guesses]
        return not is_better_than_guessing(gains)


def write_choice(folder: Path, choice: Choice) -> None:
    write_atomically(folder / "choice.json", json.dumps(schema.to_values(choice), indent=1))


def read_choice(folder: Path) -> Choice:
    """Read choice.json of a run and check all values, because the file may have been edited."""
    path = folder / "choice.json"
    try:
        return schema.from_json(Choice, path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        raise UserError(
            f"there is no {path}; continue the run with: autotransfer resume {folder}, or restore the file from a copy"
        ) from None
    except UserError as error:
        raise UserError(f"{path} is damaged ({error}); restore it from a copy or start a new run") from None


def describe_unfinished(folder: Path) -> list[str]:
    """Return a line with the stages in the model of an unfinished run; an empty list if the run is finished."""
    if not (folder / "choice.json").exists():
        return []
    try:
        choice = read_choice(folder)
    except UserError as error:
        return [str(error)]
    if not choice.stages or choice.end_reason is not None:
        return []
    names = "; ".join(stage.name for stage in choice.stages)
    return [f"{folder} is not finished; the model contains the stages: {names}"]
