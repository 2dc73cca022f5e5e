"""Whether another stage is expected to gain, by what held-out people gained from the last ones.

Stages are ordered by expected gain, so the next one is taken to gain no more than the last ones did. People do not
decide about themselves: for each person the decision is made again from what others gained, and where these would have
stopped earlier, the person is scored with the answer of that stage.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from scipy.special import stdtrit

from ..runs.choice import Scores, StageScore

RECENT = 2  # stages whose gains say what the next one may gain: one alone may have been bad luck
WORTH = 0.002  # of the score: a smaller gain is worth no more waiting
SURE = 0.9  # how sure it must be that less is gained


def expects_gain(scores: Sequence[Scores], without: Collection[str] = ()) -> bool:
    """Return whether one more stage may gain something, from people's scores after each stage so far.

    The upper end of the 80 % interval of the mean gain of a stage over people is compared with WORTH.
    """
    if len(scores) <= RECENT:
        return True
    people = [name for name in scores[-1] if name not in without]
    gains = np.array([(scores[-1][name] - scores[-1 - RECENT][name]) / RECENT for name in people])
    gains = gains[np.isfinite(gains)]
    if len(gains) < 2:
        return True
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return bool(gains.mean() + stdtrit(len(gains) - 1, SURE) * error >= WORTH)


def stopped_at(answers: Sequence[StageScore], without: Collection[str]) -> int:
    """Return after how many interim results the run would have stopped without these people; all of them if it would
    not."""
    scores = [answer.scores for answer in answers]
    return next((n for n in range(1, len(scores)) if not expects_gain(scores[:n], without)), len(scores))
