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
        Estimator of the dependence.
    mode : {"marginal", "conditional", "complementary"}
        Penalized dependence: of z on the subject, of z on the subject given the class, or of half of z on the subject.
    latent_dim, n_classes, n_subjects : int
        Length of z, number of classes and number of subjects.
    members : int, optional
        Number of stacked models, on axis 0 of all inputs and outputs.
    seed : int or sequence of int
        Random seed, or one seed per member.
    min_rows : int
        Groups of one subject, or of one subject and class, are ignored if they have fewer rows.
    **options
        Options of the method, such as estimator, length_scale and regularization of MIGE. An option that is None has
        its default. Options in `Method.per_member` may be sequences with one value per member.

    Returns
    -------
    Censor
        `censor(z, y, s)` returns the penalty; `critic_loss(z, y, s)` and `after_step()` train the critic.
    """
    check_choice("method", method, CENSORS)
    check_choice("mode", mode, MODES)
    method_class = CENSORS[method]
    accepted = [field.name for field in fields(method_class.Options)]
    options = {name: value for name, value in options.items() if value is not None}
    for name, value in options.items():
        if name not in accepted:
            all_names = sorted({field.name for censor in CENSORS.values() for field in fields(censor.Options)})
            check_choice("option", name, all_names)
            raise UserError(f"{method} has no option {name}={value!r}; choose from {', '.join(accepted) or 'none'}")
    varying = {name: _per_member(name, options[name], members) for name in method_class.per_member if name in options}
    member_options = [
        method_class.Options(**options | {name: values[member] for name, values in varying.items()})
        for member in range(members or 1)
    ]
    for name, value in options.items():
        if getattr(member_options[0], name) is None and value is not False:
            raise UserError(f"{method} does not use {name}={value!r} with these options; leave it out")
    return Censor(
        method_class, mode, member_options, latent_dim=latent_dim, n_classes=n_classes, n_subjects=n_subjects,
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
