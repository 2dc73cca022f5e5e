"""Predict classes from the replayed signal of an unseen subject, and save the session.

Windows of the subject are replayed instead of signals of a device. For a device, run
`autotransfer stream run --source lsl:NAME --out lsl:DECODED` (pip install mne-lsl).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.person.stream.run import Stream
from autotransfer.person.stream.sink import open_sink
from autotransfer.person.stream.source import open_source

rec = at.synthetic(n_subjects=6, windows_per_class=20, n_channels=4, n_times=64, subject_shift=0.5)
X, y, subjects = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
new = subjects == 5

clf = at.CensoredClassifier(method="none", standardize="online", max_epochs=15, lr=1e-2, sfreq=rec.sfreq)
clf.fit(X[~new], y[~new], subjects=subjects[~new])

# Predict windows one by one.
session = at.Session(clf)
is_right = [session.predict(window) == label for window, label in zip(X[new], y[new], strict=True)]
print(f"{np.mean(is_right):.2f} of {session.n_windows} windows are correct")

with tempfile.TemporaryDirectory() as folder:
    # Save and load the session.
    session.save(Path(folder) / "subject.session")
    session = at.Session.load(Path(folder) / "subject.session", clf)

    # Replay the signal as a stream, with a decision after every quarter of a window.
    signal = np.concatenate(list(X[new]), 1)[None]  # (1, channels, times)
    np.savez(Path(folder) / "subject.npz", X=signal, meta=f'{{"sfreq": {rec.sfreq}}}')
    decisions = Path(folder) / "decisions.csv"
    hop = rec.n_times / 4 / rec.sfreq
    stream = Stream(session, open_source(str(Path(folder) / "subject.npz")), hop=hop, tell=print)
    sink = open_sink(str(decisions), session.classes_.tolist(), "example")
    print(stream.run(sink))
    sink.close()
    decided = pd.read_csv(decisions)

middle = (decided["time"] * rec.sfreq - rec.n_times / 2).astype(int) // rec.n_times
print(f"{np.mean(decided['prediction'] == y[new][middle]):.2f} of {len(decided)} decisions are correct")

figure, axis = plt.subplots(figsize=(7.6, 2.6), layout="constrained")
first = decided["time"] < 20
axis.step(decided["time"][first], y[new][middle][first], color="grey", lw=1, where="mid", label="true class")
axis.plot(decided["time"][first], decided[f"p_{session.classes_[1]}"][first], label="probability of class 1")
axis.set(xlabel="time, s", ylim=(-0.05, 1.05))
axis.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 1.18), ncols=2)
figure.savefig("stream_subject.svg")
