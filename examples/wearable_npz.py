"""Train and evaluate an ensemble on wrist-sensor recordings in a .npz file, and plot the score of every subject."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import autotransfer as at

# Six subjects wave or turn the wrist. Orientation of the sensor and tempo differ between subjects.
rng = np.random.default_rng(0)
time = np.arange(64) / 32
X, y, subjects = [], [], []
for number in range(6):
    orientation = np.linalg.qr(np.eye(3) + 0.5 * rng.standard_normal((3, 3)))[0]
    tempo = rng.uniform(0.8, 1.2)
    for n in range(40):
        beat = 2 * np.pi * (tempo * (1.5 + n % 2) * time + rng.random())
        motion = np.stack([np.sin(beat), (n % 2) * np.cos(beat), 0.3 * np.sin(2 * beat)])
        X.append(orientation @ motion + 1.5 * rng.standard_normal((3, 64)))
        y.append(("wave", "turn")[n % 2])
        subjects.append(f"P{number + 1}")
meta = '{"sfreq": 32, "channels": ["x", "y", "z"]}'
np.savez("wrist.npz", X=np.array(X, np.float32), y=y, subject=subjects, meta=meta)

rec = at.load("wrist.npz")
print(rec)
auto = at.AutoTransferClassifier(max_epochs=8, seeds=1, sfreq=rec.sfreq, options={"batch_size": 32, "lr": 1e-2})
auto.fit(rec.X.numpy(), np.array(y), subjects=np.array(subjects))

choice = auto.choice_
name, baseline = max(choice["baselines"].items(), key=lambda item: np.mean(list(item[1].values())))
rows = {name: baseline, "ensemble": choice["nested_test_scores"]}
figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for (label, scores), mark in zip(rows.items(), "os", strict=True):
    axis.plot(list(scores), list(scores.values()), mark, label=f"{label}, mean {np.mean(list(scores.values())):.2f}")
axis.axhline(0.5, ls="--", color="grey", lw=1, label="chance")
axis.set(xlabel="held-out subject", ylabel="balanced accuracy")
axis.legend(frameon=False)
figure.savefig("wearable_npz.svg")
print({candidate["name"]: round(candidate["share"], 2) for candidate in choice["ensemble"]["candidates"][:3]})
