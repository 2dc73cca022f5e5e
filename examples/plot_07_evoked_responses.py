"""
Evoked responses: rare targets and repetitions
==============================================

In a P300 speller targets are rare, and a decision is made after several flashes of each item. The latency of
the response differs between subjects.
"""

import matplotlib.pyplot as plt
import numpy as np

import autotransfer as at

rng = np.random.default_rng(0)
sfreq, n_subjects, n_flashes = 64, 6, 75  # five items, which flash in turn
times = np.arange(sfreq) / sfreq
subject = np.repeat(np.arange(n_subjects), n_flashes)
item = np.tile(np.arange(n_flashes) % 5, n_subjects)
is_target = item == 3
bump = np.exp(-0.5 * ((times - 0.35 - 0.02 * subject[:, None]) / 0.05) ** 2)
X = rng.standard_normal((len(subject), 4, len(times))) + 0.6 * is_target[:, None, None] * bump[:, None]
rec = at.Recordings(X, np.where(is_target, "target", "other"), subject, sfreq=sfreq)
print(rec)

# %%
# Rare targets need no special treatment: training weights classes inversely to their frequency, and scores are
# balanced accuracies. Templates are the mean responses of the classes after xDAWN filters; they are fitted in a
# second.

setting = at.Setting(encoder="templates", standardize="train", shrinkage=0.5)
outcomes = at.train(rec, [at.Job(setting, fold) for fold in at.leave_one_subject_out(rec)], progress=False)
print(np.round([outcome.test_score for outcome in outcomes], 2))

# %%
# To combine flashes, add the log-probabilities of the target, not votes.

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for outcome in outcomes:
    rows = outcome.job.fold.test
    _, logits = at.encode(rec, [outcome], rows)
    evidence = logits[0].log_softmax(-1)[:, rec.classes.index("target")].numpy()
    total = [np.bincount(item[rows][: 5 * k], evidence[: 5 * k], minlength=5) for k in range(1, 16)]
    margin = [values[3] - np.delete(values, 3).max() for values in total]
    axis.plot(range(1, 16), margin, label=f"subject {outcome.job.fold.test_subject}")
axis.axhline(0, ls="--", color="grey", lw=1)
axis.set(xlabel="flashes of each item", ylabel="evidence for the target minus next item")
axis.legend(frameon=False, fontsize=8, ncols=2)
