"""Use a penalty in a plain PyTorch loop, with two additional lines."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch

import autotransfer as at

rec = at.synthetic(subject_shift=0.5)
X = (rec.X - rec.X.mean(-1, keepdim=True)) / rec.X.std(-1, keepdim=True)
figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")

for strength in (0.0, 3.0):
    torch.manual_seed(0)
    encoder = at.EEGNet(rec.n_channels, rec.n_times, sfreq=rec.sfreq)
    head = torch.nn.Linear(encoder.latent_dim, rec.n_classes)
    censor = at.make_censor(
        "pairwise_mmd", "conditional", latent_dim=encoder.latent_dim, n_classes=rec.n_classes, n_subjects=rec.n_subjects
    )
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=3e-3)
    read = []
    for epoch in range(8):
        encoder.train()
        for rows in torch.randperm(rec.n_windows).split(96):
            y, s = rec.y[rows], rec.subject[rows]
            z = encoder(X[rows])
            loss = torch.nn.functional.cross_entropy(head(z), y) + strength * censor(z, y, s)  # ← the penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            censor.after_step()  # ← once per step
        encoder.eval()
        with torch.no_grad():
            z = encoder(X)
            right = (head(z).argmax(1) == rec.y).float().mean()
            read.append(at.leakage(z, rec.subject).accuracy)
        print(f"strength {strength:g}, epoch {epoch}: {right:.2f} right, person read with {read[-1]:.2f}")
    axis.plot(read, "o-", label=f"strength {strength:g}, classes {right:.0%} right at the end")

axis.axhline(1 / rec.n_subjects, ls="--", color="grey", lw=1, label="chance")
axis.set(xlabel="epoch", ylabel="how well the person is read from z", ylim=(0, None))
axis.legend(frameon=False, fontsize=8)
figure.savefig("own_loop.svg")
