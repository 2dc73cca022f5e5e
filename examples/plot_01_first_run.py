"""
A first run, from one .npz file
===============================

Six subjects wave or turn the wrist with a motion sensor. ``AutoTransferClassifier.fit`` performs the whole
procedure: it trains several models, tests each of them on held-out subjects, and combines them.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import autotransfer as at

# Orientation of the sensor and tempo differ between subjects.
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
path = Path(tempfile.mkdtemp()) / "wrist.npz"
meta = '{"sfreq": 32, "channels": ["x", "y", "z"]}'
np.savez(path, X=np.array(X, np.float32), y=y, subject=subjects, meta=meta)

# %%
# The file has windows, and the class and the subject of each window. Few epochs and one seed keep the example
# short; use the defaults for your own study.

rec = at.load(path)
print(rec)
auto = at.AutoTransferClassifier(max_epochs=8, seeds=1, sfreq=rec.sfreq, options={"batch_size": 32, "lr": 1e-2})
auto.fit(rec.X.numpy(), np.array(y), subjects=np.array(subjects))
print(auto.verdict_)

# %%
# The figure compares the model with the best baseline on each held-out subject.

scores = auto.scores_  # one row for each model and held-out subject
baselines = scores[scores["role"] == "baseline"]
best = baselines.groupby("model")["score"].mean().idxmax()
figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for name, mark in ((best, "o"), ("delivered model", "s")):
    rows = scores[scores["model"] == name]
    axis.plot(rows["subject"], rows["score"], mark, label=f"{name}, mean {rows['score'].mean():.2f}")
axis.axhline(0.5, ls="--", color="grey", lw=1, label="chance")
axis.set(xlabel="held-out subject", ylabel="balanced accuracy")
axis.legend(frameon=False)
