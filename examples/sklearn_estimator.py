"""Use the classifier in a scikit-learn pipeline, cross-validate it over subjects and tune its penalty."""

from __future__ import annotations

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

# The epoch is selected on the last training subject; validation_subjects=[...] sets other subjects.
clf = at.CensoredClassifier(method="mmd", mode="conditional", strength=1.0, max_epochs=15, lr=1e-2, sfreq=rec.sfreq)
known = subjects != "F"
clf.fit(X[known], y[known], subjects=subjects[known])
print(f"unseen subject F: {clf.score(X[~known], y[~known]):.2f}, latents {clf.transform(X[~known]).shape}")

# In a pipeline, subjects are passed to the classifier.
band = butter(2, (4, 28), "bandpass", fs=rec.sfreq, output="sos")
pipeline = make_pipeline(FunctionTransformer(lambda x: sosfiltfilt(band, x).astype(np.float32)), clf)
pipeline.fit(X[known], y[known], censoredclassifier__subjects=subjects[known])
print(f"with a filter: {pipeline.score(X[~known], y[~known]):.2f}")

# In cross-validation, subjects are passed to the splitter as groups and to `fit` as subjects.
scores = cross_val_score(clf, X, y, groups=subjects, cv=LeaveOneGroupOut(), params={"subjects": subjects})
print(f"leave one subject out: {scores.round(2)}")

strengths, folds = [0.0, 0.3, 1.0, 3.0], list(GroupKFold(3).split(X, y, groups=subjects))
search = GridSearchCV(clf, {"strength": strengths}, cv=folds).fit(X, y, subjects=subjects)
print(f"best strength: {search.best_params_['strength']}")

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
results, ticks = search.cv_results_, range(len(strengths))
axis.errorbar(ticks, results["mean_test_score"], results["std_test_score"], fmt="o-", capsize=4)
axis.set(xticks=ticks, xticklabels=strengths, xlabel="strength of the penalty", ylabel="score on unseen subjects")
figure.savefig("sklearn_estimator.svg")
