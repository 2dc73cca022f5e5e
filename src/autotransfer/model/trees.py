"""Extremely randomized trees (Geurts et al. 2006) and gradient boosting as encoders: latents are log-probabilities.

Trees are suitable for features with different units, such as statistics of wearables. scikit-learn fits the trees.
Fitted trees are stored as tables of one shape, so that members can be stacked, saved and exported.

A window goes to the first child of a node if the feature is at most the threshold, otherwise to the second. In a tree
of at most L leaves, nodes 0 to L − 1 are leaves, whose children are the leaf itself, and node L is the root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UserError, check_at_most, check_positive
from .closed_form import Batches, ClosedFormEncoder, ClosedFormOptions
from .stack import Size

MIN_LEAF_WINDOWS = 5
SHARE_OF_FEATURES = 0.2  # share of the features that are drawn for each split of a randomized tree
BOOSTING: dict[str, Any] = {"max_features": 0.3, "l2_regularization": 1.0}
BINS = 64  # number of intervals between the thresholds of a feature in boosting
ABSENT_LOGIT = -1e4  # logit of a class without training windows in boosting
UNIFORM_SHARE = 0.02  # weight of the uniform distribution in the probabilities, so that their logarithms are finite


@dataclass(frozen=True, kw_only=True)
class TreesOptions(ClosedFormOptions):
    """Hyperparameters of `Trees`; `shrinkage` has no effect."""

    display_name = "randomized trees"
    is_fitted_by_one_core: ClassVar[bool] = True
    is_corrected: ClassVar[bool] = False  # the latents are the probabilities of the classes

    trees: int = 50
    leaves: int = 512  # maximum number of leaves of a tree
    depth: int = 12  # maximum depth of a tree

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "trees", "depth")
        if self.leaves < 2:
            raise UserError(f"leaves is {self.leaves}; give at least 2")
        check_at_most(self, trees=10**4, leaves=2**14, depth=64)

    def latent_dim(self, size: Size) -> int:
        return size.classes

    def n_trees(self, size: Size) -> int:
        return self.trees

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        trees = self.n_trees(size)
        tables = 4 * trees * self.leaves * (8 + size.classes)
        return super().member_bytes(size, batch, itemsize) + itemsize * (tables + 8 * batch * trees)

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Trees:
        return Trees(self, size, members)


@dataclass(frozen=True, kw_only=True)
class BoostingOptions(TreesOptions):
    """Hyperparameters of `Boosting`; each of the `trees` steps adds a tree for every class, or one for two classes."""

    display_name = "gradient boosting"

    trees: int = 60
    leaves: int = 10
    depth: int = 6
    learning_rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "learning_rate")

    def n_trees(self, size: Size) -> int:
        return self.trees * (size.classes if size.classes > 2 else 1)

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Boosting:
        return Boosting(self, size, members)


class Trees(ClosedFormEncoder):
    """Stack of randomized trees as tables of T trees with N = 2L − 1 nodes."""

    def __init__(self, options: TreesOptions, size: Size, members: int) -> None:
        super().__init__(members, size.classes)
        self.options, trees, nodes = options, options.n_trees(size), 2 * options.leaves - 1
        stump = torch.arange(nodes).repeat_interleave(2).clamp(max=options.leaves - 1)
        stump[2 * options.leaves] = 0
        # Indices are floats, because integer buffers are not stacked.
        self.feature = nn.Buffer(torch.zeros(members, trees, nodes))  # index of the feature that a node compares
        self.threshold = nn.Buffer(torch.zeros(members, trees, nodes))
        # First and second child of node 0, first and second child of node 1, …
        self.child = nn.Buffer(stump.to(torch.get_default_dtype()).repeat(members, trees, 1))
        self.value = nn.Buffer(torch.full((members, trees, options.leaves, size.classes), 1 / size.classes))
        self.offset = nn.Buffer(torch.zeros(members, size.classes))  # scores before the first tree

    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        probabilities = self.probabilities(self.scores(x, members))
        return ((1 - UNIFORM_SHARE) * probabilities + UNIFORM_SHARE / self.latent_dim).log()

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the probabilities of the classes (M, B, K)."""
        return scores

    def scores(self, x: Tensor, members: slice) -> Tensor:
        """Return the offset plus the mean over trees of the values of the leaves that windows reach: (M, B, K)."""
        value, offset = self.value[members], self.offset[members]
        count, trees, leaves, classes = value.shape
        feature, threshold, child = (table[members].flatten(1) for table in (self.feature, self.threshold, self.child))
        rows = x.flatten(2).expand(count, -1, -1)  # (M, B, D)
        tree = torch.arange(trees, device=x.device)
        node = torch.full((count, rows.shape[1], trees), leaves, dtype=torch.int64, device=x.device)
        for _ in range(self.options.depth):
            index = (tree * (2 * leaves - 1) + node).flatten(1)
            compared = rows.gather(2, feature.gather(1, index).view_as(node).long())
            is_second = compared > threshold.gather(1, index).view_as(node)
            node = child.gather(1, 2 * index + is_second.flatten(1).long()).view_as(node).long()
        leaf = (tree * leaves + node).flatten(1)[..., None].expand(-1, -1, classes)
        return value.flatten(1, 2).gather(1, leaf).view(*node.shape, classes).mean(2) + offset[:, None]

    def fit(self, members: Sequence[int], batches: Batches) -> None:
        rows, y = (torch.cat(part).cpu().numpy() for part in zip(*batches(), strict=True))
        fitted = self.fit_trees(rows.reshape(len(rows), -1).astype(np.float32), y)
        tables = zip(*(tree.tabulate(self.options.leaves) for tree in fitted.trees), strict=True)
        feature, threshold, child, present_value = (torch.from_numpy(np.stack(table)) for table in tables)
        n, present = len(fitted.trees), torch.from_numpy(fitted.classes)
        value = torch.zeros(n, self.options.leaves, self.latent_dim)
        value[..., present] = present_value.to(value)
        offset = torch.full((self.latent_dim,), fitted.absent)
        offset[present] = torch.from_numpy(fitted.offset).to(offset)
        for member in members:  # if classes are absent, boosting has fewer trees than the tables
            self.feature[member, :n] = feature.to(self.feature)
            self.threshold[member, :n] = threshold.to(self.threshold)
            self.child[member, :n] = child.to(self.child)
            self.value[member, :n], self.value[member, n:] = value.to(self.value), 0
            self.offset[member] = offset.to(self.offset)

    def fit_trees(self, rows: NDArray[np.float32], y: NDArray[np.int64]) -> FittedTrees:
        """Fit trees to features (n, D) and classes (n,)."""
        from sklearn.ensemble import ExtraTreesClassifier

        options = self.options
        forest = ExtraTreesClassifier(
            options.trees, max_depth=options.depth, max_leaf_nodes=options.leaves, min_samples_leaf=MIN_LEAF_WINDOWS,
            max_features=SHARE_OF_FEATURES, class_weight="balanced", random_state=0,
        ).fit(rows, y)  # fmt: skip
        trees = []
        for tree in (estimator.tree_ for estimator in forest.estimators_):
            votes = tree.value[:, 0] / tree.value[:, 0].sum(1, keepdims=True)
            children = np.stack([tree.children_left, tree.children_right], 1)
            trees.append(FittedTree(children, tree.feature, tree.threshold, votes))
        return FittedTrees(trees, forest.classes_, np.zeros(len(forest.classes_)), absent=0.0)

    def fit_standardization(self, members: Sequence[int], raw: Tensor) -> Tensor:
        """Return the raw latents in float64; log-probabilities need no standardization."""
        return raw.double()

    def head(self) -> Tensor:
        return torch.eye(self.latent_dim, dtype=torch.float64)


class Boosting(Trees):
    """Stack of histogram-based gradient boosting (Ke et al. 2017); scores are logits."""

    options: BoostingOptions

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def fit_trees(self, rows: NDArray[np.float32], y: NDArray[np.int64]) -> FittedTrees:
        from sklearn.ensemble import HistGradientBoostingClassifier

        options, thresholds = self.options, find_thresholds(rows)
        model = HistGradientBoostingClassifier(
            max_iter=options.trees, max_depth=options.depth, max_leaf_nodes=options.leaves, **BOOSTING,
            learning_rate=options.learning_rate, class_weight="balanced", early_stopping=False, random_state=0,
        ).fit(count_thresholds(rows, thresholds), y)  # fmt: skip
        classes, offset, n_trees = model.classes_, model._baseline_prediction.ravel(), self.value.shape[1]
        trees = []
        first_column = len(classes) - len(offset)  # 1 for two classes, of which only the second has logits
        for column, predictor in (pair for step in model._predictors for pair in enumerate(step, first_column)):
            nodes = predictor.nodes
            value = np.zeros((len(nodes), len(classes)))
            value[:, column] = nodes["value"] * n_trees
            children = np.stack([nodes["left"], nodes["right"]], 1).astype(np.int64)
            threshold = thresholds[np.floor(nodes["num_threshold"]).astype(np.int64), nodes["feature_idx"]]
            trees.append(FittedTree(children, nodes["feature_idx"], threshold, value))
        return FittedTrees(trees, classes, np.pad(offset, (first_column, 0)), absent=ABSENT_LOGIT)


class FittedTree(NamedTuple):
    """Tree of scikit-learn with n nodes, of which the first is the root, for the K classes of the training windows."""

    children: NDArray[np.int64]  # (n, 2); both entries are equal if the node is a leaf
    feature: NDArray[np.int64]  # (n,)
    threshold: NDArray[np.float64]  # (n,)
    value: NDArray[np.float64]  # (n, K)

    def tabulate(self, leaves: int) -> tuple[NDArray[Any], ...]:
        """Return features and thresholds (2L − 1,) and children (4L − 2,) of all nodes, and values (L, K) of leaves."""
        is_leaf, nodes = self.children[:, 0] == self.children[:, 1], 2 * leaves - 1
        index = np.where(is_leaf, is_leaf.cumsum() - 1, leaves + (~is_leaf).cumsum() - 1)
        inner = index[~is_leaf]
        feature, threshold = np.zeros(nodes, np.int64), np.full(nodes, np.finfo(np.float32).max, np.float32)
        child, value = np.zeros((nodes, 2), np.int64), np.zeros((leaves, self.value.shape[1]))
        feature[inner], threshold[inner] = self.feature[~is_leaf], round_down(self.threshold[~is_leaf])
        child[:leaves] = np.arange(leaves)[:, None]
        child[inner], value[index[is_leaf]] = index[self.children[~is_leaf]], self.value[is_leaf]
        return feature, threshold, child.ravel(), value


class FittedTrees(NamedTuple):
    """Fitted trees with the classes of the training windows."""

    trees: list[FittedTree]
    classes: NDArray[np.int64]  # (K,)
    offset: NDArray[np.float64]  # (K,) scores before the first tree
    absent: float  # score of a class without training windows


def find_thresholds(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return quantiles (BINS − 1, D) of features (n, D), which boosting uses as thresholds.

    scikit-learn computes weighted quantiles, which takes most of the time of a fit.
    """
    shares = np.arange(1, BINS) / BINS
    return np.quantile(rows, shares, axis=0, method="lower").astype(np.float32)


def count_thresholds(rows: NDArray[np.float32], thresholds: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (n, D): for each value, the number of thresholds of its feature that are below the value."""
    columns = [np.searchsorted(limits, values) for limits, values in zip(thresholds.T, rows.T, strict=True)]
    return np.stack(columns, 1).astype(np.float64)


def round_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round down to float32, so that a float32 feature is at most the rounded threshold if it is at most the value."""
    near = values.astype(np.float32)
    return np.where(near <= values, near, np.nextafter(near, np.float32(-math.inf)))
