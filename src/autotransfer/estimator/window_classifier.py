"""WindowEstimator and WindowClassifier: base classes with prediction, calibration and adaptation."""

from __future__ import annotations

import copy
import math
import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..models.calibration import check_single_subject, encode_labels, encode_with_unknown_classes
from ..models.model import Model
from ..models.overlap import describe_overlap, window_digests
from ..person.calibration import adapt_model
from ..recordings import Recordings
from ..recordings.signal import Signal
from ..recordings.windows import encode_subjects
from ..tasks import Metric
from ..tasks.classification import CLASSIFICATION_TASK
from ..training.conformal import decide_classes, least_confidence, least_probability, make_sets, unanswered_value
from .inputs import read_windows, training_recordings

Array = NDArray[Any]


class WindowEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Estimator for raw windows (N, channels, times) with a fitted `model_`. Features are channels."""

    model_: Model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _set_feature_attributes(self, recordings: Recordings, has_names: bool) -> None:
        """Set scikit-learn's attributes of features, which are channels. has_names: whether X has channel names."""
        self.n_features_in_ = recordings.n_channels
        self.__dict__.pop("feature_names_in_", None)  # from an earlier fit
        if has_names:
            self.feature_names_in_ = np.array(recordings.channels, dtype=object)

    def _check_windows(self, X: object) -> tuple[Tensor, object]:
        """Return checked windows (N, channels, times), and subjects (N,) if X names the subjects."""
        check_is_fitted(self)
        raw = read_windows(X)
        signal = None if raw.sfreq is None else Signal.from_raw(raw)  # arrays have no sampling rate
        return self.model_.check(raw.X, signal=signal, subject=raw.subject), raw.subject

    def _check_inputs(self, X: object, subjects: object, adapt: str | None = None) -> tuple[Tensor, Tensor | None]:
        """Return checked windows, and their subjects (N,) if the model adapts and the subjects are known."""
        windows, epoch_subjects = self._check_windows(X)
        if subjects is None and (adapt is not None or self.model_.adaptation != "none"):
            subjects = epoch_subjects
        return windows, encode_subjects(subjects, len(windows))


class WindowClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, WindowEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier of raw windows (N, channels, times), or MNE epochs, with a fitted `model_`.

    If a model adapts ("online" or "transductive"), the windows of a call belong to one subject and are in the order of
    recording, unless `subjects` (N,) or the metadata of epochs name the subject of each window. A call does not use
    the windows of earlier calls. `at.Session` predicts windows that arrive one by one.
    """

    # Under metadata routing, fit requests `subjects`, and `groups` belong to the splitter. MOABB passes the X_target
    # arguments.
    __metadata_request__fit = {  # noqa: RUF012  # scikit-learn reads it from the class
        "subjects": True, "groups": False, "columns": True,
        "X_target_unlabeled": True, "X_target_labeled": True, "y_target_labeled": True,
    }  # fmt: skip
    __metadata_request__score = {"subjects": True}  # noqa: RUF012

    classes_: Array
    scoring: str | None
    sfreq: float | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(
        self, X: object, y: object, *, subjects: object = None, groups: object = None, columns: object = None,
        X_target_unlabeled: object = None, X_target_labeled: object = None, y_target_labeled: object = None,
    ) -> Self:  # fmt: skip
        """Fit the model to labeled windows of several subjects.

        Parameters
        ----------
        X : array or tensor of shape (N, channels, times), or mne.Epochs
            Raw windows.
        y : array of shape (N,)
            Classes of the windows.
        subjects : array of shape (N,)
            Subject of each window. Not needed for epochs whose metadata have a column "subject".
        groups : array of shape (N,)
            Another name for `subjects`.
        columns : DataFrame or dict of array, optional
            Other columns of the windows, such as "session" or "age". Cross-validation splits a DataFrame together with
            X, but not a dict.
        X_target_labeled, y_target_labeled, X_target_unlabeled : array, optional
            Windows of one new subject, for `calibrate` and `adapt` after training, as MOABB passes them.

        Returns
        -------
        estimator
            The fitted classifier.
        """
        recordings, classes, has_names = training_recordings(
            X, y, subjects=subjects, groups=groups, sfreq=self.sfreq, columns=columns
        )
        self.model_, self.classes_ = self._train(recordings), classes
        self._set_feature_attributes(recordings, has_names)
        if X_target_labeled is not None:
            self.model_ = self.calibrate(X_target_labeled, y_target_labeled).model_
        if X_target_unlabeled is not None:
            self.model_ = self.adapt(X_target_unlabeled).model_
        return self

    @abstractmethod
    def _train(self, recordings: Recordings) -> Model:
        """Return the fitted model, and set the fitted attributes that only this classifier has."""

    def predict_proba(self, X: object, subjects: object = None, *, adapt: str | None = None) -> NDArray[np.float64]:
        """Return the probability of each class for each window (N, classes); see `Model.predict_proba`."""
        windows, subject = self._check_inputs(X, subjects, adapt)
        return self.model_.predict_checked(windows, subject, adapt)

    def predict(
        self, X: object, subjects: object = None, abstain: float | None = None, *, adapt: str | None = None
    ) -> Array:
        """Return the most probable class of each window (N,), or `unanswered_`; see `Model.predict`."""
        check_is_fitted(self)
        threshold = least_confidence(self.model_.card.thresholds, abstain)
        predicted: Array = decide_classes(self.predict_proba(X, subjects, adapt=adapt), self.classes_, threshold)
        return predicted

    def predict_set(
        self, X: object, coverage: float = 0.9, subjects: object = None, *, coverage_guarantee: bool = False
    ) -> NDArray[np.bool_]:
        """Return whether each class is in the prediction set of each window (N, classes); see `Model.predict_set`."""
        check_is_fitted(self)
        threshold = least_probability(self.model_.card.thresholds, coverage, is_guaranteed=coverage_guarantee)
        return make_sets(self.predict_proba(X, subjects), threshold)

    @property
    def unanswered_(self) -> Any:
        """Return the value that `predict` returns for abstention: "unanswered", or a negative number."""
        check_is_fitted(self)
        return unanswered_value(self.classes_.tolist())

    def score(self, X: object, y: object, sample_weight: object = None, subjects: object = None) -> float:
        """Return the metric of the estimator, by default the balanced accuracy; see `Model.score`.

        sample_weight: weights (N,) of the windows. Classes of y that were not in fit count as errors. If y holds one
        class and the metric is not defined for it, the score is NaN, with a warning.
        """
        metric = self._metric()
        probability = self.predict_proba(X, subjects)
        weight = None if sample_weight is None else np.asarray(sample_weight)
        value = metric.score(*encode_with_unknown_classes(self.classes_.tolist(), y, probability), weight)
        if math.isnan(value):
            message = f"y holds one class, for which {metric.label} is not defined; leave such subjects out"
            warnings.warn(message, UndefinedMetricWarning, stacklevel=2)
        return value

    def _metric(self) -> Metric:
        """Return the metric of `score`."""
        return CLASSIFICATION_TASK.metric(self.scoring or CLASSIFICATION_TASK.default_metric, "scoring")

    def transform(self, X: object, subjects: object = None) -> NDArray[np.float32]:
        """Return the latent features (N, members · D) of all members; X and subjects as in `predict_proba`."""
        windows, subject = self._check_inputs(X, subjects)
        return self.model_.features(windows, subject).numpy()

    def calibrate(self, X: object, y: object) -> Self:
        """Return a classifier for one subject, calibrated with a few labeled windows; see `Model.calibrate`."""
        windows = self._check_windows_of_one_subject(X)
        labels = encode_labels(self.classes_.tolist(), y, len(windows))
        for warning in describe_overlap(self.model_.card.seen, window_digests(windows), None):
            warnings.warn(warning, stacklevel=2)
        return self._with_model(self.model_.calibrate_checked(windows, labels))

    def adapt(self, X: object) -> Self:
        """Return a classifier for one subject, adapted to its unlabeled windows (n, channels, times)."""
        return self._with_model(adapt_model(self.model_, self._check_windows_of_one_subject(X)))

    def _check_windows_of_one_subject(self, X: object) -> Tensor:
        """Return checked windows; raise if X names several subjects."""
        windows, subjects = self._check_windows(X)
        check_single_subject(subjects, len(windows))
        return windows

    def _with_model(self, model: Model) -> Self:
        estimator = copy.copy(self)
        estimator.model_ = model
        return estimator

    @property
    def _n_features_out(self) -> int:
        return sum(len(candidate.members) * candidate.members.latent_dim for candidate in self.model_.candidates)
