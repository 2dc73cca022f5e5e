"""
A few labels of a new subject, with EEG in a BIDS folder
========================================================

A model for all subjects is calibrated with a few labeled windows of one subject. The folder is read by MNE-BIDS
(``pip install '.[bids]'``).
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import mne
import mne_bids
import numpy as np

import autotransfer as at

# The 11 Hz rhythm weakens over C4 (left hand) or C3 (right hand). Its level and attenuation differ between subjects.
rng = np.random.default_rng(1)
folder = Path(tempfile.mkdtemp()) / "bids"
sfreq, n_cues = 64.0, 40
for subject in range(6):
    hand = rng.permutation(np.arange(n_cues) % 2)
    time = np.arange(int(sfreq * (n_cues * 2 + 2))) / sfreq
    power = np.repeat(rng.uniform(0.5, 2.0, (2, 1)), len(time), 1)
    for n in range(n_cues):
        power[1 - hand[n], (time >= 1 + 2 * n) & (time < 2.5 + 2 * n)] *= 0.45
    signal = power * np.sin(2 * np.pi * 11 * time + rng.random((2, 1))) + 2.2 * rng.standard_normal((2, len(time)))
    info = mne.create_info(["C3", "C4"], sfreq, "eeg")
    info["line_freq"] = 50
    raw = mne.io.RawArray(1e-5 * signal, info, verbose="ERROR")
    onsets = 1.0 + 2 * np.arange(n_cues)
    raw.set_annotations(mne.Annotations(onsets, 1.5, [("left_hand", "right_hand")[h] for h in hand]))
    path = mne_bids.BIDSPath(subject=f"{subject + 1:02}", task="motor", root=folder, datatype="eeg")
    with warnings.catch_warnings(action="ignore"):  # about README files and coordinates
        mne_bids.write_raw_bids(raw, path, format="EDF", allow_preload=True, overwrite=True, verbose="ERROR")

# %%
# Subjects and events are read from the folder.

rec = at.load(folder, window=1.5, events={"left_hand": "left", "right_hand": "right"})
print(rec)

# %%
# ``calibrate`` returns a new model for the subject whose labels it gets. The score is measured on windows after
# the labeled ones.

X, y, subjects = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
counts, curves = (0, 1, 2, 5, 8), []
for new in range(3):  # index of the new subject
    is_new = subjects == new
    classifier = at.CensoredClassifier(standardize="train", log_power=True, max_epochs=10, lr=1e-2, sfreq=rec.sfreq)
    classifier.fit(X[~is_new], y[~is_new], subjects=subjects[~is_new])
    rows_of_class = [np.flatnonzero(y[is_new] == c) for c in range(2)]
    test = np.concatenate([rows[max(counts) :] for rows in rows_of_class])
    curve = [classifier.score(X[is_new][test], y[is_new][test])]
    for k in counts[1:]:
        labeled = np.concatenate([rows[:k] for rows in rows_of_class])
        calibrated = classifier.calibrate(X[is_new][labeled], y[is_new][labeled])
        curve.append(calibrated.score(X[is_new][test], y[is_new][test]))
    curves.append(curve)
    print(f"{rec.subjects[new]}: {dict(zip(counts, np.round(curve, 2).tolist(), strict=True))}")

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
axis.plot(counts, np.transpose(curves), color="#8a919c", lw=1)
axis.plot(counts, np.mean(curves, 0), "o-", lw=2, label="mean of three subjects")
axis.set(xlabel="labeled windows per class", ylabel="balanced accuracy")
axis.legend(frameon=False)
