"""
EMG in a folder of CSV files
============================

Each subject has one file for each gesture. Subject and gesture are read from the names of the files. The
example then compares a network without and with a penalty on information about the subject.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import autotransfer as at

# A gesture is the activity of each of four muscles. Gains of the channels differ between subjects.
rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp()) / "emg"
GESTURES = {"fist": [3, 1, 1, 2], "open": [1, 3, 2, 1], "point": [2, 1, 3, 1]}
for subject in ("ann", "bob", "cy", "dee", "eve", "fay"):
    gain = np.exp(0.6 * rng.standard_normal(4))
    (folder / subject).mkdir(parents=True)
    for gesture, activity in GESTURES.items():
        signal = gain * np.array(activity) * rng.standard_normal((2000, 4))
        path = folder / subject / f"{gesture}.csv"
        np.savetxt(path, signal, delimiter=",", header="m1,m2,m3,m4", comments="", fmt="%.3f")

# %%
# The files have no column of times, so the sampling rate is given.

rec = at.load(folder, pattern="{subject}/{class}.csv", window=0.32, hop=0.32, sfreq=200)
print(rec)

# %%
# A ``Setting`` holds all hyperparameters of a fit, and a ``Job`` is a setting, a fold and a seed. Leakage is
# how well the subject can be predicted from the latent features of the network.

common = {"standardize": "train", "log_power": True, "max_epochs": 10, "batch_size": 32, "lr": 1e-2}
folds = at.leave_one_subject_out(rec)
penalty = {"method": "mmd", "mode": "conditional", "strength": 3}
settings = {"no penalty": at.Setting(**common), "MMD": at.Setting(**penalty, **common)}
outcomes = at.train(rec, [at.Job(s, fold, 0) for s in settings.values() for fold in folds], "cpu", progress=False)

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for label, part in zip(settings, (outcomes[: len(folds)], outcomes[len(folds) :]), strict=True):
    leaks = []
    for outcome in part:
        z = at.encode(rec, [outcome], outcome.job.fold.train, final=True)[0][0]
        leaks.append(at.leakage(z, rec.subject[outcome.job.fold.train]).accuracy)
    scores = [outcome.test_score for outcome in part]
    axis.plot(leaks, scores, "o", label=f"{label}, mean {np.mean(scores):.2f}")
    print(f"{label}: leakage {np.mean(leaks):.2f}, score on unseen subjects {np.mean(scores):.2f}")
axis.set(xlabel="leakage: accuracy of predicting the subject", ylabel="balanced accuracy, unseen subject")
axis.legend(frameon=False)

# %%
# The penalty lowers the leakage. This alone does not raise the score.
