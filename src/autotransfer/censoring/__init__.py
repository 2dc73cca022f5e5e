"""Censoring: five estimates of how much z tells about s, in three modes; see terms.py for the idea."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from ..errors import UserError, check_choice
from ..settings import Setting
from .adversary import Adversary
from .began import BEGAN
from .censor import Censor
from .method import Method
from .mige import MIGE
from .mmd import MMD, PairwiseMMD
from .terms import MODES

__all__ = ["CENSORS", "MODES", "Censor", "Method", "censor_for", "make_censor"]

CENSORS: dict[str, type[Method]] = {
    "adversary": Adversary,
    "mige": MIGE,
    "mmd": MMD,
    "pairwise_mmd": PairwiseMMD,
    "began": BEGAN,
}


def make_censor(
    method: str, mode: str, *, latent_dim: int, n_classes: int, n_subjects: int, members: int | None = None,
    seed: int | Sequence[int] = 0, estimator: str | None = None, length_scale: str | float | None = None,
    regularization: float | Sequence[float] | None = None, projection: bool | None = None,
    pairs: str | None = None, fraction: float | None = None, size: int | None = None,
    variant: str | None = None, control_rate: float | Sequence[float] | None = None,
    diversity: float | Sequence[float] | None = None, critic_hidden: int | None = None, min_rows: int = 2,
    **unknown: Never,
) -> Censor:  # fmt: skip
    """A censor for one model, or for `members` models side by side.

    Options that are None take the defaults of `Setting`; one that the method does not read is an error.
    `seed`, `regularization`, `control_rate` and `diversity` may be one per member.
    """
    check_choice("method", method, CENSORS)
    check_choice("mode", mode, MODES)
    options: dict[str, Any] = {
        "estimator": estimator, "length_scale": length_scale, "regularization": regularization,
        "projection": projection, "pairs": pairs, "fraction": fraction, "size": size, "variant": variant,
        "control_rate": control_rate, "diversity": diversity, "critic_hidden": critic_hidden,
    }  # fmt: skip
    for name in unknown:
        check_choice("option", name, options)
    seeds = _one_each("seed", seed, members)
    each = {
        "regularization": _one_each("regularization", regularization, members),
        "control_rate": _one_each("control_rate", control_rate, members),
        "diversity": _one_each("diversity", diversity, members),
    }
    settings = []
    for p in range(members or 1):
        own = options | {name: values[p] for name, values in each.items()}
        setting = Setting(method=method, mode=mode, **own)  # fills in the defaults, checks names and numbers
        _check_read(setting, own)
        settings.append(setting)
    return censor_for(
        settings, latent_dim=latent_dim, n_classes=n_classes, n_subjects=n_subjects, seeds=seeds,
        members=members, min_rows=min_rows,
    )  # fmt: skip


def censor_for(
    settings: Sequence[Setting], *, latent_dim: int, n_classes: int, n_subjects: int, seeds: Sequence[int],
    members: int | None = None, min_rows: int = 2,
) -> Censor:  # fmt: skip
    """The censor of settings that share a `code_path`: one setting and one seed per member."""
    if len(settings) != (members or 1) or len(seeds) != len(settings):
        raise UserError(f"{len(settings)} settings and {len(seeds)} seeds for {members or 1} members")
    if len({setting.code_path for setting in settings}) > 1:
        raise UserError("these settings do not share their code path; members may differ in numbers only")
    for name, value, least in (
        ("latent_dim", latent_dim, 1), ("n_classes", n_classes, 1), ("n_subjects", n_subjects, 1),
        ("min_rows", min_rows, 2),
    ):  # fmt: skip
        if value < least:
            raise UserError(f"{name} is {value}; it must be at least {least}")
    check_choice("method", settings[0].method, CENSORS)
    return Censor(
        CENSORS[str(settings[0].method)], settings, latent_dim=latent_dim, n_classes=n_classes,
        n_subjects=n_subjects, seeds=seeds, members=members, min_rows=min_rows,
    )  # fmt: skip


def _one_each(name: str, value: Any, members: int | None) -> list[Any]:
    """One value per member from one value or a sequence of them."""
    count = members or 1
    if value is None or isinstance(value, (int, float)):
        return [value] * count
    if len(value) != count:
        raise UserError(f"{name} has {len(value)} values for {count} members; give one, or one per member")
    return list(value)


def _check_read(setting: Setting, options: dict[str, object]) -> None:
    """Raise if an option was given that this setting does not read."""
    read = [name for name in options if getattr(setting, name) is not None]
    for name, value in options.items():
        if value is not None and name not in read:
            told = f"{setting.method} does not read {name}={value!r} here"
            raise UserError(f"{told}; it reads {', '.join(read)}")
