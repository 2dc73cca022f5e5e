"""Networks that learn from a person's first labelled windows:
python -m benchmarks.fine_tuning DATA... --out fine_tuning.csv --seeds 1

What a person calibrates our model with (search/playback.py) is given to the published EEGNet instead: the same windows
of everybody are played, the first 1, 2, 5 and 10 of each class are labelled, those of other groups are scored.

    scratch      a network of the person alone: their labelled windows are all that it sees
    before       the network of everybody else, as it is
    fine_tuned   the same, all weights trained further on the labelled windows
    head_tuned   the same, its linear classifier alone trained further, on codes without dropout

The network of everybody else is the peer `eegnet` of benchmarks.deep, trained by the library: EEGNet-8,2 on channels
standardised by the training subjects, AdamW at 1e-3 with 128 windows a step, the epoch of lowest loss on the validation
subject, as many epochs as a run of the library has. The test person is no part of it.

The protocol was fixed before any of it was run, and nothing of it was tuned on these sets. 200 steps of AdamW with 64
windows each: a person's labelled windows in turn, shuffled anew whenever they are used up, so that fewer are repeated
and need no padding, which batch statistics would see. Rates: 1e-3 from scratch and for the head alone, the default of
Adam that EEGNet was published with (Lawhern et al. 2018); 1e-4 for all weights, a tenth of the rate that they were
trained with, as is usual since R-CNN (Girshick et al. 2014). Dropout stays .25, weight decay is torch's .01, and the
last weights are used: there is nobody to stop early by.

A network that is fine-tuned keeps the running statistics of its normalisation layers, in training and in use; their
scale and shift are weights like others. Statistics of a few windows are noise, and they would be of classes in equal
shares, which the windows to come need not have. Detectors are tuned with fixed statistics, too (He et al. 2016). A
network from scratch has no others than its own; its channels are standardised by the labelled windows.

All people and numbers of labels are one program, the member on axis 0. Rows that the CSV has are not computed again.
`seconds` is the time of the program divided by its members; for `before`, training on everybody else included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.folds import scorable
from autotransfer.gpu import using_kernels
from autotransfer.model.eegnet import temporal_kernel_for
from autotransfer.model.layers import BatchNorm
from autotransfer.person.calibration import LABELS
from autotransfer.randomness import fold_in, key_of
from autotransfer.search.labelled import groups_of, labelled_and_scored
from autotransfer.search.playback import windows_of_each
from autotransfer.training.metrics import balanced_accuracy_of
from autotransfer.training.packing import resolve_device

from .csv_rows import Known, Rows, append_missing, command
from .shallow import Task, task_of
from .stacked_peers import RATE, Ints, Population, Stack, Windows, cross_entropy, in_turn, room, usual_epochs

COLUMNS = ("dataset", "pipeline", "labels", "subject", "seed", "score", "seconds")
BATCH, STEPS = 64, 200


class Tuning(NamedTuple):
    """What is done with the labelled windows."""

    pooled: bool  # it begins with the network of everybody else
    rate: float
    steps: int = STEPS
    head_only: bool = False


TUNINGS = {
    "scratch": Tuning(pooled=False, rate=RATE),
    "before": Tuning(pooled=True, rate=0.0, steps=0),
    "fine_tuned": Tuning(pooled=True, rate=RATE / 10),
    "head_tuned": Tuning(pooled=True, rate=RATE, head_only=True),
}

State = Mapping[str, Tensor]  # of one network


# ---- windows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A person with some labelled windows."""

    task: Task  # of the fold that tests them
    labels: int  # windows of each class
    known: Ints  # (n,) rows of labelled windows
    y: Ints  # (n,) their classes
    left: Ints  # (m,) rows that are scored

    @property
    def subject(self) -> str:
        return str(self.task.fold.test_subject)


def labelled(y: Ints, rows: Ints, groups: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """Numbers of labels of each class that a person of these rows can give, with the labelled rows and those that are
    scored: as playback has them, in other groups. y: of all recordings; groups: (n,) of the rows."""
    classes = y[rows]
    for labels in LABELS:
        known, left = labelled_and_scored(classes, groups, labels, windows_of_each(classes))
        if len(np.unique(classes[left])) == len(np.unique(classes)):
            yield labels, rows[known], rows[left]


def members_of(recordings: at.Recordings, seed: int) -> list[Member]:
    y, folds = recordings.y.numpy(), at.leave_one_subject_out(recordings)
    tasks = [task_of(recordings, folds[person], seed) for person in scorable(recordings)]
    return [
        Member(task, labels, known, y[known], left)
        for task in tasks
        for labels, known, left in labelled(y, task.fold.test, groups_of(recordings, task.fold.test))
    ]


# ---- training --------------------------------------------------------------------------------------------------------


def pooled_setting(recordings: at.Recordings, epochs: int) -> at.Setting:
    """EEGNet as benchmarks.deep trains it."""
    kernel = min(temporal_kernel_for(recordings.sfreq), recordings.n_times)
    return at.Setting(standardise="train", temporal_kernel=kernel, lr=RATE, schedule="constant", max_epochs=epochs)


def pooled_networks(
    recordings: at.Recordings, folds: Sequence[at.Fold], seed: int, epochs: int, device: torch.device
) -> dict[str, State]:
    """By the test subject, who is not among the people that it learnt from."""
    setting = pooled_setting(recordings, epochs)
    outcomes = at.train(recordings, [at.Job(setting, fold, seed) for fold in folds], device)
    return {str(outcome.job.fold.test_subject): outcome.state for outcome in outcomes}


class Tuner(Stack):
    """Networks of members, each to be trained on its labelled windows. states: of the networks of everybody else that
    they begin with; None for new ones."""

    def __init__(self, windows: Windows, members: Sequence[Member], states: Sequence[State] | None) -> None:
        self.members, self.pooled = members, states is not None
        tasks, device = [member.task for member in members], windows.X.device
        population = Population(tasks)
        if states is None:
            standardisation = standardisation_of_labelled(windows, members)
        else:
            stacked = {name: torch.stack([state[name] for state in states]) for name in population.state_dict()}
            population.load_state_dict(stacked)
            standardisation = windows.standardisation(tasks)
        super().__init__(windows, tasks, population, standardisation, [member.left for member in members])
        longest = max(len(member.known) for member in members)
        self.known, self.y = (
            torch.from_numpy(np.stack([np.resize(values, longest) for values in of_members])).to(device)
            for of_members in ([member.known for member in members], [member.y for member in members])
        )  # (P, n); batches have no place behind the windows that a member has

    def train(self, tuning: Tuning) -> None:
        if not tuning.steps:
            return
        encoder, head = self.population.encoder, self.population.classifier
        trained = head if tuning.head_only else self.population
        optimiser = torch.optim.AdamW(trained.parameters(), lr=tuning.rate, fused=True)
        codes = self._codes() if tuning.head_only else None
        self.population.train()
        if self.pooled:
            for layer in encoder.modules():
                if isinstance(layer, BatchNorm):
                    layer.eval()
        for number, places in enumerate(self._batches(tuning.steps)):
            if codes is None:
                z = encoder(self.gathered(self.known.gather(1, places)), noise=fold_in(self.noise, number))
            else:
                z = codes.gather(1, places[..., None].expand(-1, -1, codes.shape[2]))
            optimiser.zero_grad()
            torch.autograd.backward(cross_entropy(head(z), self.y.gather(1, places)).sum())
            optimiser.step()

    def _batches(self, steps: int) -> Tensor:
        """(steps, P, B) places among a member's labelled windows, a function of the member alone."""
        drawn = []
        for member in self.members:
            draw = np.random.default_rng(key_of("tuning", member.task.seed, member.task.fold.key, member.labels))
            drawn.append(in_turn(np.arange(len(member.known)), steps * BATCH, draw).reshape(steps, BATCH))
        return torch.from_numpy(np.stack(drawn, 1)).to(self.known.device)

    @torch.no_grad()
    def _codes(self) -> Tensor:
        """(P, n, D) of the labelled windows, in use."""
        codes: Tensor = self.population.eval().encoder(self.gathered(self.known))
        return codes


def standardisation_of_labelled(windows: Windows, members: Sequence[Member]) -> tuple[Tensor, Tensor]:
    """Mean and spread of each member's labelled windows: two (P, 1, C, 1)."""
    labelled = [member.task.X[member.known].astype(np.float64) for member in members]
    spreads = [x.std((0, 2)) for x in labelled]
    return windows.column([x.mean((0, 2)) for x in labelled]), windows.column(
        [np.where(s > 0, s, 1.0) for s in spreads]
    )


# ---- the command -----------------------------------------------------------------------------------------------------


def evaluate(
    recordings: at.Recordings, *, seed: int, epochs: int, device: torch.device, skip: set[tuple[str, int, str, int]]
) -> Iterator[Rows]:
    """Rows of one population after the other: as many members at once as fit.

    skip: pipelines, numbers of labels, subjects and seeds that are known already.
    """
    members = members_of(recordings, seed)
    missing = {name: [m for m in members if (name, m.labels, m.subject, seed) not in skip] for name in TUNINGS}
    windows = Windows(recordings.X.numpy(), recordings.subject.numpy(), device)
    truth, most = recordings.y.numpy(), room(recordings, device)
    states: dict[str, State] = {}
    for name, tuning in TUNINGS.items():
        start = time.perf_counter()
        if tuning.pooled and not states:
            pooled = [member for other in TUNINGS if TUNINGS[other].pooled for member in missing[other]]
            folds = {member.subject: member.task.fold for member in pooled}
            states = pooled_networks(recordings, list(folds.values()), seed, epochs, device) if folds else {}
        share = (time.perf_counter() - start) / max(len(missing[name]), 1)
        for first in range(0, len(missing[name]), most):
            start, stack = time.perf_counter(), missing[name][first : first + most]
            tuner = Tuner(windows, stack, [states[member.subject] for member in stack] if tuning.pooled else None)
            tuner.train(tuning)
            predictions = tuner.predict()
            seconds = round(share + (time.perf_counter() - start) / len(stack), 3)
            rows = []
            for member, predicted in zip(stack, predictions, strict=True):
                score = round(balanced_accuracy_of(predicted, truth[member.left], recordings.n_classes), 6)
                rows.append((recordings.name, name, member.labels, member.subject, seed, score, seconds))
            yield rows


def measured(recordings: at.Recordings, options: argparse.Namespace, known: list[Known]) -> Iterator[Rows]:
    skip = {(row["pipeline"], int(row["labels"]), row["subject"], int(row["seed"])) for row in known}
    epochs, device = options.epochs or usual_epochs(recordings), resolve_device(options.device)
    for seed in range(options.seeds):
        yield from evaluate(recordings, seed=seed, epochs=epochs, device=device, skip=skip)


@using_kernels(wanted=True)
def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, measured, "dataset", "pipeline", "labels", "subject")


def main() -> None:
    run(command(__doc__, "fine_tuning.csv", "seeds", "epochs", "device").parse_args())


if __name__ == "__main__":
    main()
