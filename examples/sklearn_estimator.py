"""Censoring as a scikit-learn classifier: fit with subjects, predict unseen people, cross-validate, tune."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut, cross_val_score

import autotransfer as at

rec = at.synthetic(n_subjects=6, trials_per_class=12, n_channels=4, n_times=64, subject_shift=0.5)
X, y, subjects = rec.X.numpy(), np.array(["rest", "grasp"])[rec.y], np.array(list("ABCDEF"))[rec.subject]

# The last of the training subjects chooses the epoch; name others with validation_subjects=[...].
clf = at.CensoredClassifier(method="mmd", mode="conditional", strength=1.0, max_epochs=15, lr=1e-2, sfreq=rec.sfreq)
known = subjects != "F"
clf.fit(X[known], y[known], subjects=subjects[known])
print(f"on F, who is unseen: {clf.score(X[~known], y[~known]):.2f}, codes {clf.transform(X[~known]).shape}")

# Ids go to the splitter as groups and to fit as subjects.
scores = cross_val_score(clf, X, y, groups=subjects, cv=LeaveOneGroupOut(), params={"subjects": subjects})
print(f"each left out in turn: {scores.round(2)}")

folds = list(GroupKFold(3).split(X, y, groups=subjects))
search = GridSearchCV(clf, {"strength": [0.0, 1.0]}, cv=folds).fit(X, y, subjects=subjects)
print(f"best strength: {search.best_params_['strength']}")

# The whole procedure: candidates of several kinds, weighted by how well they do on people left out.
auto = at.AutoTransferClassifier(epochs=3, seeds=1, lr=1e-2, sfreq=rec.sfreq).fit(X, y, subjects=subjects)
shares = {one["name"]: round(one["share"], 2) for one in auto.choice_["average"]["weights"][:3]}
print(f"heaviest: {shares}; {len(auto.results_)} trainings, predicts {auto.predict(X[:2])}")
