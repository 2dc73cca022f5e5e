"""Decide whether a run continues, from the gains of held-out subjects in its last stages.

Stages are ordered by expected gain. The decision is made again without each subject, who is scored accordingly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from scipy.special import stdtrit

from ..runs.choice import Scores, StageScore

RECENT = 2  # stages whose gains predict the gain of the next one
MIN_GAIN = 0.002  # of the score: a smaller gain is not worth another stage
LEVEL = 0.9  # of the upper end of the 80 % interval


def expects_gain(scores: Sequence[Scores], without: Collection[str] = ()) -> bool:
    """Return whether the 80 % interval of a stage's mean gain reaches MIN_GAIN. scores: by subject after each stage."""
    if len(scores) <= RECENT:
        return True
    subjects = [name for name in scores[-1] if name not in without]
    gains = np.array([(scores[-1][name] - scores[-1 - RECENT][name]) / RECENT for name in subjects])
    gains = gains[np.isfinite(gains)]
    if len(gains) < 2:
        return True
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return bool(gains.mean() + stdtrit(len(gains) - 1, LEVEL) * error >= MIN_GAIN)


def stages_without(stage_scores: Sequence[StageScore], subjects: Collection[str]) -> int:
    """Return the number of stages after which the run would have stopped without these subjects."""
    scores = [stage.scores for stage in stage_scores]
    return next((n for n in range(1, len(scores)) if not expects_gain(scores[:n], subjects)), len(scores))
