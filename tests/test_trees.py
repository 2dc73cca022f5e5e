"""Trees as tables predict what scikit-learn predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline, make_pipeline

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.model import trees
from autotransfer.model.stack import Size
from autotransfer.model.trees import BINS, BOOSTING, MIN_LEAF_WINDOWS, SHARE_OF_FEATURES, UNIFORM_SHARE


def spirals(n: int = 400, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows (n, 2, 8) whose class no line tells: the product of two numbers does."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((n, 2, 8)).astype(np.float32)
    y = np.digitize(x[:, 0, 0] * x[:, 1, 2], [-0.3, 0.3][: classes - 1])
    return torch.from_numpy(x), torch.from_numpy(y)


def forest(n: int, depth: int = 12, leaves: int = 512) -> ExtraTreesClassifier:
    return ExtraTreesClassifier(
        n, max_depth=depth, max_leaf_nodes=leaves, min_samples_leaf=MIN_LEAF_WINDOWS, max_features=SHARE_OF_FEATURES,
        class_weight="balanced", random_state=0,
    )  # fmt: skip


def boosting(n: int, depth: int = 6, leaves: int = 10) -> Pipeline:
    model = HistGradientBoostingClassifier(
        max_iter=n, max_depth=depth, max_leaf_nodes=leaves, learning_rate=0.1, early_stopping=False,
        class_weight="balanced", random_state=0, **BOOSTING,
    )  # fmt: skip
    return make_pipeline(Ranks(), model)


class Ranks(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # no types
    """Each value as the number of quantiles of the training windows below it."""

    def fit(self, rows: NDArray[np.float32], y: object = None) -> Ranks:
        self.quantiles_ = np.sort(rows, 0)[[place * (len(rows) - 1) // BINS for place in range(1, BINS)]]
        return self

    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        return (rows[:, None] > self.quantiles_).sum(1)


BOTH = pytest.mark.parametrize(
    ("options", "oracle"), [(trees.TreesOptions, forest), (trees.BoostingOptions, boosting)], ids=["trees", "boosting"]
)


def mixed(shares: NDArray[np.float64], classes: int) -> NDArray[np.float64]:
    return (1 - UNIFORM_SHARE) * shares + UNIFORM_SHARE / classes


@BOTH
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("limits", [{"depth": 1}, {"depth": 4, "leaves": 6}, {"depth": 12, "leaves": 60}])
def test_probabilities_are_those_of_scikit_learn(
    options: Callable[..., trees.TreesOptions], oracle: Callable[..., Any], classes: int, limits: dict[str, int]
) -> None:
    x, y = spirals(classes=classes)
    own = options(trees=20, **limits)
    net = own.stack(Size(2, 8, classes, None), 2, [0, 1])
    net.fit([1], lambda: iter([(x[:150], y[:150]), (x[150:], y[150:])]))
    other = oracle(20, own.depth, own.leaves).fit(x.flatten(1).numpy(), y.numpy())
    new, _ = spirals(seed=1)
    for windows in (x, new):
        found = net.raw_latents(windows[None])[1].exp()
        want = mixed(other.predict_proba(windows.flatten(1).numpy()), classes)
        np.testing.assert_allclose(found.numpy(), want, atol=1e-6)
    assert torch.allclose(net.raw_latents(new[None])[0].exp(), torch.tensor(1 / classes)), "the first was not fitted"


@BOTH
def test_an_absent_class_has_no_votes(options: Callable[..., trees.TreesOptions], oracle: Callable[..., Any]) -> None:
    x, y = spirals(classes=2)
    net = options(trees=5).stack(Size(2, 8, 3, None), 1, [0])
    net.fit([0], lambda: iter([(x, 2 * y)]))
    want = np.insert(oracle(5).fit(x.flatten(1).numpy(), y.numpy()).predict_proba(x.flatten(1).numpy()), 1, 0, axis=1)
    np.testing.assert_allclose(net.raw_latents(x[None])[0].exp().numpy(), mixed(want, 3), atol=1e-6)


def test_thresholds_in_single_precision_divide_as_in_double() -> None:
    values = np.array([*np.random.default_rng(0).standard_normal(200), 1 / 3, -1 / 3, 0.1, 2.0])
    own = trees.round_down(values)
    for near in (own, np.nextafter(own, np.float32(9)), np.nextafter(own, np.float32(-9))):
        np.testing.assert_array_equal(near.astype(float) <= values, near <= own)


def test_a_tree_needs_two_leaves() -> None:
    with pytest.raises(UserError):
        at.Setting(encoder="boosting", standardize="none", leaves=1)


@pytest.mark.parametrize(("encoder", "oracle"), [("trees", forest), ("boosting", boosting)])
def test_a_model_predicts_the_votes_of_trees(encoder: str, oracle: Callable[..., Any]) -> None:
    x, y = spirals(classes=2)
    rec = at.Recordings(x.numpy(), y.numpy(), np.arange(400) % 4, sfreq=4)
    setting = at.Setting(encoder=encoder, standardize="none", trees=20)
    fold = Fold(np.arange(0, 300), np.arange(300, 350), np.arange(350, 400), 0, 1)
    (outcome,) = at.train(rec, [at.Job(setting, fold)], "cpu", progress=False)
    want = mixed(
        oracle(20).fit(x[:300].flatten(1).numpy(), y[:300].numpy()).predict_proba(x[350:].flatten(1).numpy()), 2
    )
    np.testing.assert_allclose(outcome.held_out_log_probs.exp().numpy()[50:], want, atol=1e-5)
    line = at.Setting(encoder="linear", standardize="none")
    (straight,) = at.train(rec, [at.Job(line, fold)], "cpu", progress=False)
    assert outcome.test_score > straight.test_score + 0.1, "no line tells these classes"
