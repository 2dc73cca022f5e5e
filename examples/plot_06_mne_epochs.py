"""
MNE epochs
==========

One ``mne.Epochs`` object has the windows of all subjects, with the subject in a column of its metadata. A folder
with a file of epochs for each subject can be loaded, too.
"""

import matplotlib.pyplot as plt
import mne
import numpy as np
import pandas as pd

import autotransfer as at

# Six subjects imagine movements of the left or right hand. A rhythm at 12 Hz weakens over the opposite hemisphere; its
# strength differs between subjects.
rng = np.random.default_rng(0)
names, sfreq, n = ["p1", "p2", "p3", "p4", "p5", "p6"], 100.0, 240
subject, hand = np.repeat(names, n // 6), np.tile([1, 2], n // 2)
times = np.arange(100) / sfreq
rhythm = np.sin(2 * np.pi * (12 * times + rng.random((n, 2, 1))))  # (windows, C3 and C4, times)
strength = rng.uniform(0.7, 1.5, (6, 2)).repeat(n // 6, axis=0)
strength[np.arange(n), 2 - hand] *= 0.3  # left hand (1): C4; right hand (2): C3
signal = 5e-6 * (strength[:, :, None] * rhythm + 2 * rng.standard_normal((n, 2, 100)))  # volts
epochs = mne.EpochsArray(
    signal,
    mne.create_info(["C3", "C4"], sfreq, "eeg"),
    events=np.c_[np.arange(n), np.zeros(n, int), hand],
    event_id={"left": 1, "right": 2},
    metadata=pd.DataFrame({"subject": subject}),
    verbose="ERROR",
)

# %%
# The classes are the names of the events. All subjects must have the same channels and sampling rate, so
# interpolate bad channels before, or drop them for all subjects.

rec = at.Recordings.from_epochs(epochs, subject="subject")
print(rec)

# %%
# Windows are standardized with statistics of the training subjects, which keeps the strength of the rhythm.

setting = at.Setting(standardize="train", log_power=True, max_epochs=8, batch_size=32, lr=1e-2)
jobs = [at.Job(setting, fold, seed=0) for fold in at.leave_one_subject_out(rec)]
outcomes = at.train(rec, jobs, device="cpu", progress=False)
for outcome in outcomes:
    print(f"unseen: {outcome.job.fold.test_subject}   balanced accuracy {outcome.test_score:.2f}")

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for outcome in outcomes:
    axis.plot(outcome.history["validation_score"], label=f"without {outcome.job.fold.test_subject}")
axis.axhline(0.5, ls="--", color="grey", lw=1)
axis.set(xlabel="epoch", ylabel="balanced accuracy, validation subject")
axis.legend(frameon=False, fontsize=8, ncols=2)
