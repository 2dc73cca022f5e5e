"""
Pipelines in MOABB
==================

MOABB evaluates the classifiers and a tangent space on the same folds (``pip install '.[moabb]'``). It passes
the subjects to ``fit``. ``autotransfer run moabb:BNCI2014_001 --out run`` runs the whole procedure on a data
set of MOABB.
"""

import tempfile
import warnings

import matplotlib.pyplot as plt
from moabb.datasets.fake import FakeDataset
from moabb.evaluations import CrossSubjectEvaluation
from moabb.paradigms import LeftRightImagery
from pyriemann.estimation import Covariances
from pyriemann.tangentspace import TangentSpace
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline

import autotransfer as at

warnings.filterwarnings("ignore")  # of MOABB and MNE, about montages and caches

data = FakeDataset(["left_hand", "right_hand"], n_subjects=4, n_sessions=1, n_runs=1, n_events=16, duration=50, seed=1)
pipelines = {
    "tangent space": make_pipeline(Covariances("oas"), TangentSpace(), LinearDiscriminantAnalysis()),
    "EEGNet (paper)": at.CensoredClassifier(method="none", max_epochs=5, sfreq=64),
    "censored": at.CensoredClassifier(method="mmd", mode="conditional", max_epochs=5, sfreq=64),
}
folder = tempfile.mkdtemp()
evaluation = CrossSubjectEvaluation(LeftRightImagery(resample=64), [data], hdf5_path=folder, overwrite=True)
results = evaluation.process(pipelines)
print(results[["subject", "pipeline", "score", "time"]].to_string(index=False))

# %%
# The recordings are noise, so the scores say nothing about the methods.

figure, axis = plt.subplots(figsize=(5.6, 2.6), layout="constrained")
for i, name in enumerate(pipelines):
    scores = results.loc[results["pipeline"] == name, "score"]
    axis.plot(scores, [i] * len(scores), "o", alpha=0.7)
    axis.plot(scores.mean(), i, "x", color="black", ms=9)
axis.axvline(0.5, ls="--", color="grey", lw=1)
axis.set(yticks=range(len(pipelines)), yticklabels=list(pipelines), xlabel="AUC by subject")

# %%
# The argument ``cs_mode`` of ``CrossSubjectEvaluation`` sets which data of the test subject a pipeline may use.
# With ``train`` it uses none, with ``train_and_target_unlabeled_full`` the classifier adapts to unlabeled
# windows, and with ``train_and_target_labeled_50p`` it is calibrated. Hold out one subject at a time: MOABB
# passes these windows without ids.
