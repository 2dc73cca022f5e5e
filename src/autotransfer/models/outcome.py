"""at.train: jobs in, outcomes out, each of which can be made into a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from ..errors import UserError
from ..jobs import Job, Outcome
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..training.train import train as train_jobs
from ..versions import versions
from .assembly import Part, assemble
from .model import Model


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TrainedOutcome(Outcome):
    """An `Outcome` that knows the recordings it was trained on, and so can be made into a model."""

    recordings: Recordings = field(repr=False)
    encoders: Encoders | None = field(default=None, repr=False)
    swapped: TrainedOutcome | None = field(default=None, repr=False)

    def model(self) -> Model:
        """Make the snapshot a model that takes raw windows, with the preprocessing that it was fitted with."""
        if self.best_epoch == 0:
            raise UserError(f"the training failed before its first epoch ended ({self.failure}); there is no model")
        setting, fold = self.job.setting, self.job.fold
        scores = {"validation_score": self.validation_score, "test_score": self.test_score}
        model = assemble(self.recordings, [Part(setting, [self.state], [fold])], scores=scores, encoders=self.encoders)
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
    """Train every job and return the outcomes in the order of the jobs.

    Jobs with equal shapes are stacked into populations, also with different folds, seeds and censors: as many as memory
    allows, or at most `population`. An outcome does not depend on the other jobs of its population. Two jobs that
    differ only in the exchange of validation and test subject are one fit.

        (outcome,) = train(recordings, [Job(setting, fold)])
        outcome.model().predict(X)

    progress: whether to show a progress bar; None: if standard error is a terminal
    encoders: factories of your own encoders by name, for Setting(encoder="mine"): factory(n_channels, n_times)
        returns an nn.Module that maps windows (B, channels, times) to latent features (B, ...)
    """
    if not isinstance(jobs, Iterable):
        raise UserError(f"train needs a list of Jobs, not {type(jobs).__name__}; give [at.Job(setting, fold, seed)]")
    with torch.inference_mode(False), torch.enable_grad():  # wherever it is called from
        outcomes = train_jobs(
            recordings, list(jobs), device, population=population, dtype=dtype, progress=progress, encoders=encoders
        )
    return [_with_recordings(outcome, recordings, encoders) for outcome in outcomes]


def _with_recordings(outcome: Outcome, recordings: Recordings, encoders: Encoders | None) -> TrainedOutcome:
    """Return the outcome, and that of its exchanged twin, with what makes a model of it."""
    twin = None if outcome.swapped is None else _with_recordings(outcome.swapped, recordings, encoders)
    return TrainedOutcome(**vars(outcome) | {"swapped": twin, "recordings": recordings, "encoders": encoders})
