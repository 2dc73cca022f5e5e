"""
A penalty in Lightning
======================

Manual optimization is needed, because the critic has its own optimizer. This program is not run here
(``pip install lightning``).
"""

from __future__ import annotations

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

import autotransfer as at


class Censored(L.LightningModule):
    """Classifier with censored latent features z."""

    def __init__(self, rec: at.Recordings, method: str = "adversary", strength: float = 0.1) -> None:
        super().__init__()
        self.automatic_optimization = False  # because the critic has a second optimizer
        self.strength = strength
        self.encoder = at.EEGNet(rec.n_channels, rec.n_times, sfreq=rec.sfreq)
        self.head = torch.nn.Linear(self.encoder.latent_dim, rec.n_classes)
        self.censor = at.make_censor(
            method, "marginal", latent_dim=self.encoder.latent_dim, n_classes=rec.n_classes, n_subjects=rec.n_subjects
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x))

    def training_step(self, batch: list[torch.Tensor]) -> None:
        x, y, s = batch
        optimizers = self.optimizers()
        main, critic = optimizers if isinstance(optimizers, list) else (optimizers, None)
        z = self.encoder(x)
        loss = torch.nn.functional.cross_entropy(self.head(z), y) + self.strength * self.censor(z, y, s)
        main.zero_grad()
        self.manual_backward(loss)
        main.step()
        if critic is not None:
            critic.zero_grad()
            self.manual_backward(self.censor.critic_loss(z, y, s))
            critic.step()
        self.censor.after_step()
        self.log("loss", loss)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        model = [*self.encoder.parameters(), *self.head.parameters()]
        critics = list(self.censor.parameters())
        main = torch.optim.AdamW(model, lr=3e-3)
        return [main, torch.optim.AdamW(critics, lr=1e-2)] if critics else [main]


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    rec = at.synthetic(subject_shift=0.5, n_subjects=6)
    X = (rec.X - rec.X.mean(-1, keepdim=True)) / rec.X.std(-1, keepdim=True)
    known = rec.subject > 0  # the first subject is held out
    loader = DataLoader(TensorDataset(X[known], rec.y[known], rec.subject[known]), batch_size=80, shuffle=True)
    for method in ("mmd", "adversary"):
        model = Censored(rec, method)
        trainer = L.Trainer(
            max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(model, loader)
        model.eval()
        accuracy = (model(X[~known]).argmax(1) == rec.y[~known]).float().mean()
        leakage = at.leakage(model.encoder(X[known]), rec.subject[known])
        print(f"{method}: accuracy {accuracy:.2f} on the unseen subject; {leakage}")
