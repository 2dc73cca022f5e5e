"""Censoring in a plain PyTorch loop: two additional lines."""

from __future__ import annotations

import torch

import autotransfer as at

rec = at.synthetic(subject_shift=0.5)
X = (rec.X - rec.X.mean(-1, keepdim=True)) / rec.X.std(-1, keepdim=True)
encoder = at.EEGNet(rec.n_channels, rec.n_times, sfreq=rec.sfreq)
head = torch.nn.Linear(encoder.latent_dim, rec.n_classes)
censor = at.make_censor(
    "pairwise_mmd", "conditional", latent_dim=encoder.latent_dim, n_classes=rec.n_classes, n_subjects=rec.n_subjects
)
optimiser = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-3)

for epoch in range(5):
    for rows in torch.randperm(rec.n_trials).split(96):
        y, s = rec.y[rows], rec.subject[rows]
        z = encoder(X[rows])
        loss = torch.nn.functional.cross_entropy(head(z), y) + 1.0 * censor(z, y, s)  # ← the penalty
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        censor.after_step()  # ← once per step
    print(f"epoch {epoch}: loss {loss.item():.3f}")

encoder.eval()
print(at.leakage(encoder(X), rec.subject))
