"""Censoring: penalties on the dependence between latents z and subjects s, in three modes (terms.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..errors import UserError, check_choice, plain_value
from .adversary import Adversary
from .began import BEGAN
from .censor import Censor, code_path
from .method import Method, MethodOptions
from .mige import MIGE
from .mmd import MMD, PairwiseMMD
from .terms import MODES

__all__ = ["CENSORS", "MODES", "Censor", "Method", "MethodOptions", "code_path", "make_censor"]

CENSORS: dict[str, type[Method]] = {
    "adversary": Adversary,
    "mige": MIGE,
    "mmd": MMD,
    "pairwise_mmd": PairwiseMMD,
    "began": BEGAN,
}


def make_censor(
    method: str,
    mode: str,
    *,
    latent_dim: int,
    n_classes: int,
    n_subjects: int,
    members: int | None = None,
    seed: int | Sequence[int] = 0,
    min_rows: int = 2,
    **options: Any,
) -> Censor:
    """Make a censor for one model, or for a stack of `members` models.

    Parameters
    ----------
    method : {"adversary", "mige", "mmd", "pairwise_mmd", "began"}
        Penalty.
    mode : {"marginal", "conditional", "complementary"}
        Whether z, z given the class, or one part of z is made independent of the subject.
    latent_dim, n_classes, n_subjects : int
        Sizes.
    members : int, optional
        Number of stacked models, on axis 0 of all inputs and outputs.
    seed : int or sequence of int
        Seed of critics and draws.
    min_rows : int
        Number of rows below which a group is ignored.
    **options
        Options of the method, such as estimator, length_scale and regularization of MIGE; None is the default. `seed`
        and the options in `Method.per_member` may have one value per member.

    Returns
    -------
    Censor
        `censor(z, y, s)` is the penalty; `critic_loss(z, y, s)` and `after_step()` train its critic.
    """
    check_choice("method", method, CENSORS)
    check_choice("mode", mode, MODES)
    kind = CENSORS[method]
    accepted = [field.name for field in fields(kind.Options)]
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in accepted:
            known = sorted({field.name for kind in CENSORS.values() for field in fields(kind.Options)})
            check_choice("option", name, known)
            raise UserError(f"{method} has no option {name}={value!r}; choose from {', '.join(accepted) or 'none'}")
    numbers = {name: _per_member(name, given[name], members) for name in kind.per_member if name in given}
    of_members = [
        kind.Options(**given | {name: values[member] for name, values in numbers.items()})
        for member in range(members or 1)
    ]
    for name, value in given.items():
        if getattr(of_members[0], name) is None and value is not False:
            raise UserError(f"{method} does not use {name}={value!r} with these options; leave it out")
    return Censor(
        kind, mode, of_members, latent_dim=latent_dim, n_classes=n_classes, n_subjects=n_subjects,
        seeds=_per_member("seed", seed, members), members=members, min_rows=min_rows, checks_ids=True,
    )  # fmt: skip


def _per_member(name: str, value: Any, members: int | None) -> list[Any]:
    """Return one value per member from a value or a sequence."""
    count, value = members or 1, plain_value(value)
    if isinstance(value, (int, float)):
        return [value] * count
    if len(value) != count:
        raise UserError(f"{name} has {len(value)} values for {count} members; give one value or one per member")
    return list(value)
