"""AutoTransferRegressor: a run of AutoTransfer as a scikit-learn regressor."""

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
from ..search.evidence import RegressionEvidence
from ..tasks.regression import REGRESSION
from ..training.conformal import interval_radius, make_intervals
from .inputs import label_column, read_training_windows
from .run_estimator import DATA_FILE, RunEstimator

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTransferRegressor(RegressorMixin, RunEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Regressor of one number per window for new subjects, such as a force, an angle or a workload score.

    The model is a weighted ensemble of ridge regressions on several representations of a window. Regularization
    strengths and weights are selected on held-out subjects. `fit` needs at least 3 subjects.

    Parameters
    ----------
    kinds : str, optional
        Signals (emg, eeg, …) or representations to add, separated by commas. Arrays have no channel names from which
        the signal is recognized.
    at_least : float, optional
        Required R² of every subject. `choice_` and the report list the subjects below it.
    adaptation, folds, run_folder, sfreq : see AutoTransferClassifier
        Options of the run.
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    verdict_ : str
        R² on new subjects, compared with a baseline, in one sentence.
    next_subject_ : tuple of float
        90 % prediction interval (low, high) of the R² of one more subject.
    held_out_ : array of shape (N,)
        Prediction of each training window by models that were not trained on its subject.
    n_features_in_, scores_, choice_, results_, model_
        See `AutoTransferClassifier`.

    Examples
    --------
    >>> regressor = at.AutoTransferRegressor(kinds="emg").fit(X, y, subjects=ids)
    >>> regressor.predict(X_new)
    """

    adaptation: str | None = None
    kinds: str | None = None
    folds: int | str | None = None
    at_least: float | None = None
    run_folder: str | os.PathLike[str] | None = None
    sfreq: float | None = None
    verbose: bool = False

    __metadata_request__fit = {"subjects": True, "groups": False}  # noqa: RUF012  # scikit-learn reads it from the class
    __metadata_request__predict = {"subjects": True}  # noqa: RUF012
    __metadata_request__score = {"subjects": True}  # noqa: RUF012

    def fit(self, X: object, y: object, *, subjects: object = None, groups: object = None) -> Self:
        """Perform a run on windows X with targets y (N,); windows with the target NaN are left out.

        X, subjects and groups: see `AutoTransferClassifier.fit`.
        """
        parameters = {name: getattr(self, name) for name in ("adaptation", "kinds", "folds", "at_least")}
        options = build_options({"source": DATA_FILE, "target": REGRESSION} | parameters)
        raw = read_training_windows(X, subjects, groups, self.sfreq)
        values = parse_targets(label_column(y), raw.X.shape[0])
        recordings = recordings_with_targets(replace(raw, y=values, classes=None, subjects=None))
        self.model_ = self._perform_run(recordings, options, None, verbose=self.verbose)
        predictions: Floats = self.held_out_
        self.held_out_: Floats = np.full(len(values), np.nan)
        self.held_out_[np.isfinite(values)] = predictions
        self._set_feature_attributes(recordings, raw.channels is not None)
        return self

    def _set_attributes(self, run: Run, choice: Choice) -> None:
        evidence = RegressionEvidence.from_run(run, choice.shortlist)
        self.held_out_ = np.empty(len(evidence.y))
        for subject, predicted in delivered_predictions(choice, evidence).items():
            self.held_out_[evidence.rows[subject]] = predicted

    def predict(self, X: object, subjects: object = None) -> Floats:
        """Return the predicted target of each window (N,); X may be MNE epochs, otherwise see `Model.predict_proba`."""
        windows, subject = self._check_inputs(X, subjects)
        return self.model_.predict_checked(windows, subject)

    def predict_interval(self, X: object, coverage: float = 0.9, subjects: object = None) -> Floats:
        """Return the ends (N, 2) of a prediction interval of each window; see `Model.predict_interval`."""
        check_is_fitted(self)
        radius = interval_radius(self.model_.card.intervals, coverage)
        return make_intervals(self.predict(X, subjects), radius)

    def score(self, X: object, y: object, sample_weight: object = None, subjects: object = None) -> float:
        """Return R² of all windows together, as scikit-learn's regressors do; y, sample_weight: (N,)."""
        from sklearn.metrics import r2_score

        predicted = self.predict(X, subjects)
        values = parse_targets(label_column(y), len(predicted))
        if not np.isfinite(values).all():
            raise UserError(f"y[{int(np.isnan(values).argmax())}] is missing; give only windows with a target")
        return float(r2_score(values, predicted, sample_weight=sample_weight))
