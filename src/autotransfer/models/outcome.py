"""Training of jobs, with outcomes from which models are built."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from ..errors import UserError
from ..jobs import Job, Outcome
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..training.train import train as train_jobs
from ..versions import versions
from .building import CandidateFits, build_model
from .model import Model


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TrainedOutcome(Outcome):
    """Outcome of a job with its recordings, from which it builds a model."""

    recordings: Recordings = field(repr=False)
    encoders: Encoders | None = field(default=None, repr=False)

    def model(self) -> Model:
        """Return the model with the weights of the checkpoint and the preprocessing that was fitted for them."""
        if self.best_epoch == 0:
            raise UserError(f"{self.failure}; try a lower lr or strength")
        setting, fold = self.job.setting, self.job.fold
        scores = {"validation_score": self.validation_score, "test_score": self.test_score}
        scores = {name: score for name, score in scores.items() if not math.isnan(score)}  # NaN: no test subject
        fits = [CandidateFits(setting, [self.state], [fold])]
        model = build_model(self.recordings, fits, scores=scores, encoders=self.encoders)
        model.card = replace(model.card, made_with=versions())
        return model


def train(
    recordings: Recordings,
    jobs: Iterable[Job],
    device: str | torch.device = "auto",
    *,
    population: int | str = "auto",
    dtype: torch.dtype = torch.float32,
    progress: bool | None = None,
    encoders: Encoders | None = None,
) -> list[TrainedOutcome]:
    """Train jobs, each a setting with a fold and a seed, and return their outcomes in the order of the jobs.

    Jobs whose networks have equal shapes are stacked into populations, even if folds, seeds and censors differ. An
    outcome does not depend on the other jobs of its population. Two jobs are one fit if they differ only in the
    exchange of the validation and the test subject.

    Parameters
    ----------
    device : str or torch.device
        "auto", "cpu" or "cuda".
    population : int or "auto"
        Maximum number of stacked jobs; "auto": as many as memory allows.
    dtype : torch.dtype
        Type of weights and windows.
    progress : bool or None
        Whether to show a progress bar; None: show it if standard error is a terminal.
    encoders : dict of callable, optional
        Factory of each user-defined encoder by name, as in `Setting(encoder=name)`: factory(n_channels, n_times)
        returns an nn.Module from windows (B, channels, times) to latent features (B, ...).

    Returns
    -------
    list of TrainedOutcome
        Scores, history and weights of each job; `model()` builds its model.

    Examples
    --------
    >>> (outcome,) = at.train(recordings, [at.Job(setting, fold)])
    >>> outcome.model().predict(X)
    """
    if not isinstance(jobs, Iterable):
        raise UserError(f"train needs a list of Jobs, not {type(jobs).__name__}; give [at.Job(setting, fold, seed)]")
    with torch.inference_mode(False), torch.enable_grad():  # the caller may have switched gradients off
        outcomes = train_jobs(
            recordings, list(jobs), device, population=population, dtype=dtype, progress=progress, encoders=encoders
        )
    return [TrainedOutcome(**vars(outcome), recordings=recordings, encoders=encoders) for outcome in outcomes]
