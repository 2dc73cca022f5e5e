"""Trees as tables vote like scikit-learn's forest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.model import trees
from autotransfer.model.stack import Size
from autotransfer.model.trees import MIN_LEAF_WINDOWS, UNIFORM_SHARE, TreesOptions


def spirals(n: int = 400, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows (n, 2, 8) whose class no line tells: the product of two numbers does."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((n, 2, 8)).astype(np.float32)
    y = np.digitize(x[:, 0, 0] * x[:, 1, 2], [-0.3, 0.3][: classes - 1])
    return torch.from_numpy(x), torch.from_numpy(y)


def fitted(x: torch.Tensor, y: torch.Tensor, classes: int, **options: Any) -> tuple[trees.Trees, ExtraTreesClassifier]:
    own = TreesOptions(**options)
    net = own.stack(Size(2, 8, classes, None), 2, [0, 1])
    net.fit([1], lambda: iter([(x[:150], y[:150]), (x[150:], y[150:])]))
    forest = ExtraTreesClassifier(
        own.trees, max_depth=own.depth, min_samples_leaf=MIN_LEAF_WINDOWS, class_weight="balanced", random_state=0
    )
    return net, forest.fit(x.flatten(1).numpy(), y.numpy())


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_votes_are_those_of_scikit_learn(depth: int) -> None:
    x, y = spirals()
    net, forest = fitted(x, y, 3, trees=20, depth=depth)
    new, _ = spirals(seed=1)
    for windows in (x, new):
        said = net.raw_latents(windows[None])[1].exp()
        want = (1 - UNIFORM_SHARE) * forest.predict_proba(windows.flatten(1).numpy()) + UNIFORM_SHARE / 3
        np.testing.assert_allclose(said.numpy(), want, atol=1e-6)
    assert torch.allclose(net.raw_latents(new[None])[0].exp(), torch.tensor(1 / 3)), "the other member was not fitted"


def test_thresholds_in_single_precision_divide_as_in_double() -> None:
    draw = np.random.default_rng(0)
    for value in [*draw.standard_normal(200), 1 / 3, -1 / 3, 0.1, 2.0]:
        own = trees.round_down(float(value))
        for near in (own, np.nextafter(own, np.float32(9)), np.nextafter(own, np.float32(-9))):
            assert (float(near) <= value) == (near <= own)


def test_a_model_predicts_the_votes_of_trees() -> None:
    x, y = spirals(classes=2)
    rec = at.Recordings(x.numpy(), y.numpy(), np.arange(400) % 4, sfreq=4)
    setting = at.Setting(encoder="trees", standardize="none", trees=20)
    fold = Fold(np.arange(0, 300), np.arange(300, 350), np.arange(350, 400), 0, 1)
    (outcome,) = at.train(rec, [at.Job(setting, fold)], "cpu", progress=False)
    forest = ExtraTreesClassifier(
        20, max_depth=9, min_samples_leaf=MIN_LEAF_WINDOWS, class_weight="balanced", random_state=0
    ).fit(x[:300].flatten(1), y[:300])
    want = (1 - UNIFORM_SHARE) * forest.predict_proba(x[350:].flatten(1)) + UNIFORM_SHARE / 2
    np.testing.assert_allclose(outcome.held_out_log_probs.exp().numpy()[50:], want, atol=1e-5)
    line = at.Setting(encoder="linear", standardize="none")
    (straight,) = at.train(rec, [at.Job(line, fold)], "cpu", progress=False)
    assert outcome.test_score > straight.test_score + 0.1, "no line tells these classes"
