"""Use a penalty in a PyTorch loop with two additional lines."""

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
    leakage = []
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
            accuracy = (head(z).argmax(1) == rec.y).float().mean()
            leakage.append(at.leakage(z, rec.subject).accuracy)
        print(f"strength {strength:g}, epoch {epoch}: accuracy {accuracy:.2f}, leakage {leakage[-1]:.2f}")
    axis.plot(leakage, "o-", label=f"strength {strength:g}, final accuracy {accuracy:.0%}")

axis.axhline(1 / rec.n_subjects, ls="--", color="grey", lw=1, label="chance")
axis.set(xlabel="epoch", ylabel="leakage: accuracy of the subject from z", ylim=(0, None))
axis.legend(frameon=False, fontsize=8)
figure.savefig("own_loop.svg")
