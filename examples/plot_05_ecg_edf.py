"""
ECG in EDF files
================

One window around every annotated beat is classified for unseen subjects. The files are read by MNE (``pip
install '.[mne]'``).
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import mne
import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

import autotransfer as at

# Each subject has one file with a beat per second. Every third beat is ventricular, that is early, wide and inverted.
# Height and width of the waves differ between subjects.
rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())
sfreq, beats = 100.0, 60
for subject in range(6):
    time = np.arange(int(sfreq * (beats + 2))) / sfreq
    width, height = rng.uniform(0.012, 0.025), rng.uniform(0.6, 1.4)
    signal = 0.35 * rng.standard_normal(len(time)) + 0.2 * np.sin(0.5 * time + subject)
    for n in range(beats):
        is_ventricular = n % 3 == 2
        at_s = 1.0 + n - 0.1 * is_ventricular
        sign, factor = (-1, 2.5) if is_ventricular else (1, 1)
        signal += sign * height * np.exp(-(((time - at_s) / (width * factor)) ** 2))
        signal += 0.3 * height * np.exp(-(((time - at_s - 0.25) / 0.06) ** 2))  # T wave
    raw = mne.io.RawArray(1e-3 * signal[None], mne.create_info(["II"], sfreq, "ecg"), verbose="ERROR")
    onsets = [1.0 + n - 0.1 * (n % 3 == 2) for n in range(beats)]
    raw.set_annotations(mne.Annotations(onsets, 0.0, ["V" if n % 3 == 2 else "N" for n in range(beats)]))
    raw.export(folder / f"p{subject + 1}.edf", fmt="edf", overwrite=True, verbose="ERROR")

# %%
# A window begins 0.2 s before the annotation. ``events`` says which annotations are classes.

rec = at.load(folder, window=0.64, offset=-0.2, events={"N": "normal", "V": "ventricular"})
print(rec)

# %%
# ``CensoredClassifier`` trains one network. Each subject is predicted by a network that was trained on the
# others.

X, y, subjects = rec.X.numpy(), np.array(rec.classes)[rec.y], np.array(rec.subjects)[rec.subject]
classifier = at.CensoredClassifier(method="mmd", mode="conditional", max_epochs=8, lr=1e-2, sfreq=rec.sfreq)
predicted = cross_val_predict(classifier, X, y, groups=subjects, cv=LeaveOneGroupOut(), params={"subjects": subjects})

figure, axes = plt.subplots(2, 3, figsize=(7.6, 4.2), sharex=True, sharey=True, layout="constrained")
for axis, subject in zip(axes.flat, rec.subjects, strict=True):
    for label in rec.classes:
        mean_beat = X[(subjects == subject) & (y == label), 0].mean(0)
        axis.plot(np.arange(X.shape[2]) / rec.sfreq - 0.2, 1e3 * mean_beat, label=label)
    share = np.mean(predicted[subjects == subject] == y[subjects == subject])
    axis.set(title=f"{subject}: {share:.0%} of beats right")
axes[0, 0].set(ylabel="mean beat, mV")
axes[1, 0].set(xlabel="s")
axes[0, 0].legend(frameon=False, fontsize=7)
