"""Evidence: what a run may read to select, and the part of it that a subject had nothing to do with.

`ClassificationEvidence` is that of classification, and `RegressionEvidence` has the same interface for regression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..folds import scorable_subjects
from ..runs.choice import NamedSetting, Scores
from ..runs.database import Entry
from ..runs.run import Run
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY
from .held_out import Array, FitKey, held_out_log_probs, logarithm, measured_scores, score_subject, validation_scores
from .regression_evidence import RegressionEvidence
from .stages import Score, by_subject
from .weights import Floats, combine_log_probs

ROWS = 100  # windows of a subject and fit that weights are fitted on
MOST_ROWS = 20_000  # of all of them together
BLOCKS = 40  # how often weights are fitted again: of more subjects, some are left out together


@dataclass(frozen=True)
class ClassificationEvidence:
    """Validation scores, and predictions of held-out subjects with their classes.

    Every fit holds out two subjects, or two groups of them, and each is predicted by the snapshot that the other one
    picked. So whatever is selected from `evidence.without([subject])` knows nothing of the subject: no label, no score,
    and no fit that held the subject out. Scores of what was selected are found elsewhere, by `evaluate`.
    """

    candidates: tuple[NamedSetting, ...]
    subjects: tuple[str, ...]  # names by number; everything else has numbers
    log_probs: Mapping[FitKey, Array]  # by fit and held-out subject: (candidates, n, classes), mean over seeds
    y: Mapping[int, NDArray[np.int64]]  # classes (n,) of each subject
    scores: tuple[Score, ...] = ()
    trained: tuple[int, ...] = ()  # candidates with a finished fit
    rows: int = ROWS  # windows of a subject and fit that weights are fitted on
    pools: dict[int, Array] = field(default_factory=dict, repr=False, compare=False)  # of subjects with all their fits
    partial: frozenset[int] = frozenset()  # subjects some of whose fits are left out

    @classmethod
    def from_run(cls, run: Run, candidates: Sequence[NamedSetting], entries: Sequence[Entry]) -> ClassificationEvidence:
        """Collect the evidence of finished jobs of a run."""
        rec, settings = run.recordings, [named.setting for named in candidates]
        known, who = set(scorable_subjects(rec)), rec.subject.numpy()
        published = run.options.rule == "published" and run.options.metric == BALANCED_ACCURACY
        scores = validation_scores(entries, run.groups) if published else measured_scores(run, entries)
        log_probs = held_out_log_probs(run, settings, entries)
        done = {entry.setting for entry in entries if entry.status == "done"}
        return cls(
            candidates=tuple(candidates),
            subjects=tuple(map(str, rec.subjects)),
            log_probs=log_probs,
            y={subject: rec.y.numpy()[who == subject] for subject in range(rec.n_subjects)},
            scores=tuple(score for score in scores if score.subject in known),
            trained=tuple(k for k, setting in enumerate(settings) if setting in done) or (0,),
            rows=max(10, min(ROWS, MOST_ROWS // len(log_probs))),
        )

    def without(self, subjects: Iterable[int]) -> ClassificationEvidence:
        """Return the evidence that these subjects took no part in."""
        out = frozenset(subjects)
        log_probs = {(fold, who): log_p for (fold, who), log_p in self.log_probs.items() if out.isdisjoint(fold)}
        partial = self.partial | {who for fold, who in self.log_probs if not out.isdisjoint(fold)}
        return replace(
            self,
            log_probs=log_probs,
            y={subject: y for subject, y in self.y.items() if subject not in out},
            scores=tuple(s for s in self.scores if s.subject not in out and out.isdisjoint(s.others)),
            pools={subject: self.pool(subject) for subject in self.people if subject not in partial},
            partial=partial,
        )

    @cached_property
    def people(self) -> list[int]:
        """Return the subjects who were held out and can be scored."""
        return sorted(who for who in {who for _, who in self.log_probs} if len(np.unique(self.y[who])) > 1)

    @property
    def complete(self) -> list[int]:
        """Return the people none of whose fits are left out."""
        return [person for person in self.people if person not in self.partial]

    @cached_property
    def together(self) -> list[list[int]]:
        """Return people in groups that the same fits held out."""
        groups: dict[frozenset[tuple[int, ...]], list[int]] = {}
        for person in self.people:
            groups.setdefault(frozenset(fold for fold, who in self.log_probs if who == person), []).append(person)
        return list(groups.values())

    @property
    def blocks(self) -> list[list[int]]:
        """Return subjects to leave out together, in at most BLOCKS blocks of whole groups, which the same fits held
        out."""
        groups = self.together
        parts = np.array_split(np.arange(len(groups)), min(len(groups), BLOCKS))
        return [[person for place in part.tolist() for person in groups[place]] for part in parts]

    def pool(self, subject: int) -> Array:
        """Return log-probabilities (candidates, n, classes): the mean probability over the fits that held them out."""
        if subject not in self.pools:
            fits = [np.exp(log_p) for (_, who), log_p in self.log_probs.items() if who == subject]
            self.pools[subject] = logarithm(np.mean(fits, 0))
        return self.pools[subject]

    def combine(self, weights: Floats, subject: int) -> Floats:
        """Return log-probabilities (n, classes) of a subject by the candidates with these weights (K,)."""
        return combine_log_probs(weights, self.pool(subject))

    def scores_of(self, metric: Metric, log_probs: Mapping[int, NDArray[np.floating]]) -> Scores:
        """Score log-probabilities (n, classes) by subject."""
        return {self.subjects[w]: score_subject(metric, self.y[w], np.exp(log_p)) for w, log_p in log_probs.items()}

    def validation(self, candidate: int) -> Floats:
        """Return a candidate's mean validation score on each subject."""
        return by_subject(self.scores, self.candidates[candidate].setting.key)

    def strength(self, candidate: int) -> float | None:
        """Return the strength of a ridge regression, which no classifier has."""

    def uncensored(self, among: Iterable[int]) -> list[int]:
        return [k for k in among if self.candidates[k].setting.penalty is None]


Evidence = ClassificationEvidence | RegressionEvidence
