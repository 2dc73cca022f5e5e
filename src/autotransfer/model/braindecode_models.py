"""braindecode's models by name, hyperparameters included: braindecode:EEGConformer,att_depth=2,drop_prob=0.3.

The whole text is a setting's encoder, so that a run and a saved model say what they need. Only classes of
braindecode.models are looked up, and only numbers, words and lists of them are handed to these.
"""

from __future__ import annotations

import inspect
import json
import re
from difflib import get_close_matches
from typing import Any, NamedTuple

from torch import nn

from ..errors import UserError, one_line, shown
from ..recordings.optional import need
from .any_module import KNOWN_AS, Factory

PREFIX = "braindecode:"
MOST = 10**6  # larger numbers are probably typos, and memory would not suffice
HOW = "give braindecode:MODEL or braindecode:MODEL,option=value,option=value"
DATA_SAY = {*(alias for aliases in KNOWN_AS.values() for alias in aliases), "chs_info", "input_window_seconds"}


class Named(NamedTuple):
    """A model of braindecode and its options, as a name gives them."""

    model: str
    options: dict[str, Any]

    def __str__(self) -> str:
        """Canonical: equal models have equal names."""
        options = [f"{name}={_text(value)}" for name, value in sorted(self.options.items())]
        return PREFIX + ",".join([self.model, *options])


def parse(name: str) -> Named:
    """A name in its parts; braindecode need not be installed."""
    model, *pairs = re.split(r",(?=\s*\w+\s*=)", name.removeprefix(PREFIX))
    options: dict[str, Any] = {}
    if not re.fullmatch(r"[A-Za-z]\w*", model):
        raise UserError(f"the encoder is {shown(name)}; {HOW}")
    for pair in pairs:
        option, _, text = (part.strip() for part in pair.partition("="))
        if option in options:
            raise UserError(f"the encoder {shown(name)} has {option} twice; give it once")
        options[option] = _value(name, option, text)
    return Named(model, options)


def braindecode_factory(name: str) -> Factory:
    """Return what makes the model of this name from n_chans, n_times, n_outputs and sfreq."""
    model, given = parse(name)
    models = need("braindecode.models", f"the encoder {shown(name)}", "braindecode")
    classes = {name: getattr(models, name) for name in dir(models)}
    known = {name: kind for name, kind in classes.items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    if model not in known:
        raise UserError(f"braindecode has no model {shown(model)}; {_close(model, known)}")
    kind = known[model]
    signature = inspect.signature(kind)
    allowed = [n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD and n not in DATA_SAY]
    for option in given:
        if option in DATA_SAY:
            raise UserError(f"{option} of {model} follows from the recordings; leave it out of {shown(name)}")
        if option not in allowed:
            raise UserError(f"braindecode's {model} has no option {option!r}; {_close(option, allowed)}")
    options = {option: _layer(signature.parameters[option], value) for option, value in given.items()}

    def make(**sizes: Any) -> nn.Module:
        try:
            return kind(**sizes, **options)
        except Exception as error:  # whatever it may raise, its sizes or options do not fit
            listed = ", ".join(f"{n}={value}" for n, value in sizes.items())
            raise UserError(
                f"braindecode's {model} cannot be made for {listed} ({one_line(error)}); give it other options, or "
                "choose another model"
            ) from error

    make.__signature__ = signature  # type: ignore[attr-defined]  # by which sizes are handed over
    return make


def _value(name: str, option: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
        if not re.fullmatch(r"[\w.+-]+", text):
            raise UserError(f"{option} in {shown(name)} is {shown(text)}; give a number, a word, or [a,list]") from None
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, (dict, list)) or (isinstance(item, (int, float)) and not abs(item) <= MOST):
            raise UserError(f"{option} in {shown(name)} is {shown(text)}; give numbers of at most {MOST}, or words")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _layer(parameter: inspect.Parameter, value: Any) -> Any:
    """A layer of torch.nn by its name, where a class is meant: activation=ELU."""
    if not isinstance(parameter.default, type) or not issubclass(parameter.default, nn.Module):
        return value
    layer = getattr(nn, value, None) if isinstance(value, str) else None
    if not isinstance(layer, type) or not issubclass(layer, nn.Module):
        raise UserError(f"{parameter.name} is {shown(value)}; give a layer of torch.nn, such as ELU")
    return layer


def _close(name: str, known: Any) -> str:
    """The likeliest choices, else all."""
    lower = {choice.lower(): choice for choice in sorted(known)}
    close = [lower[choice] for choice in get_close_matches(name.lower(), lower, 3, 0.5)]
    return f"did you mean {', '.join(close)}?" if close else f"choose from {', '.join(known)}"
