"""WindowClassifier: prediction, calibration and adaptation, shared by both classifiers."""

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

from ..errors import UserError
from ..models.calibration import check_effects, check_single_subject, encode_labels, encode_with_unknown_classes
from ..models.model import Model
from ..models.overlap import describe_training_overlap, window_digests
from ..person.calibration import adapt_model
from ..recordings import Recordings
from ..recordings.container import check_sfreq
from ..recordings.windows import encode_subjects
from ..tasks import Metric, Task
from ..tasks.classification import CLASSIFICATION_TASK
from ..training.conformal import decide_classes, least_confidence, least_probability, make_sets, unanswered_value
from .inputs import raw_windows, training_recordings

Array = NDArray[Any]


class WindowEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator of raw windows (N, channels, times) with a fitted `model_`; channels are the features."""

    model_: Model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _keep_features(self, recordings: Recordings, named: bool) -> None:
        """Set the fitted attributes of the features. named: whether X named its channels."""
        self.n_features_in_ = recordings.n_channels
        if named:
            self.feature_names_in_ = np.array(recordings.channels, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    def _windows(self, X: object) -> tuple[Tensor, object]:
        """Return checked windows (N, channels, times), and the subject of each (N,) if X says it."""
        check_is_fitted(self)
        raw = raw_windows(X)
        channels = raw.channels if hasattr(self, "feature_names_in_") else None
        windows = self.model_.check(raw.X, channels, check_sfreq(raw.sfreq))
        return self.model_.warn_if_unlike_training(windows), raw.subject

    def _windows_of_people(self, X: object, subjects: object, adapt: str | None = None) -> tuple[Tensor, Tensor | None]:
        """Return checked windows, and the subject of each (N,) if the model needs it and it is known."""
        windows, known = self._windows(X)
        if subjects is None and (adapt is not None or self.model_.adaptation != "none"):
            subjects = known
        return windows, encode_subjects(subjects, len(windows))


class WindowClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, WindowEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier of raw windows (N, channels, times) with a fitted `model_`; only fit needs ids.

    If a setting adapts to people ("online" or "transductive"), the windows of one call are one person's, in the order
    of recording, unless `subjects` (N,) or the epochs' metadata have the subject of each window. Every call starts with
    new people; `at.Session` is for windows that arrive one by one.
    """

    # Under metadata routing fit requests `subjects`, and `groups` belong to the splitter. MOABB passes windows of the
    # target subject under these names.
    __metadata_request__fit = {  # noqa: RUF012  # scikit-learn reads it off the class
        "subjects": True, "groups": False, "columns": True,
        "X_target_unlabeled": True, "X_target_labeled": True, "y_target_labeled": True,
    }  # fmt: skip
    __metadata_request__score = {"subjects": True}  # noqa: RUF012

    classes_: Array
    scoring: str | None
    sfreq: float | None

    @property
    def _task(self) -> Task:
        return CLASSIFICATION_TASK

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(
        self,
        X: object,
        y: object,
        *,
        subjects: object = None,
        groups: object = None,
        columns: object = None,
        X_target_unlabeled: object = None,
        X_target_labeled: object = None,
        y_target_labeled: object = None,
    ) -> Self:
        """Fit to windows X, an array or tensor (N, channels, times) or mne.Epochs, of classes y (N,).

        subjects (N,): the subject of each window; `groups` is another name for it. Epochs whose metadata have a column
        "subject" need neither.
        columns: other columns of the windows, such as "session" or "age": a DataFrame or a dict of arrays (N,).
        Cross-validation splits a DataFrame together with X, but not a dict.
        X_target_labeled (n, channels, times), y_target_labeled (n,), X_target_unlabeled (m, channels, times): windows
        of one new person, for `calibrate` and `adapt` after training. MOABB's cross-subject modes pass them.
        """
        self._metric()
        self._check_options()
        recordings, classes, named = training_recordings(
            X, y, subjects=subjects, groups=groups, sfreq=self.sfreq, columns=columns
        )
        if (X_target_labeled is None) != (y_target_labeled is None):
            raise UserError("give both X_target_labeled and y_target_labeled, or neither of them")
        self.model_, self.classes_ = self._train(recordings), classes
        self._keep_features(recordings, named)
        self._meet(X_target_labeled, y_target_labeled, X_target_unlabeled)
        return self

    def _meet(self, X_labeled: object, y_labeled: object, X_unlabeled: object) -> None:
        """Calibrate and adapt the model to a person who was not trained on, as far as fit is given their windows."""
        if X_labeled is None and X_unlabeled is None:
            return
        try:
            check_effects(self.model_.candidates)
        except UserError:  # members may have been trained on one person each
            warnings.warn("too few people: the target's windows are not used; train on more people", stacklevel=3)
            return
        if X_labeled is not None:
            self.model_ = self.calibrate(X_labeled, y_labeled).model_
        if X_unlabeled is not None:
            self.model_ = self.adapt(X_unlabeled).model_

    @abstractmethod
    def _check_options(self) -> None:
        """Refuse options that cannot be, before any work."""

    @abstractmethod
    def _train(self, recordings: Recordings) -> Model:
        """Train the model of everybody, and set the fitted attributes that only this classifier has."""

    def predict_proba(self, X: object, subjects: object = None, *, adapt: str | None = None) -> NDArray[np.float64]:
        """Return probabilities (N, classes), columns in the order of `classes_`.

        adapt: "all" uses all unlabeled windows of each person if this raised the scores of people held out in fit.
        Without `subjects` all windows are one person's.
        """
        windows, people = self._windows_of_people(X, subjects, adapt)
        return self.model_.predict_checked(windows, people, adapt)

    def predict(
        self, X: object, subjects: object = None, abstain: float | None = None, *, adapt: str | None = None
    ) -> Array:
        """Return the likeliest class of each window (N,), one of `classes_`.

        abstain: the share of a person's windows to leave unanswered, such as 0.2: those with the lowest confidence, by
        a threshold from held-out people. Their prediction is `unanswered_`.
        adapt: as in `predict_proba`.
        """
        check_is_fitted(self)
        least = least_confidence(self.model_.card.thresholds, abstain)
        predicted: Array = decide_classes(self.predict_proba(X, subjects, adapt=adapt), self.classes_, least)
        return predicted

    def predict_set(self, X: object, coverage: float = 0.9, subjects: object = None) -> NDArray[np.bool_]:
        """Return whether each class is in the prediction set of each window (N, classes).

        A set holds the true class with about the probability `coverage`, in the mean over people like those held out
        in fit. It always holds the likeliest class.
        """
        check_is_fitted(self)
        least = least_probability(self.model_.card.thresholds, coverage)
        return make_sets(self.predict_proba(X, subjects), least)

    @property
    def unanswered_(self) -> Any:
        """Return the prediction of windows left unanswered: "unanswered" or, for numbers, -1 or less."""
        check_is_fitted(self)
        return unanswered_value(self.classes_.tolist())

    def score(self, X: object, y: object, sample_weight: object = None, subjects: object = None) -> float:
        """Return the metric of the estimator, balanced accuracy by default.

        scikit-learn's own classifiers return accuracy here. Balanced accuracy is the mean over classes of the share of
        windows that is predicted correctly, so chance is 1/C whatever the frequency of the classes. Classes that were
        not in fit are never predicted, and y must hold at least one that was. If y holds one class and the metric is
        not defined for it, the score is NaN, with a warning.
        """
        metric = self._metric()
        probability = self.predict_proba(X, subjects)
        weight = None if sample_weight is None else np.asarray(sample_weight)
        value = metric.score(*encode_with_unknown_classes(self.classes_.tolist(), y, probability), weight)
        if math.isnan(value):
            message = f"y holds one class alone, so {metric.label} is not defined; leave such people out"
            warnings.warn(message, UndefinedMetricWarning, stacklevel=2)
        return value

    def _metric(self) -> Metric:
        """Return the metric of `score`."""
        return self._task.metric(self.scoring or self._task.default_metric, "scoring")

    def transform(self, X: object, subjects: object = None) -> NDArray[np.float32]:
        """Return latent features z of all members of all candidates, concatenated (N, members · D)."""
        windows, people = self._windows_of_people(X, subjects)
        return self.model_.features(windows, people).numpy()

    def calibrate(self, X: object, y: object) -> Self:
        """Return a new estimator for one person, from a few labeled windows X (n, channels, times), y (n,).

        If this number of labels did not raise the scores of people held out in fit, it predicts as this one, and warns.
        """
        windows = self._own_windows(X)
        labels = encode_labels(self.classes_.tolist(), y, len(windows))
        for warning in describe_training_overlap(self.model_.card.seen, window_digests(windows), None):
            warnings.warn(warning, stacklevel=2)
        return self._with(self.model_.calibrate_checked(windows, labels))

    def adapt(self, X: object) -> Self:
        """Return a new estimator for one person, from unlabeled windows X (n, channels, times)."""
        return self._with(adapt_model(self.model_, self._own_windows(X)))

    def _own_windows(self, X: object) -> Tensor:
        """Return checked windows of one person."""
        windows, known = self._windows(X)
        check_single_subject(known, len(windows))
        return windows

    def _with(self, model: Model) -> Self:
        estimator = copy.copy(self)
        estimator.model_ = model
        return estimator

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_features
