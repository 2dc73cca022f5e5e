"""scikit-learn's own checks. They know tables and no ids, so most of them run on an estimator that makes both up."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import SkipTestWarning
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import autotransfer as at

WITHOUT_DATA = [
    "check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr",
    "check_no_attributes_set_in_init", "check_do_not_raise_errors_in_init_or_set_params", "check_mixin_order",
    "check_parameters_default_constructible", "check_get_params_invariance", "check_set_params",
    "check_estimators_unfitted",
]  # fmt: skip

PUBLIC = [at.CensoredClassifier, at.AutoTransferClassifier, at.AutoTransferRegressor]

# Checks that scikit-learn itself skips: check_array_api_input, because the variable SCIPY_ARRAY_API is not set.
DIFFERENT = {  # at most three
    "check_dtype_object": "numbers in an array of objects are refused: windows are float arrays",
    "check_estimators_empty_data_messages": "windows have three axes: what is empty is called channels, not features",
    "check_n_features_in_after_fitting": "the same: a wrong number of channels is not one of features",
}


class OnTables:
    """Rows of features as windows: each feature is a channel with one wave, and four subjects take turns."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of the estimator
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags

    def fit(self, X: object, y: object) -> Any:
        windows = waves(X)
        return super().fit(windows, y, subjects=np.arange(len(windows)) // 2 % 4)  # type: ignore[misc]

    def _check_windows(self, X: object) -> object:
        return super()._check_windows(waves(X))  # type: ignore[misc]


def waves(X: object) -> NDArray[np.float64]:
    if issparse(X):
        return X
    table = np.asarray(X)
    return table[:, :, None] * np.cos(np.arange(16)) if table.ndim == 2 else table


class RowByRow(OnTables):
    """Windows one by one: in a batch the last bit of float32 sums depends on the place of a window."""

    def predict_proba(self, X: Any, *how: Any, **more: Any) -> Any:
        return by_row(super().predict_proba, X, *how, **more)  # type: ignore[misc]

    def transform(self, X: Any) -> Any:
        return by_row(super().transform, X)  # type: ignore[misc]


def by_row(method: Any, X: Any, *how: Any, **more: Any) -> Any:
    table = None if issparse(X) else np.asarray(X)
    if table is None or table.ndim != 2 or not 1 < len(table) < 100:
        return method(X, *how, **more)
    return np.concatenate([method(row, *how, **more) for row in table[:, None]])


class Censored(RowByRow, at.CensoredClassifier):
    pass


class Auto(RowByRow, at.AutoTransferClassifier):
    pass


class Regressor(OnTables, at.AutoTransferRegressor):
    pass


SMALL = [
    Censored(max_epochs=3, lr=0.05, batch_size=32, standardize="train", device="cpu"),
    Regressor(folds=3, sfreq=8),
]
WHOLE_RUN = Auto(folds=3, seeds=1, time="none", device="cpu", sfreq=8, options={"kinds": "linear,features"})


@pytest.mark.slow
@parametrize_with_checks(SMALL, expected_failed_checks=lambda _: DIFFERENT, xfail_strict=True)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of a check itself, with NaN in y
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([WHOLE_RUN], expected_failed_checks=lambda _: DIFFERENT, xfail_strict=True)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_checks_of_scikit_learn_on_whole_runs(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("name", WITHOUT_DATA)
@pytest.mark.parametrize("kind", PUBLIC)
def test_checks_that_need_no_windows(kind: type, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(estimator_checks, name)(kind.__name__, kind())


def test_tags_tell_that_windows_have_three_axes() -> None:
    """scikit-learn itself then has no data to offer, and says so."""
    for kind in PUBLIC:
        with pytest.warns(SkipTestWarning, match="Can't test estimator"):
            check_estimator(kind())
