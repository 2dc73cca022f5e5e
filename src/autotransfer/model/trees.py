"""Extremely randomized trees (Geurts et al. 2006) as an encoder: latents are log probabilities of the classes.

Trees suit hand-made features of different units, such as statistics of wearables. scikit-learn fits the trees. Their
tables have one shape, so that members can be stacked, saved and exported as in other encoders.

Every stored tree is complete: node i leads to node 2i + 1 if the feature is at most the threshold, otherwise to 2i + 2.
A leaf of scikit-learn's tree at a smaller depth is continued by nodes that always lead to 2i + 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import check_at_most, check_positive
from .closed_form import Batches, ClosedFormEncoder, ClosedFormOptions
from .stack import Size

MIN_LEAF_WINDOWS = 5
UNIFORM_SHARE = 0.02  # weight of the uniform distribution in the probabilities, so that their logarithms are finite


@dataclass(frozen=True, kw_only=True)
class TreesOptions(ClosedFormOptions):
    """Hyperparameters of `Trees`; `shrinkage` has no effect."""

    display_name = "randomized trees"

    trees: int = 100
    depth: int = 9  # maximum depth of a tree

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "trees", "depth")
        check_at_most(self, trees=10**4, depth=14)

    def latent_dim(self, size: Size) -> int:
        return size.classes

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        tables = 4 * self.trees * (1 << self.depth) * (2 + size.classes)
        return super().member_bytes(size, batch, itemsize) + itemsize * (tables + 4 * batch * self.trees)

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Trees:
        return Trees(size, members, self.trees, self.depth)


class Trees(ClosedFormEncoder):
    feature: Tensor  # (P, T, 2^d − 1) index of each node's feature, float because integer buffers are not stacked
    threshold: Tensor  # (P, T, 2^d − 1) threshold of each node
    votes: Tensor  # (P, T, 2^d, K) shares of the classes in each leaf

    def __init__(self, size: Size, members: int, trees: int, depth: int) -> None:
        super().__init__(members, size.classes)
        self.trees, self.depth = trees, depth
        nodes = 2**depth - 1
        self.register_buffer("feature", torch.zeros(members, trees, nodes))
        self.register_buffer("threshold", torch.zeros(members, trees, nodes))
        self.register_buffer("votes", torch.full((members, trees, nodes + 1, size.classes), 1 / size.classes))

    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        votes = self.votes[members]
        count, classes = votes.shape[0], votes.shape[-1]
        features, thresholds = (table[members].flatten(1) for table in (self.feature, self.threshold))  # (M, T · nodes)
        values = x.flatten(2).expand(count, -1, -1)  # (M, B, D)
        tree = torch.arange(self.trees, device=x.device)
        node = torch.zeros(count, values.shape[1], self.trees, dtype=torch.int64, device=x.device)
        for _ in range(self.depth):
            index = (tree * (2**self.depth - 1) + node).flatten(1)
            feature = features.gather(1, index).view_as(node).long()
            is_above = values.gather(2, feature) > thresholds.gather(1, index).view_as(node)
            node = 2 * node + 1 + is_above.long()
        leaf = (tree * 2**self.depth + node - (2**self.depth - 1)).flatten(1)[..., None].expand(-1, -1, classes)
        shares = votes.flatten(1, 2).gather(1, leaf).view(*node.shape, classes).mean(2)  # (M, B, K)
        return ((1 - UNIFORM_SHARE) * shares + UNIFORM_SHARE / classes).log()

    def fit(self, members: Sequence[int], batches: Batches) -> None:
        from sklearn.ensemble import ExtraTreesClassifier

        rows, y = (torch.cat(part).cpu().numpy() for part in zip(*batches(), strict=True))
        forest = ExtraTreesClassifier(
            self.trees, max_depth=self.depth, min_samples_leaf=MIN_LEAF_WINDOWS, class_weight="balanced", random_state=0
        ).fit(rows.reshape(len(rows), -1).astype(np.float32), y)
        tables = [tabulate_tree(estimator.tree_, self.depth) for estimator in forest.estimators_]
        feature, threshold, shares = (torch.from_numpy(np.stack(table)) for table in zip(*tables, strict=True))
        votes = torch.zeros(self.trees, 2**self.depth, self.latent_dim)  # 0 for classes without windows
        votes[..., torch.from_numpy(forest.classes_)] = shares.to(votes)
        for member in members:
            self.feature[member] = feature.to(self.feature)
            self.threshold[member] = threshold.to(self.threshold)
            self.votes[member] = votes.to(self.votes)

    def fit_standardization(self, members: Sequence[int], raw: Tensor) -> Tensor:
        """Return the raw latents in float64; log votes need no standardization."""
        return raw.double()

    def head(self) -> Tensor:
        return torch.eye(self.latent_dim, dtype=torch.float64)


def tabulate_tree(tree: Any, depth: int) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
    """Return the features and thresholds (2^d − 1,) of the nodes of a tree, and the votes (2^d, K) of its leaves."""
    nodes = 2**depth - 1
    feature, threshold = np.zeros(nodes, np.int64), np.full(nodes, np.finfo(np.float32).max, np.float32)
    votes = np.zeros((nodes + 1, tree.value.shape[2]))
    queue = [(0, 0)]  # pairs of a node in scikit-learn's tree and its index in the complete tree
    while queue:
        node, index = queue.pop()
        left, right = tree.children_left[node], tree.children_right[node]
        if left == right:  # a leaf
            while index < nodes:
                index = 2 * index + 1
            votes[index - nodes] = tree.value[node, 0] / tree.value[node, 0].sum()
            continue
        feature[index], threshold[index] = tree.feature[node], round_down(float(tree.threshold[node]))
        queue += [(left, 2 * index + 1), (right, 2 * index + 2)]
    return feature, threshold, votes


def round_down(value: float) -> np.float32:
    """Return the largest float32 number ≤ value, so that comparisons with float32 features have equal results."""
    rounded = np.float32(value)
    return rounded if float(rounded) <= value else np.nextafter(rounded, np.float32(-math.inf))
