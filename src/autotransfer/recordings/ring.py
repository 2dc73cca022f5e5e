"""Ring: which channels lie around a limb, in their order around it.

An armband can be worn turned by some electrodes, and its channels are then the same ones with other numbers. What
undoes or imitates that has to know the order around the limb. It is stated, or known from the names that channels of
these armbands have by convention, where a recording has all of them and no others:

    myo1 .. myo8, or myo0 .. myo7       Thalmic's Myo
    3dc1 .. 3dc10, or 3dc0 .. 3dc9      the 3DC armband

Nothing else is recognised: eight channels of EMG may be anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import UserError
from .labels import as_list
from .messages import show

ARMBANDS = {"myo": 8, "3dc": 10}  # electrodes by what their names begin with
NUMBERED = re.compile(r"(myo|3dc)[ _-]?(\d{1,2})", re.IGNORECASE)
HOW_TO_STATE = (
    "state their order around the limb: Recordings(..., ring=True) where it is the stored order, else ring=[...] with "
    "names or indices; in a file, 'ring' in meta"
)
REMEDY = "give True, False, or names or indices of channels in their order around the limb"


def ring_of(ring: object, channels: tuple[str, ...]) -> tuple[int, ...] | None:
    """Indices of the channels of a ring in their order around the limb; None: there is none, or it is not known.

    ring: True (the stored order), False (no ring), names or indices, or None: as names of an armband tell.
    """
    if ring is None:
        return _recognised(channels)
    if ring is False:
        return None
    entries = range(len(channels)) if ring is True else as_list(ring, "ring")
    places = tuple(_place(entry, channels) for entry in entries)
    if len(places) < 2:
        raise UserError(f"ring is {show(ring)}, which has fewer than 2 channels; {REMEDY}")
    if len(set(places)) < len(places):
        twice = next(entry for entry, place in zip(entries, places, strict=True) if places.count(place) > 1)
        raise UserError(f"ring has the channel {show(twice)} twice; {REMEDY}")
    return places


def check_ring(ring: Sequence[int] | None, what: str) -> tuple[int, ...]:
    """The ring, where something needs one."""
    if ring is None:
        raise UserError(f"{what} needs channels that form a ring, and no ring is known; {HOW_TO_STATE}")
    return tuple(ring)


def _place(entry: object, channels: tuple[str, ...]) -> int:
    if isinstance(entry, str) and entry in channels:
        return channels.index(entry)
    if isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < len(channels):
        return entry
    raise UserError(f"ring has {show(entry)}, which is none of the {len(channels)} channels; {REMEDY}")


def _recognised(channels: tuple[str, ...]) -> tuple[int, ...] | None:
    names = [NUMBERED.fullmatch(name) for name in channels]
    for kind, electrodes in ARMBANDS.items():
        numbers = {int(name[2]): place for place, name in enumerate(names) if name and name[1].lower() == kind}
        in_order = sorted(numbers)
        if len(channels) == electrodes and in_order in (list(range(electrodes)), list(range(1, electrodes + 1))):
            return tuple(numbers[number] for number in in_order)
    return None
