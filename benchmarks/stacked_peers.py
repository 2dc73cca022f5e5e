"""DANN and DeepCORAL for every fold and seed of a data set at once:
python -m benchmarks.peers DATA... --out peers.csv --peers dann coral --seeds 3 --device auto

The methods are SKADA's, with its defaults, as in benchmarks.deep: unsupervised domain adaptation from everybody else
(source) to the test subject's unlabelled windows (target), so transductive. P trainings are one program, the member on
axis 0, around our stacked EEGNet. Neither SKADA nor skorch has to be installed.

A step sees 128 source and 128 target windows as one batch, which normalisation layers see as one too. An epoch has as
many full batches as the larger side; the smaller side is shuffled anew whenever it is used up. The loss is the
cross-entropy of the source windows plus the adaptation term of both halves. All epochs are trained and the last weights
are used.

Two things differ from SKADA 0.6. Its DANN (`dann_skada`) ends in a softmax over one output, which
is 1 whatever the input, so that no gradient comes from the domains; `dann` has the sigmoid of the published method in
its place. And where both sides have fewer than 128 windows SKADA takes no step at all; here an epoch has one, with
windows repeated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import autotransfer as at
from autotransfer.model.eegnet import EEGNet, EEGNetOptions, temporal_kernel_for
from autotransfer.model.layers import BatchNorm, Linear
from autotransfer.model.stack import Size
from autotransfer.randomness import as_keys, fold_in, key_of
from autotransfer.runs.options import RunOptions, resolved
from autotransfer.training.metrics import balanced_accuracy_of
from autotransfer.training.packing import SHARE, free_memory, resolve_device

from .csv_rows import Rows
from .shallow import Array, Task, task_of

BATCH, RATE = 128, 1e-3
HIDDEN = 100  # units of the domain classifier
MOST = 128  # trainings at once
BLOCK = 64  # steps whose rows are sent to the device together

Ints = NDArray[np.int64]


# ---- adaptation terms ------------------------------------------------------------------------------------------------


def coral_distance(source: Tensor, target: Tensor) -> Tensor:
    """Squared Frobenius distance of the covariances over 4 D²: codes (P, B, D) twice -> (P,)."""
    gap = _covariance(source) - _covariance(target)
    return gap.square().sum((1, 2)) / (4 * source.shape[2] ** 2)


def _covariance(z: Tensor) -> Tensor:
    """(P, B, D) -> (P, D, D), unbiased."""
    centred = z - z.mean(1, keepdim=True)
    return centred.transpose(1, 2) @ centred / (z.shape[1] - 1)


def reversed_gradient(z: Tensor) -> Tensor:
    """z itself (doubling is exact), its gradient with the other sign."""
    return 2 * z.detach() - z


class Coral(nn.Module):
    """DeepCORAL (Sun and Saenko 2016)."""

    def __init__(self, members: int, width: int, seeds: Sequence[int]) -> None:
        super().__init__()

    def forward(self, z: Tensor) -> Tensor:
        """Codes (P, 2B, D), source first -> (P,)."""
        return coral_distance(*z.chunk(2, 1))


class Dann(nn.Module):
    """DANN (Ganin et al. 2016): a domain classifier learns from codes that learn against it, with equal weight from
    the first step to the last, as in SKADA."""

    def __init__(self, members: int, width: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.hidden = Linear(members, width, HIDDEN, seeds=[key_of("hidden", seed) for seed in seeds])
        self.norm = BatchNorm(members, HIDDEN)
        self.out = Linear(members, HIDDEN, 1, seeds=[key_of("out", seed) for seed in seeds])

    def forward(self, z: Tensor) -> Tensor:
        """Codes (P, 2B, D), source first -> (P,)."""
        return self.domain_loss(reversed_gradient(z))

    def domain_loss(self, z: Tensor) -> Tensor:
        """Binary cross-entropy of the source half, which is 0, plus that of the target half, which is 1."""
        hidden = self.norm(self.hidden(z).transpose(1, 2).contiguous()).relu()
        source, target = self.out(hidden.transpose(1, 2))[..., 0].chunk(2, 1)
        return F.softplus(source).mean(1) + F.softplus(-target).mean(1)


METHODS = {"dann": Dann, "coral": Coral}


# ---- data ------------------------------------------------------------------------------------------------------------


class Windows:
    """All windows of a data set on a device, standardised for each member as they are gathered."""

    def __init__(self, X: Array, subject: Ints, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.X = torch.from_numpy(X).to(device, dtype)  # (N, C, T)
        self.subject = subject
        by_subject = [X[subject == s].astype(np.float64) for s in range(subject.max() + 1)]
        self.means = np.stack([x.mean((0, 2)) for x in by_subject])  # (subjects, C)
        self.variances = np.stack([x.var((0, 2)) for x in by_subject])

    def standardisation(self, tasks: Sequence[Task]) -> tuple[Tensor, Tensor]:
        """Mean and spread of each member's training subjects: two (P, 1, C, 1). Pooled from those of the subjects,
        as folds share most of them."""
        size = np.bincount(self.subject)
        mean, spread = [], []
        for task in tasks:
            trained = np.unique(self.subject[task.fold.train])
            share = size[trained, None] / size[trained].sum()
            centre = (share * self.means[trained]).sum(0)
            variance = (share * (self.variances[trained] + (self.means[trained] - centre) ** 2)).sum(0)
            mean.append(centre)
            spread.append(np.where(variance > 0, np.sqrt(variance), 1.0))
        return self.column(mean), self.column(spread)

    def column(self, values: Sequence[Array]) -> Tensor:
        """A number for each channel, of each member: P times (C,) -> (P, 1, C, 1)."""
        return torch.from_numpy(np.stack(values)).to(self.X)[:, None, :, None]

    def gathered(self, rows: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        """Standardised windows of rows (P, B): (P, B, C, T), stored channel-major as the encoder likes them."""
        x = self.X[rows]
        return x.transpose(1, 2).contiguous().transpose(1, 2).sub_(mean).div_(spread)


def in_turn(rows: Ints, n: int, generator: np.random.Generator) -> Ints:
    """(n,) of these rows, shuffled, and shuffled anew whenever they are used up."""
    rounds = -(-n // len(rows))
    return np.concatenate([generator.permutation(rows) for _ in range(rounds)])[:n]


class Batches:
    """The endless minibatches of one member, a function of its fold and seed alone."""

    def __init__(self, task: Task, batch: int = BATCH) -> None:
        self.sides, self.batch = (task.known, task.test), batch
        self.steps = max(1, *(len(rows) // batch for rows in self.sides))  # of an epoch
        self.generator = np.random.default_rng(key_of("batches", task.seed, task.fold.key))
        self.waiting = np.empty((0, 2 * batch), np.int64)

    def take(self, n: int) -> Ints:
        """Rows (n, 2B) of the next steps, source first."""
        epochs = -(-max(n - len(self.waiting), 0) // self.steps)
        ready = np.concatenate([self.waiting, *(self._epoch() for _ in range(epochs))])
        self.waiting = ready[n:]
        return ready[:n]

    def _epoch(self) -> Ints:
        halves = [in_turn(rows, self.steps * self.batch, self.generator) for rows in self.sides]
        return np.concatenate([half.reshape(self.steps, self.batch) for half in halves], 1)


# ---- training --------------------------------------------------------------------------------------------------------


class Population(nn.Module):
    """P networks with their classifiers and adaptation terms, for tasks of one data set."""

    def __init__(self, tasks: Sequence[Task], method: str | None = None) -> None:
        """method: None for no adaptation term."""
        super().__init__()
        _, channels, times = tasks[0].X.shape
        members, kernel = len(tasks), min(temporal_kernel_for(tasks[0].sfreq), times)
        self.encoder = EEGNet(channels, times, members, temporal_kernel=kernel, seeds=keys_of("encoder", tasks))
        width = self.encoder.latent_dim
        self.classifier = Linear(members, width, tasks[0].n_classes, seeds=keys_of("classifier", tasks))
        self.term = None if method is None else METHODS[method](members, width, keys_of("term", tasks))

    def losses(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """x (P, 2B, C, T), source first; y (P, B) of the source; noise (P,) keys of dropout -> (P,)."""
        z = self.encoder(x, noise=noise)
        loss = cross_entropy(self.classifier(z[:, : y.shape[1]]), y)
        return loss if self.term is None else loss + self.term(z)

    def forward(self, x: Tensor) -> Tensor:
        """(P, B, C, T) -> logits (P, B, K)."""
        logits: Tensor = self.classifier(self.encoder(x))
        return logits


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Each member's mean: logits (P, B, K), classes (P, B) -> (P,)."""
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).mean(1)


def keys_of(role: str, tasks: Sequence[Task]) -> list[int]:
    return [key_of(role, task.seed, task.fold.key) for task in tasks]


class Stack:
    """A population on windows of its tasks' data set, as each member sees them.

    standardisation: means and spreads. scored: rows (n,) whose classes each member predicts.
    """

    def __init__(
        self, windows: Windows, tasks: Sequence[Task], population: Population, standardisation: tuple[Tensor, Tensor],
        scored: Sequence[Ints],
    ) -> None:  # fmt: skip
        self.windows, self.scored = windows, scored
        self.population = population.to(windows.X.device, windows.X.dtype)
        self.mean, self.spread = standardisation
        self.noise = as_keys(keys_of("dropout", tasks), windows.X.device)

    def gathered(self, rows: Tensor) -> Tensor:
        """Windows of rows (P, B) as each member sees them."""
        return self.windows.gathered(rows, self.mean, self.spread)

    @torch.no_grad()
    def predict(self) -> list[Ints]:
        """The classes (n,) that each member predicts for the rows that are scored."""
        self.population.eval()
        longest = max(map(len, self.scored))
        rows = torch.from_numpy(np.stack([np.resize(member, longest) for member in self.scored])).to(self.noise.device)
        logits = [self.population(self.gathered(part)) for part in torch.split(rows, 2 * BATCH, 1)]
        classes = torch.cat([part.argmax(-1) for part in logits], 1).cpu().numpy()
        return [predicted[: len(member)] for predicted, member in zip(classes, self.scored, strict=True)]


class Trainer(Stack):
    """Trains one population."""

    def __init__(self, windows: Windows, tasks: Sequence[Task], method: str) -> None:
        scored = [task.test for task in tasks]
        super().__init__(windows, tasks, Population(tasks, method), windows.standardisation(tasks), scored)
        self.optimiser = torch.optim.AdamW(self.population.parameters(), lr=RATE, fused=True)
        y = torch.from_numpy(np.stack([task.y for task in tasks]))
        self.y = y.to(windows.X.device)  # (P, N), -1 for the test subject
        self.batches = [Batches(task) for task in tasks]

    def step(self, rows: Tensor, number: int) -> None:
        """rows: (P, 2B), source first."""
        y = self.y.gather(1, rows[:, : rows.shape[1] // 2])
        self.optimiser.zero_grad()
        losses = self.population.losses(self.gathered(rows), y, fold_in(self.noise, number))
        torch.autograd.backward(losses.sum())
        self.optimiser.step()

    def train(self, epochs: int) -> None:
        """Members with fewer batches in an epoch are over earlier: their weights are kept then, and what they train
        on with the others is dropped."""
        lengths = np.array([epochs * batches.steps for batches in self.batches])
        state = self.population.state_dict()
        final = {name: value.clone() for name, value in state.items()}
        self.population.train()
        for number in range(lengths.max()):
            if number % BLOCK == 0:
                block = np.stack([batches.take(BLOCK) for batches in self.batches], 1)
                sent = torch.from_numpy(block).to(self.noise.device)  # (steps, P, 2B)
            self.step(sent[number % BLOCK], number)
            if (over := np.flatnonzero(lengths == number + 1)).size:
                members = torch.from_numpy(over).to(self.noise.device)
                for name, value in state.items():
                    final[name][members] = value[members]
        self.population.load_state_dict(final)


# ---- scores ----------------------------------------------------------------------------------------------------------


def usual_epochs(recordings: at.Recordings) -> int:
    """What a run of the library gives these recordings."""
    return resolved(RunOptions(source=recordings.name), recordings).max_epochs


def room(recordings: at.Recordings, device: torch.device) -> int:
    """How many trainings fit into the free memory, at least 1."""
    size = Size(recordings.n_channels, recordings.n_times, recordings.n_classes, recordings.sfreq)
    batch = 2 * BATCH
    gathered = 4 * 5 * batch * size.channels * size.times  # windows and copies of them, for a while
    training = EEGNetOptions().member_bytes(size, batch, 4) + gathered
    return max(1, int(SHARE * free_memory(device)) // training)


def evaluate(
    recordings: at.Recordings, method: str, *, seeds: int, epochs: int | None, device: str, skip: set[tuple[str, int]]
) -> Iterator[Rows]:
    """Rows of one population after the other. `seconds` is the population's time divided by its members.

    epochs: None for as many as a run of the library has. skip: subjects and seeds that are known already.
    """
    folds = at.leave_one_subject_out(recordings)
    missing = [(fold, seed) for seed in range(seeds) for fold in folds if (str(fold.test_subject), seed) not in skip]
    if not missing:
        return
    tasks = [task_of(recordings, fold, seed) for fold, seed in missing]
    tasks.sort(key=lambda task: Batches(task).steps)  # so that the members of a population end at about the same time
    windows = Windows(recordings.X.numpy(), recordings.subject.numpy(), resolve_device(device))
    truth, most = recordings.y.numpy(), min(MOST, room(recordings, windows.X.device))
    for first in range(0, len(tasks), most):
        stack = tasks[first : first + most]
        start = time.perf_counter()
        trainer = Trainer(windows, stack, method)
        trainer.train(epochs or usual_epochs(recordings))
        predictions = trainer.predict()
        seconds = round((time.perf_counter() - start) / len(stack), 2)
        rows = []
        for task, predicted in zip(stack, predictions, strict=True):
            score = round(balanced_accuracy_of(predicted, truth[task.test], recordings.n_classes), 6)
            rows.append((recordings.name, method, str(task.fold.test_subject), task.seed, score, seconds))
        yield rows
