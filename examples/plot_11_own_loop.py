"""
A penalty in your own training loop
===================================

A censor maps the latent features of any network, the classes and the subjects to a penalty, which you add to
your loss. A plain PyTorch loop needs two more lines.
"""

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
    for _ in range(6):
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
    print(f"strength {strength:g}: accuracy on training windows {accuracy:.2f}, leakage {leakage[-1]:.2f}")
    axis.plot(leakage, "o-", label=f"strength {strength:g}")

axis.axhline(1 / rec.n_subjects, ls="--", color="grey", lw=1, label="chance")
axis.set(xlabel="epoch", ylabel="leakage: accuracy of the subject", ylim=(0, None))
axis.legend(frameon=False, fontsize=8)

# %%
# A batch needs at least two, better four, windows of each subject; in ``conditional`` mode of each subject and
# class. Groups with one window are ignored. Windows without a known subject get ``s = -1``.
#
# The methods ``adversary`` and ``began`` have a critic with its own optimizer. ``critic_loss`` is None for
# other methods, so one loop works for all of them.

censor = at.make_censor("adversary", "marginal", latent_dim=encoder.latent_dim, n_classes=2, n_subjects=rec.n_subjects)
critic_optimizer = torch.optim.AdamW(censor.parameters(), lr=1e-2)
critic_loss = censor.critic_loss(z, rec.y, rec.subject)  # z gets no gradient from it
critic_optimizer.zero_grad()
critic_loss.backward()
critic_optimizer.step()
censor.after_step()
