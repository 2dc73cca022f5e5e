"""Defaults of an estimator: those that thirteen data sets support, or the protocol of the paper."""

from __future__ import annotations

from typing import Any

from ..censoring import CENSORS
from ..errors import check_choice
from ..search.kinds import AVERAGED, EEGNET, PENALISED
from ..settings import Setting

PRESETS = ("recommended", "paper")
# Of all penalties this one cost nothing on people left out (docs/results.md, "One change at a time").
RECOMMENDED = ("mmd", "marginal")
PUBLISHED = ("adversary", "marginal")
# Silenced channels gain where many electrodes tell nearly the same, and nothing where they are few
# (docs/results_details.md, "The last run").
CHANNEL_MASK, ENOUGH_CHANNELS = 0.1, 8


def check_preset(name: object) -> str:
    check_choice("preset", name, PRESETS)
    return str(name)


def penalty_of(preset: str, method: str | None, mode: str | None, strength: float | None) -> dict[str, Any]:
    """Method, mode and strength; "auto" and None take the preset's, and the method's own strength."""
    usual, usual_mode = RECOMMENDED if preset == "recommended" else PUBLISHED
    method = usual if method == "auto" else method
    if strength is None and method is not None:
        check_choice("method", method, CENSORS)
        strength = CENSORS[method].useful[-1]
    penalty = {"method": method, "mode": usual_mode if mode is None else mode}
    return penalty if strength is None else penalty | {"strength": strength}


def training_of(preset: str, encoder: str) -> dict[str, Any]:
    """How windows are preprocessed and networks trained: fields of `Setting`.

    A user's own encoder sees as many channels as there are.
    """
    plain = Setting()
    if preset == "paper":
        return {
            "max_epochs": plain.max_epochs, "standardise": "trial", "append_scale": False, "log_power": False,
            "schedule": plain.training.schedule, "checkpoint": plain.training.checkpoint,
        }  # fmt: skip
    networks = {network["encoder"]: network for network in reversed(PENALISED["zero-shot"])}
    usual = dict.fromkeys(EEGNET, False) | AVERAGED | networks.get(encoder, {"standardise": "train"})
    return {name: value for name, value in usual.items() if name != "encoder"}
