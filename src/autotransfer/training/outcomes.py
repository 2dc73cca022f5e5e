"""Outcomes of the members of a population: one outcome for each of the two checkpoints of a member."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..jobs import CURVES, Job, Outcome
from ..recordings import Recordings
from .evaluation import HISTORY_COLUMNS
from .metrics import balanced_accuracy, balanced_accuracy_of
from .trainer import Trainer


def make_outcome(population: Trainer, member: int, failure: str | None) -> Outcome:
    """Return the outcome of a member for the fold of its job, with the outcome for the swapped fold as `swapped`."""
    flat, job, validation_index = population.flat, population.jobs[member], population.validation_index(member)
    final = flat.unflatten(flat.values[member].cpu(), flat.stats[member].cpu())
    final |= {name: tensor.cpu() for name, tensor in population.censors.member_state(member).items()}
    swapped = None
    if len(job.fold.test):
        swapped_job = Job(job.setting, job.fold.swapped(), job.seed)
        swapped = _make_outcome_of_set(population, member, 1 - validation_index, swapped_job, final, failure, None)
    return _make_outcome_of_set(population, member, validation_index, job, final, failure, swapped)


def _make_outcome_of_set(
    population: Trainer, member: int, validation_index: int, job: Job, final: dict[str, Tensor], failure: str | None,
    swapped: Outcome | None,
) -> Outcome:  # fmt: skip
    checkpoints, recordings = population.checkpoints, population.prepared.windows.recordings
    selected = member, validation_index  # index of the checkpoint
    confusion = checkpoints.confusion[selected].cpu()  # (2, C, C): on each held-out set
    validation_confusion, test_confusion = confusion[validation_index], confusion[1 - validation_index]
    log_probs = checkpoints.log_probs[member].flatten(0, 1)[: len(job.fold.validation) + len(job.fold.test)].cpu()
    first = job.fold.held_out[0]
    if first is not job.fold.validation:
        log_probs = log_probs.roll(-len(first), 0)
    history = checkpoints.history[member, : population.epoch].cpu().double()
    columns = ("train_loss", "penalty", f"loss_{validation_index}", f"score_{validation_index}")
    curves = [history[:, HISTORY_COLUMNS.index(column)].tolist() for column in columns]
    test_log_probs = log_probs[len(job.fold.validation) :]
    test_scores = _score_subjects(recordings, job.fold.test, test_log_probs) if test_confusion.any() else {}
    return Outcome(
        job=job,
        best_epoch=int(checkpoints.epoch[selected]),
        validation_score=_score(validation_confusion, job.fold.validation),
        test_score=_score(test_confusion, job.fold.test),
        test_scores=test_scores,
        validation_confusion=validation_confusion.long().numpy(),
        test_confusion=test_confusion.long().numpy(),
        history=dict(zip(CURVES, curves, strict=True)),
        held_out_log_probs=log_probs.clone(),
        state=population.flat.unflatten(checkpoints.values[selected].cpu(), checkpoints.stats[selected].cpu()),
        final_state=final,
        population=population.size,
        epochs=population.epoch,
        seconds=population.seconds[member],
        failure=failure,
        swapped=swapped,
    )


def _score_subjects(recordings: Recordings, rows: NDArray[np.int64], log_probs: Tensor) -> dict[str, float]:
    """Return balanced accuracies by subject from log-probabilities (n, C); an empty dict for one subject."""
    subject, y, predicted = recordings.subject.numpy()[rows], recordings.y.numpy()[rows], log_probs.argmax(-1).numpy()
    masks = {str(name): subject == name for name in np.unique(subject).tolist()}
    if len(masks) < 2:
        return {}
    n_classes = log_probs.shape[-1]
    return {name: balanced_accuracy_of(predicted[mask], y[mask], n_classes) for name, mask in masks.items()}


def _score(confusion: Tensor, rows: NDArray[np.int64]) -> float:
    """Return the balanced accuracy; NaN without held-out rows, 0 if training failed before an evaluation."""
    return float(balanced_accuracy(confusion)) if len(rows) else math.nan
