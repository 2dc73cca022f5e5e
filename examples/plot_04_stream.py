"""
A stream
========

The signal of an unseen subject is replayed and decoded window by window, and the session is saved. To decode a
device, run ``autotransfer stream run --source lsl:NAME --out lsl:DECODED``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.person.stream.run import Stream
from autotransfer.person.stream.sink import open_sink
from autotransfer.person.stream.source import open_source

rec = at.synthetic(n_subjects=7, windows_per_class=20, n_channels=4, n_times=64, subject_shift=0.5)
X, y, subjects = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
new = subjects == 6

classifier = at.CensoredClassifier(method="none", standardize="online", max_epochs=15, lr=1e-2, sfreq=rec.sfreq)
classifier.fit(X[~new], y[~new], subjects=subjects[~new])

# %%
# A session predicts windows one by one, in order.

session = at.Session(classifier)
is_right = [session.predict(window) == label for window, label in zip(X[new], y[new], strict=True)]
print(f"{np.mean(is_right):.2f} of {session.n_windows} windows are right")

folder = Path(tempfile.mkdtemp())
session.save(folder / "subject.session")
session = at.Session.load(folder / "subject.session", classifier)

# %%
# A stream makes windows of samples. Here a decision is made after every quarter of a window. The signal comes
# from a file in place of a device.

np.savez(folder / "subject.npz", X=np.concatenate(list(X[new]), 1)[None], meta=f'{{"sfreq": {rec.sfreq}}}')
hop = rec.n_times / 4 / rec.sfreq
stream = Stream(session, open_source(str(folder / "subject.npz")), hop=hop, tell=print)
sink = open_sink(str(folder / "decisions.csv"), session.classes_.tolist(), "example")
print(stream.run(sink))
sink.close()

decided = pd.read_csv(folder / "decisions.csv")
middle = (decided["time"] * rec.sfreq - rec.n_times / 2).astype(int) // rec.n_times
figure, axis = plt.subplots(figsize=(7.6, 2.6), layout="constrained")
first = decided["time"] < 20
axis.step(decided["time"][first], y[new][middle][first], color="grey", lw=1, where="mid", label="true class")
axis.plot(decided["time"][first], decided[f"p_{session.classes_[1]}"][first], label="probability of class 1")
axis.set(xlabel="time, s", ylim=(-0.05, 1.05))
axis.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 1.18), ncols=2)
