"""Modes of censoring. A mode converts latents z, classes y and subjects s into signed terms for the methods."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..errors import UserError, check_choice

T = TypeVar("T")


class Term(NamedTuple):
    """Comparison of z in nuisance groups (subjects) with z in their context (all rows, or one class).

    Rows with equal `context` and equal `nuisance` form a nuisance group.
    """

    sign: int  # +1: the dependence is lowered, −1: the dependence is raised
    z: Tensor  # (P, B, D)
    context: Tensor  # (P, B) id of the context; −1: padding
    nuisance: Tensor  # (P, B) id of the nuisance group in the context; −1: padding
    cache: dict[Hashable, Any] | None = None  # see `compute_once`

    def compute_once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return a result that depends only on labels; it is cached by name for all terms and critics of a step."""
        if self.cache is None:
            return make()
        if name not in self.cache:
            self.cache[name] = make()
        result: T = self.cache[name]
        return result


class TermRule(NamedTuple):
    """Rule for one term of a mode, which uses slice `part` of `parts` equal slices of z."""

    sign: int
    parts: int
    part: int
    by_class: bool  # whether the context of a row is its class; otherwise all rows have one context


MODES: dict[str, tuple[TermRule, ...]] = {
    "marginal": (TermRule(+1, parts=1, part=0, by_class=False),),  # z ⟂ s
    "conditional": (TermRule(+1, parts=1, part=0, by_class=True),),  # z ⟂ s given y
    "complementary": (  # z1 ⟂ s, z2 depends on s
        TermRule(+1, parts=2, part=0, by_class=False),
        TermRule(-1, parts=2, part=1, by_class=False),
    ),
}


class TermSpec(NamedTuple):
    """Arguments of the constructor of a method."""

    members: int | None  # P; None: a single model without a member axis
    dim: int  # D of the term's z
    contexts: int  # number of context ids
    nuisances: int  # number of nuisance ids
    min_rows: int  # minimum number of rows in a valid group
    keys: Tensor  # (P,) int32: random keys of the initial critics


def term_dims(mode: str, branches: Sequence[int]) -> list[int]:
    """Return the width of z in every term of the mode, which splits each branch of z."""
    check_choice("mode", mode, MODES)
    for rule in MODES[mode]:
        for width in branches:
            if width % rule.parts:
                raise UserError(
                    f"latent_dim is {' + '.join(map(str, branches))}; give a multiple of {rule.parts} for mode {mode}"
                )
    return [sum(branches) // rule.parts for rule in MODES[mode]]


def select_part(z: Tensor, branches: Sequence[int], rule: TermRule) -> Tensor:
    """Concatenate the slices of a rule from all branches of z (..., D)."""
    if rule.parts == 1:
        return z
    slices = [branch.chunk(rule.parts, -1)[rule.part] for branch in torch.split(z, list(branches), -1)]
    return slices[0] if len(slices) == 1 else torch.cat(slices, -1)


class Labels(NamedTuple):
    """Context and nuisance ids of the rows, shared by terms with the same `by_class`."""

    present: Tensor  # (P, B) bool: not padding
    context: Tensor  # (P, B)
    nuisance: Tensor  # (P, B)
    cache: dict[Hashable, Any]

    @classmethod
    def make(cls, y: Tensor, s: Tensor, *, by_class: bool) -> Labels:
        """Return labels with the class, or a constant, as context."""
        present = (s >= 0) & (y >= 0) if by_class else s >= 0
        context = y if by_class else torch.zeros_like(s)
        return cls(present, torch.where(present, context, -1), torch.where(present, s, -1), {})


def make_labels(mode: str, y: Tensor, s: Tensor) -> dict[bool, Labels]:
    """Return a dict from `by_class` to the labels of the mode's terms, from y and s (P, B).

    Rows with s < 0 are padding. If `by_class`, rows with y < 0 are padding, too.
    """
    return {by_class: Labels.make(y, s, by_class=by_class) for by_class in {rule.by_class for rule in MODES[mode]}}


def make_terms(
    mode: str, z: Tensor, y: Tensor, s: Tensor, *, branches: Sequence[int] | None = None,
    labels: dict[bool, Labels] | None = None,
) -> list[Term]:  # fmt: skip
    """Return the terms of the mode from z (P, B, D), y and s (P, B); branches: widths of the branches of z."""
    labels = make_labels(mode, y, s) if labels is None else labels
    terms = []
    for rule in MODES[mode]:
        present, context, nuisance, cache = labels[rule.by_class]
        part = select_part(z, branches or (z.shape[-1],), rule)
        # Values of padding rows, even NaN, must not reach the value or the gradient.
        part = torch.where(present[..., None], part, torch.zeros_like(part))
        terms.append(Term(rule.sign, part, context, nuisance, cache))
    return terms
