"""Grids: the settings that a search tries."""

from __future__ import annotations

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
    """A dozen that cover every method in the range where it is useful."""
    return [
        Setting(),
        Setting(method="adversary", mode="marginal", strength=0.1),
        Setting(method="adversary", mode="conditional", strength=0.3),
        Setting(method="mige", mode="marginal", strength=0.1, estimator="stein"),
        Setting(method="mige", mode="conditional", strength=0.1, estimator="stein"),
        Setting(method="mmd", mode="marginal", strength=0.3),
        Setting(method="mmd", mode="conditional", strength=1.0),
        Setting(method="mmd", mode="complementary", strength=0.3),
        Setting(method="pairwise_mmd", mode="marginal", strength=0.3),
        Setting(method="pairwise_mmd", mode="conditional", strength=1.0),
        Setting(method="began", mode="marginal", strength=1.0),
        Setting(method="began", mode="conditional", strength=3.0),
    ]


GRIDS = {"paper": _paper, "quick": _quick}


def grid(name: str) -> list[Setting]:
    """Settings of a named grid, the uncensored baseline first."""
    check_choice("grid", name, GRIDS)
    return GRIDS[name]()
