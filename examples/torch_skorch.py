"""
A penalty in skorch
===================

The subject is part of X, in a ``SliceDict``, so that scikit-learn's splitters split both. This program is not run here
(``pip install skorch``).
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
from skorch import NeuralNetClassifier
from skorch.helper import SliceDict

import autotransfer as at


class Module(torch.nn.Module):
    """Network that returns logits, and latent features z for the penalty."""

    def __init__(self, n_channels: int, n_times: int, n_classes: int) -> None:
        super().__init__()
        self.encoder = at.EEGNet(n_channels, n_times)
        self.head = torch.nn.Linear(self.encoder.latent_dim, n_classes)

    def forward(self, x: torch.Tensor, subject: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.encoder(x)
        return self.head(z), z


class CensoredNet(NeuralNetClassifier):
    """Classifier with a censoring penalty. MMD needs no second optimizer, because it has no critic."""

    def __init__(self, *args: Any, strength: float = 1.0, n_subjects: int = 2, **kwargs: Any) -> None:
        self.strength, self.n_subjects = strength, n_subjects
        super().__init__(*args, **kwargs)

    def initialize_module(self) -> CensoredNet:
        super().initialize_module()
        module = self.module_
        self.censor_ = at.make_censor(
            "mmd", "conditional", latent_dim=module.encoder.latent_dim, n_classes=module.head.out_features,
            n_subjects=self.n_subjects,
        ).to(self.device)  # fmt: skip
        return self

    def get_loss(self, y_pred: Any, y_true: torch.Tensor, X: Any = None, training: bool = False) -> torch.Tensor:
        logits, z = y_pred
        loss = super().get_loss(logits, y_true, X, training)
        return loss + self.strength * self.censor_(z, y_true, X["subject"]) if training else loss

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        super().on_batch_end(net, batch=batch, training=training, **kwargs)
        if training:
            self.censor_.after_step()


if __name__ == "__main__":
    torch.manual_seed(0)
    rec = at.synthetic(subject_shift=0.5, n_subjects=6)
    X = (rec.X - rec.X.mean(-1, keepdim=True)) / rec.X.std(-1, keepdim=True)
    subjects = rec.subject.numpy()
    net = CensoredNet(
        Module, module__n_channels=rec.n_channels, module__n_times=rec.n_times, module__n_classes=rec.n_classes,
        criterion=torch.nn.CrossEntropyLoss, n_subjects=rec.n_subjects, strength=1.0, max_epochs=5, batch_size=80,
        lr=0.01, optimizer=torch.optim.AdamW, iterator_train__shuffle=True, train_split=None, verbose=0,
    )  # fmt: skip
    data = SliceDict(x=X.numpy(), subject=subjects)
    scores = cross_val_score(net, data, rec.y.numpy(), groups=subjects, cv=LeaveOneGroupOut())
    print("accuracy of each unseen subject:", scores.round(2))
