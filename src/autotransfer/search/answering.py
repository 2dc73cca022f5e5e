"""How sets and abstention do on held-out people, each with thresholds that the others gave."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..runs.choice import Answering, Scores
from ..training.conformal import Thresholds, cautious, confidence_threshold, coverage_curves, sets_at

COVERAGES = (0.8, 0.9, 0.95)
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # of windows that are left unanswered
Person = tuple[NDArray[np.int64], NDArray[np.float64]]  # classes (n,), probabilities (n, C)


def answering(people: Mapping[str, Person]) -> Answering | None:
    """people: by name, each with the probabilities of a model that never saw them. None where they are too few."""
    y, probability = [labels for labels, _ in people.values()], [p for _, p in people.values()]
    thresholds = Thresholds.of(y, probability)
    if thresholds is None:
        return None
    tried, covered = coverage_curves(y, probability)
    tables: dict[str, dict[str, Scores]] = {name: {} for name in ("coverage", "set_size", "answered", "accuracy")}

    def note(table: str, level: float, name: str, value: float) -> None:
        tables[table].setdefault(f"{level:g}", {})[name] = value

    for k, (name, (labels, p)) in enumerate(people.items()):
        rows, right = np.arange(len(labels)), p.argmax(1) == labels
        for level, place in zip(COVERAGES, cautious(np.delete(covered, k, 0), np.array(COVERAGES)), strict=True):
            sets = sets_at(p, tried[place])
            note("coverage", level, name, float(sets[rows, labels].mean()))
            note("set_size", level, name, float(sets.sum(1).mean()))
        others = probability[:k] + probability[k + 1 :]
        for share, least in zip(SHARES, confidence_threshold(others, np.array(SHARES)), strict=True):
            answered = p.max(1) >= least
            note("answered", share, name, float(answered.mean()))
            if answered.any():
                note("accuracy", share, name, float(right[answered].mean()))
    return Answering(thresholds=thresholds, **tables)
