"""
A scikit-learn pipeline
=======================

A pipeline filters and classifies. It is cross-validated over subjects, and the strength of the penalty is
tuned. ``fit`` needs the subject of each window; ``predict`` does not.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import butter, sosfiltfilt
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import autotransfer as at

rec = at.synthetic(
    n_subjects=6, windows_per_class=12, n_channels=4, n_times=64, sfreq=64.0, subject_shift=0.7, noise=1.5
)
X, y, subjects = rec.X.numpy(), np.array(["rest", "grasp"])[rec.y], np.array(list("ABCDEF"))[rec.subject]

# %%
# The epoch is selected on the last training subject; ``validation_subjects=[...]`` sets other subjects.

classifier = at.CensoredClassifier(
    method="mmd", mode="conditional", strength=1.0, max_epochs=15, lr=1e-2, sfreq=rec.sfreq
)
known = subjects != "F"
classifier.fit(X[known], y[known], subjects=subjects[known])
print(f"unseen subject F: {classifier.score(X[~known], y[~known]):.2f}")

# %%
# In a pipeline, subjects are passed to the classifier by its name. With scikit-learn's metadata routing
# ``subjects=...`` is enough.

band = butter(2, (4, 28), "bandpass", fs=rec.sfreq, output="sos")
pipeline = make_pipeline(FunctionTransformer(lambda x: sosfiltfilt(band, x).astype(np.float32)), classifier)
pipeline.fit(X[known], y[known], censoredclassifier__subjects=subjects[known])
print(f"with a filter: {pipeline.score(X[~known], y[~known]):.2f}")

# %%
# In cross-validation, subjects are passed to the splitter as groups and to ``fit`` as subjects.

scores = cross_val_score(classifier, X, y, groups=subjects, cv=LeaveOneGroupOut(), params={"subjects": subjects})
print(f"leave one subject out: {scores.round(2)}")

strengths, folds = [0.0, 0.3, 1.0, 3.0], list(GroupKFold(3).split(X, y, groups=subjects))
search = GridSearchCV(classifier, {"strength": strengths}, cv=folds).fit(X, y, subjects=subjects)

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
results, ticks = search.cv_results_, range(len(strengths))
axis.errorbar(ticks, results["mean_test_score"], results["std_test_score"], fmt="o-", capsize=4)
axis.set(xticks=ticks, xticklabels=strengths, xlabel="strength of the penalty", ylabel="score on unseen subjects")

# %%
# ``AutoTransferClassifier`` performs the whole procedure instead of one fit. It need not be cross-validated:
# its scores are measured on held-out subjects. With ``run_folder="run"`` the commands of the terminal work on
# the result, and an interrupted ``fit`` continues when it is called again.
