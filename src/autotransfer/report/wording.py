"""Settings, numbers and durations in words."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from ..censoring import CENSORS
from ..errors import number
from ..model.encoders import ENCODERS
from ..preprocessing.represent import REPRESENTATIONS
from ..settings import SUBJECT, Setting
from ..words import count as count
from ..words import range_words
from ..words import score as score
from ..words import signed as signed
from .statistics import Paired
from .summary import Summary

SIGNIFICANT = 0.05  # corrected p below this is called significant
ESTIMATOR_NAMES = {"ssge": "SSGE", "stein": "Stein", "tikhonov": "Tikhonov", "nu_method": "ν-method"}
# what is kept of trainings at a constant rate, in words
CONSTANT = {"last": "constant rate, last epoch", "averaged": "constant rate, averaged weights"}


def method_label(method: str) -> str:
    """As reports write it; "none" is the baseline."""
    return "Baseline" if method == "none" else CENSORS[method].label if method in CENSORS else method


def kind_names(kind: str) -> tuple[str, str]:
    """A kind of candidates as a label, and inside a sentence; a user's encoder has the name that they gave it."""
    registered = REPRESENTATIONS.get(kind) or ENCODERS.get(kind)
    return (registered and registered.kind_names) or (kind, kind)


def kind_label(kind: str) -> str:
    return kind_names(kind)[0]


def kind_words(kind: str) -> str:
    """Inside a sentence."""
    return kind_names(kind)[1]


def capital(words: str) -> str:
    return words[0].upper() + words[1:]


def share(value: float) -> str:
    """As a percentage."""
    return f"{100 * value:.0f}\u00a0%"


def setting_words(setting: Setting, plain: Setting) -> str:
    """A setting as a person would say it, beside the plain one of its run: 'MMD, conditional, λ = 0.3'."""
    kind, traits = setting.relative_to(plain)
    training = CONSTANT.get(str(traits.get("checkpoint"))) if traits.get("schedule") == "constant" else None
    hidden = ("schedule", "checkpoint") if training else ()
    traits_in_words = [_field(name, value) for name, value in traits.items() if name not in hidden]
    traits_in_words += [training] if training else []
    penalty, label = setting.penalty, [] if kind is None else [kind_label(kind)]
    if penalty is None and not label:
        return ", ".join(["Uncensored", *traits_in_words]) if traits_in_words else "Uncensored baseline"
    if penalty is None:
        return ", ".join([*label, *traits_in_words])
    options = {field.name: getattr(penalty.options, field.name) for field in fields(penalty.options)}
    # what a number is by default may depend on a kind: γ on the estimator
    kinds = {name: value for name, value in options.items() if isinstance(value, str)}
    printed = {"as_printed": True} if options.get("as_printed") else {}  # which settles some others
    plainest, usual = type(penalty.options)(**printed), type(penalty.options)(**kinds | printed)
    differing = {n: v for n, v in options.items() if v != getattr(plainest if n in kinds else usual, n)}
    differing |= printed
    differing |= {"warm_up": penalty.warm_up} if penalty.warm_up else {}
    differing |= {"nuisance": penalty.nuisance} if penalty.nuisance != SUBJECT else {}
    differing |= {"shuffle_subjects": True} if penalty.shuffle_subjects else {}
    words = [method_label(penalty.method), penalty.mode, f"λ\u00a0=\u00a0{number(penalty.strength)}"]
    return ", ".join([*words, *(_field(name, value) for name, value in differing.items()), *label, *traits_in_words])


def _field(name: str, value: Any) -> str:
    """What a field differs in."""
    if name == "estimator":
        return ESTIMATOR_NAMES.get(value, str(value))
    if name == "regularization":
        return f"γ\u00a0=\u00a0{value}"
    if name == "length_scale":
        return f"{value} scale" if isinstance(value, str) else f"σ\u00a0=\u00a0{value}"
    if name == "as_printed":
        return "as printed"
    return name if value is True else f"no {name}" if value is False else f"{name} {value}"


def setting_names(summary: Summary) -> dict[str, str]:
    """In words, by the name that a setting has in the run."""
    known = summary.settings | ({} if summary.choice is None else summary.choice.settings)
    return {name: setting_words(setting, summary.plain) for name, setting in known.items()}


def interval(pair: Paired) -> str:
    return range_words(pair.interval)


def probability(p: float | None, *, equals: bool = False) -> str:
    if p is None:
        return "–"
    if p < 0.001:
        return "<\u00a00.001"
    return f"=\u00a0{p:.3f}" if equals else f"{p:.3f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


def date_and_time(iso: str) -> str:
    """A time as people write it; what is no ISO time is left as it is."""
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = "" if time.tzinfo is None else " UTC" if not time.utcoffset() else f" UTC{time:%z}"
    return f"{time.day} {time:%B %Y, %H:%M}{zone}"
