"""scikit-learn's own checks. They know tables and no ids, so most of them run on an estimator that makes both up."""

from __future__ import annotations

import warnings

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

DIFFERENT = {  # at most three
    "check_dtype_object": "numbers in an array of objects are refused: windows are float arrays",
    "check_estimators_empty_data_messages": "windows have three axes: what is empty is called channels, not features",
    "check_n_features_in_after_fitting": "the same: a wrong number of channels is not one of features",
}


class OnTables(at.CensoredClassifier):
    """The classifier on rows of features: each feature a channel with one wave, trials dealt out to four subjects."""

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags

    def fit(self, X: object, y: object) -> OnTables:
        windows = self.waves(X)
        return super().fit(windows, y, subjects=np.arange(len(windows)) % 4)

    def _windows(self, X: object) -> object:
        return super()._windows(self.waves(X))

    @staticmethod
    def waves(X: object) -> NDArray[np.float64]:
        if issparse(X):
            return X
        table = np.asarray(X)
        return table[:, :, None] * np.cos(np.arange(8)) if table.ndim == 2 else table


@parametrize_with_checks(
    [OnTables(max_epochs=3, lr=0.05, batch_size=32, standardize="train", device="cpu")],
    expected_failed_checks=lambda _: DIFFERENT,
    xfail_strict=True,
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of a check itself, with NaN in y
def test_checks_of_scikit_learn(estimator: OnTables, check: object) -> None:
    check(estimator)


@pytest.mark.parametrize("name", WITHOUT_DATA)
@pytest.mark.parametrize("kind", [at.CensoredClassifier, at.AutoTransferClassifier])
def test_checks_that_need_no_windows(kind: type, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(estimator_checks, name)(kind.__name__, kind())


def test_tags_tell_that_windows_have_three_axes() -> None:
    """scikit-learn itself then has no data to offer, and says so."""
    for kind in (at.CensoredClassifier, at.AutoTransferClassifier):
        with pytest.warns(SkipTestWarning, match="Can't test estimator"):
            check_estimator(kind())
