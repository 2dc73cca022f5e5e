"""AutoTransferRegressor: a continuous target as a scikit-learn regressor, measured on people left out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import UserError
from ..recordings.targets import parse_targets, recordings_with_targets
from ..runs.choice import Choice
from ..runs.options import build_options
from ..runs.run import Run
from ..search.evaluation import delivered_predictions
from ..search.regression_evidence import RegressionEvidence
from ..tasks.regression import REGRESSION
from ..training.conformal import interval_radius, make_intervals
from .inputs import agreed_rate, column_of, ids_of, raw_windows
from .run_estimator import DATA, RunEstimator

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTransferRegressor(RegressorMixin, RunEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Regressor of one number for each window, such as a force, an angle or a workload score, on unseen people.

        regressor = AutoTransferRegressor().fit(X, y, subjects=ids)    # at least 3 subjects

    The model is a weighted ensemble of ridge regressions on several representations of a window. Regularization
    strengths and weights are selected on held-out people.

    adaptation: what the model may use of a new person: "zero-shot" (default), nothing; "online", the windows so far;
        "transductive", all windows at once, without their targets
    kinds: signals (emg, eeg, …) or representations to try in addition, separated by commas. Arrays have no
        channel names by which the signal is recognized, so give it
    folds: groups of people who are held out in turn: a number, or "all" for each person alone; by default all, and 10
        for more than 20 people
    at_least: required R² of every person; `choice_` and the report list people below it
    run_folder: folder for choice.json, results.csv, report.html and the model; by default they are not kept
    sfreq: sampling rate in Hz, for representations of rhythms and bands; read from MNE epochs
    verbose: show progress

    After fit: `verdict_`, R² on unseen people compared with a baseline, in a sentence; `next_subject_` (low, high), a
    90 % prediction interval for the R² of one more person; `choice_` (choice.json), `results_` (results.csv, a
    DataFrame), `held_out_` (N,), predictions of the training windows without their person; `n_features_in_` (channels),
    `feature_names_in_` (if X named them) and `model_`.
    """

    adaptation: str | None = None
    kinds: str | None = None
    folds: int | str | None = None
    at_least: float | None = None
    run_folder: str | os.PathLike[str] | None = None
    sfreq: float | None = None
    verbose: bool = False

    __metadata_request__fit = {"subjects": True, "groups": False}  # noqa: RUF012  # scikit-learn reads it off the class
    __metadata_request__predict = {"subjects": True}  # noqa: RUF012
    __metadata_request__score = {"subjects": True}  # noqa: RUF012

    def fit(self, X: object, y: object, *, subjects: object = None, groups: object = None) -> Self:
        """Fit to windows X, an array or tensor (N, channels, times) or mne.Epochs, and numbers y (N,), NaN where one is
        missing.

        subjects (N,): the subject of each window; `groups` is another name for it. Epochs whose metadata have a column
        "subject" need neither.
        """
        asked = {name: getattr(self, name) for name in ("adaptation", "kinds", "folds", "at_least")}
        options = build_options({"source": DATA, "target": REGRESSION} | asked)
        raw = raw_windows(X)
        n_windows = raw.X.shape[0]
        if y is None:
            raise UserError("fit requires y to be passed, but the target y is None; give one number per window")
        values = parse_targets(column_of(y), n_windows)
        ids = ids_of(subjects, groups, raw.subject, n_windows)
        rate = agreed_rate(self.sfreq, raw.sfreq)
        recordings = recordings_with_targets(
            replace(raw, y=values, classes=None, subject=ids, subjects=None, sfreq=rate)
        )
        self.model_ = self._perform(recordings, options, None, verbose=self.verbose)
        predicted: Floats = self.held_out_
        self.held_out_: Floats = np.full(n_windows, np.nan)
        self.held_out_[np.isfinite(values)] = predicted
        self._keep_features(recordings, raw.channels is not None)
        return self

    def _keep(self, run: Run, choice: Choice) -> None:
        evidence = RegressionEvidence.from_run(run, choice.shortlist)
        self.held_out_ = np.empty(len(evidence.y))
        for subject, predicted in delivered_predictions(choice, evidence).items():
            self.held_out_[evidence.rows[subject]] = predicted

    def predict(self, X: object, subjects: object = None) -> Floats:
        """Return the target of each window (N,).

        subjects (N,): the subject of each window, if the model adapts to people; without it they are one person's, in
        the order of recording.
        """
        windows, people = self._windows_of_people(X, subjects)
        return self.model_.predict_checked(windows, people)

    def predict_interval(self, X: object, coverage: float = 0.9, subjects: object = None) -> Floats:
        """Return low and high end (N, 2) of an interval for each window.

        It holds the target with about the probability `coverage`, in the mean over people like those held out in fit.
        """
        check_is_fitted(self)
        radius = interval_radius(self.model_.card.intervals, coverage)
        return make_intervals(self.predict(X, subjects), radius)

    def score(self, X: object, y: object, sample_weight: object = None, subjects: object = None) -> float:
        """Return R² of all windows together, as scikit-learn's regressors do."""
        from sklearn.metrics import r2_score

        predicted = self.predict(X, subjects)
        values = parse_targets(column_of(y), len(predicted))
        if not np.isfinite(values).all():
            raise UserError(f"y[{int(np.isnan(values).argmax())}] is missing; score the windows that have a target")
        return float(r2_score(values, predicted, sample_weight=sample_weight))
