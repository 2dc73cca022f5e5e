"""Linear models that predict numbers: ridge regressions with every strength, fold by fold, in the run database."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from ..folds import Fold
from ..jobs import HISTORY, Record
from ..preprocessing import FittedPreprocessing
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..settings import Setting
from ..training.progress import Progress
from ..training.represented import represented
from ..training.ridge import Ridge, ridge
from .executor import LOG_PROBS, LocalExecutor, Work
from .ledger import FINISHED
from .signals import raise_if_asked

Floats = NDArray[np.float64]
STRENGTHS = tuple(10.0**power for power in range(-4, 4))  # of the penalty


class NumberExecutor(LocalExecutor):
    """Fits that need no steps: one job after the other."""

    def train(self, run: Work, bar: Progress) -> None:
        for entry in run.ledger.entries(records=False):
            if entry.status in FINISHED:
                continue
            start, fold = time.perf_counter(), run.job(entry).fold
            predicted = torch.from_numpy(np.ascontiguousarray(held_out_numbers(run.recordings, entry.setting, fold).T))
            run.ledger.finish(entry.key, _record(time.perf_counter() - start), save({LOG_PROBS: predicted}))
            bar.elsewhere([entry.setting.max_epochs], [False])
            raise_if_asked()


def _record(seconds: float) -> Record:
    """Make the record of a fit that has neither scores of classes nor epochs."""
    nothing = np.zeros((1, 1), dtype=np.int64)
    return Record(
        best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, validation_confusion=nothing,
        test_confusion=nothing, history={name: [] for name in HISTORY}, seconds=seconds, population=1,
    )  # fmt: skip


class RidgeFit(NamedTuple):
    """Preprocessing and ridge regressions, fitted on training rows."""

    preprocessing: FittedPreprocessing
    head: Ridge


def held_out_numbers(recordings: Recordings, setting: Setting, fold: Fold) -> Floats:
    """Return predictions (S, n) with each strength for the test rows of a fold."""
    fitted, head = fit_ridge(recordings, setting, fold.train, STRENGTHS)
    (start, windows), rows = _ready(recordings, setting), torch.from_numpy(fold.test)
    return head.predict(_new_codes(fitted, windows[rows], recordings.subject[rows], start).numpy())


def fit_ridge(
    recordings: Recordings, setting: Setting, train: NDArray[np.int64], strengths: Sequence[float]
) -> RidgeFit:
    """Fit ridge regressions with each strength on training rows (n,)."""
    ready = _ready(recordings, setting)
    fitted = setting.preprocessing.fit(recordings.X, recordings.subject, [train], recordings.derived, ready=ready)
    codes = _codes(fitted, *ready, recordings.subject, train)
    return RidgeFit(fitted, ridge(codes, recordings.truth.numpy()[train], strengths))


def _ready(recordings: Recordings, setting: Setting) -> tuple[int, Tensor]:
    """Return how many transforms are the same for all people and folds, and all windows after these."""
    return represented(recordings, setting.preprocessing) or (0, recordings.X)


@torch.no_grad()
def _codes(
    fitted: FittedPreprocessing, start: int, windows: Tensor, subject: Tensor, rows: NDArray[np.int64]
) -> Floats:
    """(n, D) of training people's windows (n,), which have been through the first transforms."""
    parts = []
    for chunk in row_chunks(len(rows), windows[0].numel()):
        places = torch.from_numpy(rows[chunk])
        prepared = fitted(windows[places][None].to(torch.float32), subject[places][None], start=start)
        parts.append(prepared[0].flatten(1).double())
    return torch.cat(parts).numpy()


def _new_codes(fitted: FittedPreprocessing, X: Tensor, subject: Tensor, start: int) -> Tensor:
    """(N, D) float64 of windows (N, channels, times) of people (N,) whom the preprocessing was not fitted on."""
    X = X.to(torch.float32)
    if fitted.spec.adaptation == "none":
        return fitted.follow(start).feed(X)[0].flatten(1).double()
    people = [(subject == person).nonzero()[:, 0] for person in subject.unique()]  # type: ignore[no-untyped-call]  # torch's
    found = torch.cat([fitted.follow(start).feed(X[rows])[0].flatten(1) for rows in people])
    codes = torch.empty_like(found, dtype=torch.float64)
    codes[torch.cat(people)] = found.double()
    return codes
