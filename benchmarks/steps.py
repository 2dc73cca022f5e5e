"""Build optimizer steps for timing: EEGNet in a torch loop, EEGNet in skorch, and a population."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from tests.plain_eegnet import PlainEEGNet
from torch import Tensor, nn

import autotransfer as at

from .timing import Step

SUBJECTS, CLASSES = 10, 4
KERNEL = 64  # samples: half a second at 128 Hz


class Network(nn.Module):
    """EEGNet of torch layers with a linear classifier: x (B, C, T) -> logits (B, K)."""

    def __init__(self, n_channels: int, n_times: int, n_classes: int, kernel: int) -> None:
        super().__init__()
        self.encoder = PlainEEGNet(n_channels, n_times, kernel)
        with torch.no_grad():
            width = self.encoder.eval()(torch.zeros(1, n_channels, n_times)).shape[1]
        self.encoder.train()
        self.classifier = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.encoder(x))
        return logits


def make_noise(
    channels: int | list[str], times: int, batch: int, *, subjects: int = SUBJECTS, classes: int = CLASSES,
    steps: int = 1, sfreq: float = 128.0,
) -> at.Recordings:  # fmt: skip
    """Return noise with all classes of every subject, enough for `steps` batches of a fold."""
    names = channels if isinstance(channels, list) else None
    width = channels if isinstance(channels, int) else len(channels)
    per_subject = -(-batch * steps // (subjects - 2) // classes) * classes
    n = per_subject * subjects
    X = np.random.default_rng(0).standard_normal((n, width, times)).astype(np.float32)
    return at.Recordings(X, np.arange(n) % classes, np.arange(n) // per_subject, channels=names, sfreq=sfreq)


def build_plain_step(channels: int, times: int, batch: int, device: str) -> Step:
    """Return a step of a torch loop: forward, backward and AdamW on one batch."""
    net = Network(channels, times, CLASSES, KERNEL).to(device)
    x, y = torch.randn(batch, channels, times, device=device), torch.randint(CLASSES, (batch,), device=device)
    optimizer = torch.optim.AdamW(net.parameters())

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(net(x), y))
        optimizer.step()

    return Step(step)


def build_skorch_step(channels: int, times: int, batch: int, device: str) -> Step | None:
    """Return a step of skorch, `partial_fit` on one batch; None if skorch is not installed."""
    if find_spec("skorch") is None:
        return None
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(
        Network(channels, times, CLASSES, KERNEL), criterion=nn.CrossEntropyLoss, optimizer=torch.optim.AdamW,
        train_split=None, max_epochs=1, batch_size=batch, verbose=0, device=device, classes=list(range(CLASSES)),
    ).initialize()  # fmt: skip
    generator = np.random.default_rng(0)
    X = generator.standard_normal((batch, channels, times)).astype(np.float32)
    y = np.arange(batch) % CLASSES
    return Step(lambda: net.partial_fit(X, y))


def make_jobs(recordings: at.Recordings, setting: at.Setting, members: int, *, alone: bool) -> list[at.Job]:
    """Return jobs with different learning rates or, if `alone`, with different seeds and thus minibatches."""
    folds = at.leave_one_subject_out(recordings)
    jobs = []
    for member in range(members):
        variant, fold = divmod(member, len(folds))
        changed = setting.replace(lr=setting.training.lr * (1 + variant / 1000))
        jobs.append(at.Job(setting if alone else changed, folds[fold], seed=variant if alone else 0))
    return jobs


def build_population_step(
    recordings: at.Recordings, setting: at.Setting, members: int, device: str, *, alone: bool = False
) -> Step:
    """Return a step that trains a population for one epoch without evaluation."""
    from autotransfer.training.trainer import Trainer
    from autotransfer.training.windows import prepare_windows

    jobs = make_jobs(recordings, setting, members, alone=alone)
    windows = prepare_windows(recordings, jobs[0], device=torch.device(device), dtype=torch.float32)
    population = Trainer(jobs, windows)
    population.uses_kernels = True  # long fits use kernels
    units = sum(count_steps(job) for job in jobs)
    assert units == sum(
        population.groups.steps_per_epoch[group] for group in population.groups.group_of_member.tolist()
    )
    return Step(population.train_epoch, units, keeps_memory=device == "cpu")


def count_steps(job: at.Job) -> int:
    """Return the number of optimizer steps in an epoch of a job."""
    return max(len(job.fold.train) // job.setting.training.batch_size, 1)


def has_room(recordings: at.Recordings, setting: at.Setting, members: int, device: str) -> bool:
    """Return whether a population of this size is expected to fit into memory."""
    from autotransfer.training.packing import free_memory, member_bytes

    job = make_jobs(recordings, setting, 1, alone=False)[0]
    return members * member_bytes(recordings, job, torch.float32) < 0.7 * free_memory(torch.device(device))
