"""Outcomes of the members of a population: one for each of its two snapshots."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..jobs import Job, Outcome
from ..recordings import Recordings
from .evaluation import HISTORY_COLUMNS
from .metrics import balanced_accuracy, balanced_accuracy_of
from .trainer import Trainer

NAMES = ("train_loss", "penalty", "validation_loss", "validation_score")  # columns of a history


def make_outcome(population: Trainer, member: int, failure: str | None) -> Outcome:
    """Return the outcome of a member for its job's fold, and as `swapped` for the swapped fold."""
    flat, job, side = population.flat, population.jobs[member], population.side(member)
    final = flat.unflatten(flat.values[member].cpu(), flat.stats[member].cpu())
    final |= {name: tensor.cpu() for name, tensor in population.censors.member_state(member).items()}
    swapped = None
    if len(job.fold.test):
        twin = Job(job.setting, job.fold.swapped(), job.seed)
        swapped = _outcome_of_side(population, member, 1 - side, twin, final, failure, None)
    return _outcome_of_side(population, member, side, job, final, failure, swapped)


def _outcome_of_side(
    population: Trainer, member: int, side: int, job: Job, final: dict[str, Tensor], failure: str | None,
    swapped: Outcome | None,
) -> Outcome:  # fmt: skip
    shots, recordings = population.snapshots, population.prepared.windows.recordings
    confusion = shots.confusion[member, side].cpu()  # (2, C, C): on each held-out set
    validated, tested = confusion[side], confusion[1 - side]
    log_probs = shots.log_probs[member].flatten(0, 1)[: len(job.fold.validation) + len(job.fold.test)].cpu()
    first = job.fold.held_out[0]
    if first is not job.fold.validation:
        log_probs = log_probs.roll(-len(first), 0)
    history = shots.history[member, : population.epoch].cpu().double()
    columns = ("train_loss", "penalty", f"loss_{side}", f"score_{side}")
    scored = bool(tested.any())
    return Outcome(
        job=job,
        best_epoch=int(shots.epoch[member, side]),
        validation_score=_score(validated, job.fold.validation),
        test_score=_score(tested, job.fold.test),
        test_scores=_score_subjects(recordings, job.fold.test, log_probs[len(job.fold.validation) :]) if scored else {},
        validation_confusion=validated.long().numpy(),
        test_confusion=tested.long().numpy(),
        history={n: history[:, HISTORY_COLUMNS.index(c)].tolist() for n, c in zip(NAMES, columns, strict=True)},
        held_out_log_probs=log_probs.clone(),
        state=population.flat.unflatten(shots.values[member, side].cpu(), shots.stats[member, side].cpu()),
        final_state=final,
        population=population.size,
        epochs=population.epoch,
        seconds=population.seconds[member],
        failure=failure,
        swapped=swapped,
    )


def _score_subjects(recordings: Recordings, rows: NDArray[np.int64], log_probs: Tensor) -> dict[str, float]:
    """Return the balanced accuracy of each subject from log-probabilities (n, C); empty for one subject."""
    who, y, predicted = recordings.subject.numpy()[rows], recordings.y.numpy()[rows], log_probs.argmax(-1).numpy()
    subjects = np.unique(who)
    if len(subjects) < 2:
        return {}
    return {
        str(subject): balanced_accuracy_of(predicted[who == subject], y[who == subject], log_probs.shape[-1])
        for subject in subjects.tolist()
    }


def _score(confusion: Tensor, rows: NDArray[np.int64]) -> float:
    """Return the balanced accuracy; NaN without held-out rows, 0 if training failed before an evaluation."""
    return float(balanced_accuracy(confusion)) if len(rows) else math.nan
