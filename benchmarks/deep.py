"""Network peers: a plain Conv2d EEGNet in skorch, and SKADA's DANN and DeepCORAL around the same network.

Channels are standardised with the training subjects' statistics. EEGNet keeps the epoch of lowest loss on the
validation subject. SKADA's deep methods compare source with target: every known subject is a source domain of its own,
the test subject's unlabelled windows are the target, so these two are transductive; they train for all epochs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.plain_eegnet import PlainEEGNet
from torch import Tensor, nn

from .shallow import Task

BATCH, RATE = 128, 1e-3
EPOCHS = 100  # unless others are asked for
TARGET = -2  # SKADA tells target domains by a negative number


class Network(nn.Module):
    """EEGNet and a linear classifier; x (B, C, T) -> logits (B, K)."""

    def __init__(self, n_channels: int, n_times: int, n_classes: int, kernel: int) -> None:
        super().__init__()
        self.encoder = PlainEEGNet(n_channels, n_times, kernel, dropout=0.25)
        with torch.no_grad():
            self.width = self.encoder.eval()(torch.zeros(1, n_channels, n_times)).shape[1]
        self.encoder.train()
        self.classifier = nn.Linear(self.width, n_classes)

    def forward(self, X: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """sample_weight: SKADA passes it, unused here."""
        logits: Tensor = self.classifier(self.encoder(X))
        return logits


def network_of(task: Task) -> Network:
    torch.manual_seed(task.seed)
    _, channels, times = task.X.shape
    half_a_second = 64 if task.sfreq is None else round(task.sfreq / 2)
    return Network(channels, times, task.n_classes, min(max(half_a_second, 3), 64, times))


def standardised(task: Task) -> NDArray[np.float32]:
    known = task.X[task.fold.train]
    mean, spread = known.mean((0, 2), keepdims=True), known.std((0, 2), keepdims=True)
    return np.asarray((task.X - mean) / np.where(spread > 0, spread, 1.0), dtype=np.float32)


def eegnet(task: Task, epochs: int, device: str) -> Iterator[tuple[str, Any]]:
    from skorch import NeuralNetClassifier
    from skorch.callbacks import EarlyStopping
    from skorch.dataset import Dataset
    from skorch.helper import predefined_split

    X, fold = standardised(task), task.fold
    net = NeuralNetClassifier(
        network_of(task), criterion=nn.CrossEntropyLoss, optimizer=torch.optim.AdamW, lr=RATE, batch_size=BATCH,
        max_epochs=epochs, iterator_train__shuffle=True, verbose=0, device=device,
        callbacks=[EarlyStopping(patience=epochs, threshold=0.0, load_best=True)],  # all epochs, then the best weights
        train_split=predefined_split(Dataset(X[fold.validation], task.y[fold.validation])),
    )  # fmt: skip
    net.fit(X[fold.train], task.y[fold.train])
    yield "eegnet", net.predict(X[fold.test])


def dann(task: Task, epochs: int, device: str) -> Iterator[tuple[str, Any]]:
    from skada.deep import DANN

    network = network_of(task)
    yield "dann_skada", _adapted(DANN, task, epochs, device, module=network, num_features=network.width)


def coral(task: Task, epochs: int, device: str) -> Iterator[tuple[str, Any]]:
    from skada.deep import DeepCoral

    yield "coral_skada", _adapted(DeepCoral, task, epochs, device, module=network_of(task))


def _adapted(make: Any, task: Task, epochs: int, device: str, **options: Any) -> NDArray[np.int64]:
    """Train with everybody's windows, the test subject's without labels."""
    X = standardised(task)
    net = make(
        layer_name="encoder", optimizer=torch.optim.AdamW, lr=RATE, batch_size=BATCH, max_epochs=epochs, reg=1.0,
        train_split=None, verbose=0, device=device, **options,
    )  # fmt: skip
    domain = np.where(task.y < 0, TARGET, task.subject + 1)  # subjects as domains; 0 would have no sign
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.fit(X, task.y, sample_domain=domain)
        return np.asarray(net.predict(X[task.test], sample_domain=domain[task.test], allow_source=True))
