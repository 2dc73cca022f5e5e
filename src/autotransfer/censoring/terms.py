"""The three modes: each turns (z, y, s) into signed terms. Methods see terms, and do not know the mode."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..errors import UserError, check_choice

T = TypeVar("T")


class Term(NamedTuple):
    """One comparison: z inside its nuisance groups against z inside their context.

    Two rows are in one nuisance group when both labels agree; a padding row has -1 in both.
    """

    sign: int  # +1 censor, -1 preserve
    z: Tensor  # (P, B, D)
    context: Tensor  # (P, B) group id, -1: padding
    nuisance: Tensor  # (P, B) group id inside the context, -1: padding
    cache: dict[Hashable, Any] | None = None  # see `compute_once`

    def compute_once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return what follows from the labels alone, made once for all terms, critics and penalties of a step that
        share them; remembered by name."""
        if self.cache is None:
            return make()
        if name not in self.cache:
            self.cache[name] = make()
        remembered: T = self.cache[name]
        return remembered


class TermRule(NamedTuple):
    """Rule by which a mode makes one term: which of `parts` equal slices of z, and whether the class is the context."""

    sign: int
    parts: int
    part: int
    by_class: bool


MODES: dict[str, tuple[TermRule, ...]] = {
    "marginal": (TermRule(+1, parts=1, part=0, by_class=False),),  # z ⟂ s
    "conditional": (TermRule(+1, parts=1, part=0, by_class=True),),  # z ⟂ s given y
    "complementary": (  # z1 ⟂ s, z2 keeps s
        TermRule(+1, parts=2, part=0, by_class=False),
        TermRule(-1, parts=2, part=1, by_class=False),
    ),
}


class TermSpec(NamedTuple):
    """Sizes of a term, from which its method is made."""

    members: int | None  # P; None: a single model, whose state has no leading axis
    dim: int  # D of this term's z
    contexts: int  # number of context ids
    nuisances: int  # number of nuisance ids
    min_rows: int  # rows that a nuisance group needs to count
    keys: Tensor  # (P,) int32: all that the initial critic of a member depends on


def term_dims(mode: str, branches: Sequence[int]) -> list[int]:
    """Return the width of z in every term of the mode. branches: widths of the branches of z, one after the other;
    each is split, so that no half of z has a branch to itself."""
    check_choice("mode", mode, MODES)
    for rule in MODES[mode]:
        for width in branches:
            if width % rule.parts:
                raise UserError(
                    f"latent_dim is {' + '.join(map(str, branches))}; the {mode} mode splits z into {rule.parts} equal "
                    f"parts, so it must be a multiple of {rule.parts}"
                )
    return [sum(branches) // rule.parts for rule in MODES[mode]]


def part_of(z: Tensor, branches: Sequence[int], rule: TermRule) -> Tensor:
    """Return a rule's slice of every branch of z (..., D), side by side."""
    if rule.parts == 1:
        return z
    slices = [branch.chunk(rule.parts, -1)[rule.part] for branch in torch.split(z, list(branches), -1)]
    return slices[0] if len(slices) == 1 else torch.cat(slices, -1)


class Labels(NamedTuple):
    """Labels of the terms that share their context."""

    known: Tensor  # (P, B) bool: no padding
    context: Tensor  # (P, B)
    nuisance: Tensor  # (P, B)
    cache: dict[Hashable, Any]

    @classmethod
    def make(cls, y: Tensor, s: Tensor, *, by_class: bool) -> Labels:
        known = (s >= 0) & (y >= 0) if by_class else s >= 0
        context = y if by_class else torch.zeros_like(s)
        return cls(known, torch.where(known, context, -1), torch.where(known, s, -1), {})


def make_labels(mode: str, y: Tensor, s: Tensor) -> dict[bool, Labels]:
    """Map y and s (P, B) to the labels of the mode's terms, by whether the class is the context.

    Rows with s < 0 are padding; so are, where the class is the context, rows with y < 0.
    """
    return {by_class: Labels.make(y, s, by_class=by_class) for by_class in {rule.by_class for rule in MODES[mode]}}


def make_terms(
    mode: str, z: Tensor, y: Tensor, s: Tensor, *, branches: Sequence[int] | None = None,
    labels: dict[bool, Labels] | None = None,
) -> list[Term]:  # fmt: skip
    """Map z (P, B, D), y and s (P, B) to the terms of the mode. branches: see
    `term_dims`; None: z is one branch. labels: of `make_labels`; None: made here."""
    labels = make_labels(mode, y, s) if labels is None else labels
    terms = []
    for rule in MODES[mode]:
        known, context, nuisance, cache = labels[rule.by_class]
        part = part_of(z, branches or (z.shape[-1],), rule)
        # Whatever a padding row holds, even NaN, reaches neither the value nor the gradient.
        part = torch.where(known[..., None], part, torch.zeros_like(part))
        terms.append(Term(rule.sign, part, context, nuisance, cache))
    return terms
