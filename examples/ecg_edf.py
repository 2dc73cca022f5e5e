"""Classify heart beats from EDF files with annotations, with one window around every beat."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import mne
import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

import autotransfer as at

# A file per person: a beat a second, every third one is ventricular: early, wide and upside down. Height and width of
# the waves differ from person to person.
rng = np.random.default_rng(0)
sfreq, beats = 100.0, 60
Path("ecg").mkdir(exist_ok=True)
for who in range(5):
    time = np.arange(int(sfreq * (beats + 2))) / sfreq
    width, height = rng.uniform(0.012, 0.025), rng.uniform(0.6, 1.4)
    signal = 0.35 * rng.standard_normal(len(time)) + 0.2 * np.sin(0.5 * time + who)
    for n in range(beats):
        odd = n % 3 == 2
        at_s = 1.0 + n - 0.1 * odd
        signal += (-1 if odd else 1) * height * np.exp(-(((time - at_s) / (width * (2.5 if odd else 1))) ** 2))
        signal += 0.3 * height * np.exp(-(((time - at_s - 0.25) / 0.06) ** 2))  # T wave
    raw = mne.io.RawArray(1e-3 * signal[None], mne.create_info(["II"], sfreq, "ecg"), verbose="ERROR")
    onsets = [1.0 + n - 0.1 * (n % 3 == 2) for n in range(beats)]
    raw.set_annotations(mne.Annotations(onsets, 0.0, ["V" if n % 3 == 2 else "N" for n in range(beats)]))
    raw.export(f"ecg/p{who + 1}.edf", fmt="edf", overwrite=True, verbose="ERROR")

rec = at.load("ecg", window=0.64, offset=-0.2, events={"N": "normal", "V": "ventricular"})
print(rec)

X, y, people = rec.X.numpy(), np.array(rec.classes)[rec.y], np.array(rec.subjects)[rec.subject]
clf = at.CensoredClassifier(method="mmd", mode="conditional", max_epochs=8, lr=1e-2, sfreq=rec.sfreq)
predicted = cross_val_predict(clf, X, y, groups=people, cv=LeaveOneGroupOut(), params={"subjects": people})
for who in rec.subjects:
    rows = people == who
    print(f"{who}: {np.mean(predicted[rows] == y[rows]):.2f} of {rows.sum()} beats are right")

figure, axes = plt.subplots(1, len(rec.subjects), figsize=(8.6, 2.4), sharey=True, layout="constrained")
for axis, who in zip(axes, rec.subjects, strict=True):
    for kind in rec.classes:
        axis.plot(
            np.arange(X.shape[2]) / rec.sfreq - 0.2, 1e3 * X[(people == who) & (y == kind), 0].mean(0), label=kind
        )
    axis.set(title=f"{who}: {np.mean(predicted[people == who] == y[people == who]):.0%}", xlabel="s")
axes[0].set(ylabel="mean beat, mV")
axes[0].legend(frameon=False, fontsize=7)
figure.savefig("ecg_edf.svg")
