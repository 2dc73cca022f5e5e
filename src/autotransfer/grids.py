"""Grids: the settings that a search tries."""

from __future__ import annotations

from dataclasses import replace

from .errors import check_choice
from .settings import MODES, Setting

WEAK = (1.0, 0.3, 0.1, 0.03, 0.01)  # adversary, MIGE, BEGAN
STRONG = (1.0, 3.0, 10.0, 30.0, 100.0)  # MMD, pairwise MMD, as published
GAMMAS = (0.01, 0.001, 0.0001)


def _paper() -> list[Setting]:
    """The published search: 346 settings with the baseline."""
    settings = [Setting()]
    for mode in MODES:
        for method, strengths in (("adversary", WEAK), ("began", WEAK), ("mmd", STRONG), ("pairwise_mmd", STRONG)):
            settings += [Setting(method=method, mode=mode, strength=strength) for strength in strengths]
        for strength in WEAK:
            settings.append(Setting(method="mige", mode=mode, strength=strength, estimator="ssge"))
            settings += [
                Setting(
                    method="mige", mode=mode, strength=strength, estimator=estimator, regularization=gamma,
                    length_scale=scale,
                )
                for estimator in ("stein", "tikhonov", "nu_method")
                for gamma in GAMMAS
                for scale in ("median", "perplexity")
            ]  # fmt: skip
    return settings


def _quick() -> list[Setting]:
    """Every method in the range where it is useful, and the network without a censor in its balanced batches."""
    return [
        Setting(),
        Setting(batches="balanced"),
        Setting(method="adversary", mode="marginal", strength=0.03),
        Setting(method="adversary", mode="conditional", strength=0.1),
        Setting(method="mige", mode="marginal", strength=0.01, estimator="stein"),
        Setting(method="mige", mode="conditional", strength=0.01, estimator="stein"),
        Setting(method="mmd", mode="marginal", strength=0.3),
        Setting(method="mmd", mode="conditional", strength=1.0),
        Setting(method="mmd", mode="complementary", strength=0.3),
        Setting(method="pairwise_mmd", mode="marginal", strength=0.3),
        Setting(method="pairwise_mmd", mode="conditional", strength=1.0),
        Setting(method="began", mode="marginal", strength=0.1),
        Setting(method="began", mode="conditional", strength=0.3),
    ]


# The extended search: where each method is useful, and where from it starts: the plain network and the two ways to
# prepare people's windows that promise most.
USEFUL = {
    "adversary": (0.03, 0.1), "mige": (0.01, 0.03), "mmd": (0.3, 1.0), "pairwise_mmd": (0.3, 1.0), "began": (0.1, 0.3),
}  # fmt: skip
BASES = (Setting(), Setting(standardise="running"), Setting(standardise="running", align="running"))


def _extended() -> list[Setting]:
    """Censoring joined with what else matters: 72 settings, 27 of them uncensored, and no full product.

    Uncensored: every standardisation × alignment, and one other change at a time from each base. Censored: each method
    × mode on each base, at one of its two strengths in turn, so that every method meets every base at both.
    """
    settings = [
        Setting(standardise=kind, align=align)
        for kind in ("trial", "channel", "running")
        for align in ("none", "running")
    ]
    settings += [
        replace(base, **change)
        for base in BASES
        for change in (
            {"dropout": 0.5},
            {"temporal_kernel": "half"},
            {"compress": 10.0},
            {"power": True},
            {"batches": "balanced"},
            {"lr": 3e-3},
            {"schedule": "constant", "keep": "last"},  # steady training
        )
    ]
    settings += [
        replace(base, method=method, mode=mode, strength=strengths[(i + j) % 2], batches="auto")
        for i, base in enumerate(BASES)
        for method, strengths in USEFUL.items()
        for j, mode in enumerate(MODES)
    ]
    return settings


def _uncensored() -> list[Setting]:
    """For a run that only finds out how windows are best prepared."""
    return [setting for setting in _quick() if setting.method is None]


GRIDS = {"paper": _paper, "quick": _quick, "extended": _extended, "uncensored": _uncensored}


def grid(name: str) -> list[Setting]:
    """Settings of a named grid, the uncensored baseline first."""
    check_choice("grid", name, GRIDS)
    return GRIDS[name]()
