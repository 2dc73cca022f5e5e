"""The keywords of a setting: every field of its parts under one name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache
from inspect import Parameter, Signature
from typing import Any, NamedTuple, get_type_hints

from ..augment import AUGMENTATIONS, Augmentation, augmentation_values
from ..censoring import CENSORS
from ..errors import UserError, shown
from ..model.encoder import EncoderOptions
from ..model.encoders import ENCODERS, OwnEncoder
from ..preprocessing import TRANSFORMS, Preprocessing
from ..schema import fields_of
from .fields import flat
from .penalty import Penalty
from .training import Training


class Keyword(NamedTuple):
    """Of a Setting, as one part declares it."""

    name: str
    default: Any
    kind: Any  # its type


ENCODER = Keyword("encoder", "eegnet", str)


def keywords() -> list[Keyword]:
    """Every keyword of a Setting, in the order of tables; what several parts declare, once for each of them."""
    chains = TRANSFORMS | AUGMENTATIONS
    penalty = [keyword for keyword in declared(Penalty) if keyword.name != "options"]
    censors = [keyword for kind in CENSORS.values() for keyword in declared(kind.Options)]
    encoders = [keyword for kind in ENCODERS.values() for keyword in declared(kind)]
    first = [switch(name, kind) for name, kind in chains.items()]
    extra = [keyword for kind in chains.values() for keyword in declared(kind)[1:]]
    return [*penalty[:3], *censors, *penalty[3:], ENCODER, *encoders, *first, *extra, *declared(Training)]


def _declared(kind: type) -> tuple[Keyword, ...]:
    """The fields of a part. Types that are there for type checkers alone cannot be told."""
    try:
        hints = get_type_hints(kind)
    except (NameError, AttributeError, TypeError):
        hints = {field.name: Any for field in fields_of(kind)}
    return tuple(Keyword(field.name, field.default, hints[field.name]) for field in fields_of(kind))


declared: Callable[[Any], tuple[Keyword, ...]] = cache(_declared)


@cache
def switch(name: str, kind: type) -> Keyword:
    """What a transform or an augmentation is switched on by: its first field, under its name."""
    return Keyword(name, getattr(kind, "default", None), declared(kind)[0].kind)


def field_names() -> list[str]:
    """Names of all keywords."""
    return list(dict.fromkeys([keyword.name for keyword in keywords()]))


class KeywordSignature:
    """The `__signature__` of Setting: its parts, then every keyword, as the registries are when somebody asks. Where
    parts have different defaults it says None, and each has its own."""

    def __get__(self, setting: object, owner: type) -> Signature:
        given: dict[str, tuple[Any, Any]] = {part.name: (None, part.kind) for part in declared(owner)}
        given |= {"encoder": ENCODER[1:], "augmentation": ((), given["augmentation"][1])}
        for name, default, kind in keywords():
            usual = None if default is MISSING else default
            known, kinds = given.get(name, (usual, kind))
            given[name] = usual if known == usual else None, kinds | kind
        return Signature(
            [
                Parameter(
                    name,
                    Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=kind if default is not None else kind | None,
                )
                for name, (default, kind) in given.items()
            ]
        )


def values_of(
    penalty: Penalty | None = None,
    network: EncoderOptions | None = None,
    preprocessing: Preprocessing | None = None,
    augmentation: tuple[Augmentation, ...] = (),
    training: Training | None = None,
) -> dict[str, Any]:
    """The keywords of parts, without those that are None."""
    values: dict[str, Any] = {}
    if penalty is not None:
        values |= {name: value for name, value in flat(penalty).items() if name != "options"}
        values |= flat(penalty.options)
    if network is not None and not isinstance(network, OwnEncoder):
        values |= flat(network)
    if preprocessing is not None:
        values |= preprocessing.values()
    values |= augmentation_values(augmentation)
    if training is not None:
        values |= flat(training)
    return {name: value for name, value in values.items() if value is not None}


def check_known(given: dict[str, Any]) -> None:
    """Raise where one is no keyword of a Setting."""
    known = field_names()
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
            raise UserError(f"a setting has no field {name!r} (given {shown(value)}); {hint}")
