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
from ..models.mixture import Model
from ..models.regression import RegressionModel
from ..models.seen import known_person_words
from ..person.calibration import adapt_model, calibrate_model, check_one_person, labels_of, unknown_class_words
from ..recordings import Recordings
from ..recordings.container import check_sfreq
from ..recordings.labels import encode, encode_session
from ..recordings.windows import people_of_windows
from ..training.conformal import decisions, least_confidence, least_probability, sets_at, unanswered_value
from ..training.scoring import metric_of
from .inputs import raw_windows, training_recordings
from .target import Target

Array = NDArray[Any]


class WindowEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator of raw windows (N, channels, times) with a fitted `model_`; channels are the features."""

    model_: Model | RegressionModel

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
        """Checked windows (N, channels, times) that fit the model, and the subject of each (N,), where X says it."""
        check_is_fitted(self)
        raw = raw_windows(X)
        channels = raw.channels if hasattr(self, "feature_names_in_") else None
        return self.model_.warn_of(self.model_.check(raw.X, channels, check_sfreq(raw.sfreq))), raw.subject

    def _windows_of_people(self, X: object, subjects: object, adapt: str | None = None) -> tuple[Tensor, Tensor | None]:
        """Checked windows, and the subject of each (N,), where the model needs it and it is known."""
        windows, known = self._windows(X)
        if subjects is None and (adapt is not None or self.model_.adaptation != "none"):
            subjects = known
        return windows, people_of_windows(subjects, len(windows), "subjects")


class WindowClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, WindowEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Predicts raw windows (N, channels, times) with `model_`; ids are needed by fit alone.

    `model_` is an ensemble of one setting or a mixture of several such ensembles.
    Where a setting adapts to people ("online" or "transductive"), the windows of one call are taken to be one
    person's, in the order of recording, unless `subjects` (N,) says whose each is; epochs whose metadata have a column
    "subject" say it themselves. Every call starts anew with people nobody has seen; `at.Session` is for windows that
    come one by one.
    """

    # Under metadata routing: fit cannot do without ids, so they are asked for as `subjects` unless the user says
    # otherwise, and `groups` then belong to the splitter alone, which is whom they are mostly passed for. Windows of
    # the person to be met have the names that MOABB passes them under.
    __metadata_request__fit = {  # noqa: RUF012  # scikit-learn reads it off the class
        "subjects": True, "groups": False, "columns": True,
        "X_target_unlabeled": True, "X_target_labeled": True, "y_target_labeled": True,
    }  # fmt: skip
    __metadata_request__score = {"subjects": True}  # noqa: RUF012

    model_: Model
    classes_: Array
    scoring: str
    sfreq: float | None

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
        sample_domain: object = None,
        columns: object = None,
        X_target_unlabeled: object = None,
        X_target_labeled: object = None,
        y_target_labeled: object = None,
    ) -> Self:
        """X: array, tensor (N, channels, times) or mne.Epochs; y (N,).

        subjects (N,): the subject of each trial. `groups` and `sample_domain` are other names for it, of which exactly
        one may be given; epochs whose metadata have a column "subject" need none. As in SKADA, a negative sample_domain
        marks an unlabelled target: such trials are left out of training, with a warning.
        columns: what else is known of each trial, for `nuisance`: a DataFrame, or a dict of arrays (N,), such as
        "session" or "age"; columns of the epochs' metadata are known already. Cross-validation divides a DataFrame as
        it divides X, but no dict.
        X_target_labeled (n, channels, times), y_target_labeled (n,), X_target_unlabeled (m, channels, times): windows
        of one new person, whom nothing is trained on. The model is then calibrated with the first, as `calibrate`
        does, and adapted to the last, as `adapt` does. MOABB's cross-subject modes pass them.
        """
        metric_of(self.scoring, "scoring")
        self._check_options()
        recordings, classes, named = training_recordings(
            X, y, subjects=subjects, groups=groups, sample_domain=sample_domain, sfreq=self.sfreq, columns=columns
        )
        target = Target.of(X_target_unlabeled, X_target_labeled, y_target_labeled, recordings, classes, named)
        self.model_, self.classes_ = target.model_for(self._train(recordings)), classes
        self._keep_features(recordings, named)
        return self

    @abstractmethod
    def _check_options(self) -> None:
        """Refuse options that cannot be, before any work."""

    @abstractmethod
    def _train(self, recordings: Recordings) -> Model:
        """The model of everybody; sets the fitted attributes that only this classifier has."""

    def predict_proba(self, X: object, subjects: object = None, *, adapt: str | None = None) -> NDArray[np.float64]:
        """Probabilities (N, classes), columns in the order of `classes_`; of an ensemble the members' mean, of a
        mixture the product of such means, each to the power of its exponent, normalised.

        adapt: "all" uses all windows of each person, without labels and in no order, where people held out in fit
        gained by that; without `subjects` they are one person's.
        """
        windows, people = self._windows_of_people(X, subjects, adapt)
        return self.model_.predict_checked(windows, people, adapt)

    def predict_log_proba(self, X: object, subjects: object = None) -> NDArray[np.float64]:
        """Their logarithms (N, classes)."""
        with np.errstate(divide="ignore"):  # log 0 is -inf
            return np.log(self.predict_proba(X, subjects))

    def predict(
        self, X: object, subjects: object = None, abstain: float | None = None, *, adapt: str | None = None
    ) -> Array:
        """The likeliest class of each window (N,), in the values that y had.

        abstain: the share of a person's windows to leave unanswered, such as 0.2: those that the model is least sure
        of, by a threshold below which that share of held-out people's windows lay. `unanswered_` stands in their
        place: "unanswered" (`unanswered`) among classes that are text, -1 among numbers, or one less than the
        smallest class.
        adapt: as of `predict_proba`.
        """
        check_is_fitted(self)
        least = least_confidence(self.model_.card.thresholds, abstain)
        predicted: Array = decisions(self.predict_proba(X, subjects, adapt=adapt), self.classes_, least)
        return predicted

    def predict_set(self, X: object, coverage: float = 0.9, subjects: object = None) -> NDArray[np.bool_]:
        """Whether each class is in the prediction set of each window (N, classes), columns in the order of `classes_`.

        The true class of a new person's window is in its set with about the probability `coverage`, in the mean over
        people like those held out in fit. A set is never empty: it holds the likeliest class.
        """
        check_is_fitted(self)
        least = least_probability(self.model_.card.thresholds, coverage)
        return sets_at(self.predict_proba(X, subjects), least)

    @property
    def unanswered_(self) -> Any:
        """The value that `predict` returns for windows left unanswered."""
        check_is_fitted(self)
        return unanswered_value(self.classes_.tolist())

    def score(self, X: object, y: object, sample_weight: object = None, subjects: object = None) -> float:
        """The metric that `scoring` names: by default balanced accuracy, as in reports. NaN, with a warning, where y
        holds one class alone and the metric cannot tell anything then. Classes that were not in fit are never
        predicted; where y holds no other, it is refused."""
        metric = metric_of(self.scoring, "scoring")
        probability = self.predict_proba(X, subjects)
        codes, labels = encode(y, len(probability), "y")
        known = {value: place for place, value in enumerate(self.classes_.tolist())}
        if labels and known.keys().isdisjoint(labels):
            raise UserError(unknown_class_words(labels[0], known))
        places = np.array([known.setdefault(value, len(known)) for value in labels], dtype=np.int64)[codes.numpy()]
        strange = np.zeros((len(probability), len(known) - len(self.classes_)))
        weight = None if sample_weight is None else np.asarray(sample_weight)
        value = metric.score(places, np.hstack([probability, strange]), weight)
        if math.isnan(value):
            message = f"y holds one class alone, so {metric.label} is not defined; leave such people out"
            warnings.warn(message, UndefinedMetricWarning, stacklevel=2)
        return value

    def transform(self, X: object, subjects: object = None) -> NDArray[np.float32]:
        """Latent codes z (N, members · D). Every member has coordinates of its own, so codes of an ensemble stand side
        by side; their mean would mean nothing. Of a mixture, those of all parts: (N, Σ members · D)."""
        windows, people = self._windows_of_people(X, subjects)
        return self.model_.features(windows, people).numpy()

    def calibrate(self, X: object, y: object, session: object = None, *, new_day: bool = False) -> Self:
        """A new estimator for one person, of whom a few labelled windows X (n, channels, times), y (n,) are known; this
        one stays as it is. Where people held out in fit did not gain by so few labels, the new one predicts as this
        one, and a warning says so.

        session: the day of each window (n,), where there are several. The new estimator is for the day of the last
        window, or with new_day for another one: of labels of earlier days counts what people keep from day to day, as
        far as people in fit came on several days (a column `session` of fit)."""
        windows = self._own_windows(X)
        labels = labels_of(self.classes_.tolist(), y, len(windows))
        if (warning := known_person_words(self.model_.card.seen, self.model_.card.name, windows, None)) is not None:
            warnings.warn(warning, stacklevel=2)
        days = None if session is None else encode_session(session, len(windows))
        return self._with(calibrate_model(self.model_, windows, labels, days, new_day=new_day))

    def adapt(self, X: object) -> Self:
        """The same from windows X (n, channels, times) of the person whose classes nobody knows."""
        return self._with(adapt_model(self.model_, self._own_windows(X)))

    def _own_windows(self, X: object) -> Tensor:
        """Checked windows of one person."""
        windows, known = self._windows(X)
        check_one_person(known, len(windows))
        return windows

    def _with(self, model: Model) -> Self:
        estimator = copy.copy(self)
        estimator.model_ = model
        return estimator

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_features
