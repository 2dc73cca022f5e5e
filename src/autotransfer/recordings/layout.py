"""Layout: windows of one study with the channels, rate and length of another.

Channels are matched around a limb where both have a ring, else by name; a channel that is missing is interpolated from
its neighbours where names say where electrodes are (the 10-10 system of EEG), and is 0 where they do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from .raw import Array

Matrix = NDArray[np.float64]

NEAREST = 3  # channels that a missing one is interpolated from, and
REACH = 0.8  # how far they may be, on a head of radius 1: about twice the distance of neighbours in the 10-20 system
RENAMED = {"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}  # by the 10-20 system, as the 10-10 system has it
# Rows of the 10-10 system from the front to the back, in steps of a tenth of the way from nasion to inion.
ROWS = {
    "FP": 4, "AF": 3, "F": 2, "FC": 1, "FT": 1, "C": 0, "T": 0, "CP": -1, "TP": -1, "P": -2, "PO": -3, "O": -4,
}  # fmt: skip
ELECTRODE = re.compile(r"(FP|AF|FC|FT|F|CP|C|TP|T|PO|P|O)(Z|10|[1-9])")
MARK = re.compile(r"^(EEG|EMG|ECG)[ _-]*|[ ._-]|-?REF$", re.IGNORECASE)


def plain_name(channel: str) -> str:
    """The name by which channels of two studies are compared: 'EEG T3-REF' is 'T7'."""
    name = MARK.sub("", channel).upper() or channel.upper()
    return RENAMED.get(name, name)


def position(channel: str) -> NDArray[np.float64] | None:
    """Right, front and up of an electrode of the 10-10 system, on a head of radius 1; None for any other name."""
    known = ELECTRODE.fullmatch(plain_name(channel))
    if known is None:
        return None
    row, number = ROWS[known[1]], 0 if known[2] == "Z" else int(known[2])
    up = np.deg2rad(22.5 * row)
    middle = np.array([0.0, np.sin(up), np.cos(up)])
    if number == 0:
        return middle
    around = np.deg2rad(18.0 * (5 - abs(row)))  # from the midline in front or behind, on the ring above the ears
    side, end = (-1.0 if number % 2 else 1.0), (1.0 if row >= 0 else -1.0)
    edge = np.array([side * np.sin(around), end * np.cos(around), 0.0])
    share = min(1.0, (number + 1) // 2 / (1 if abs(row) == 4 else 4))
    angle = np.arccos(np.clip(middle @ edge, -1.0, 1.0))
    point: NDArray[np.float64] = (np.sin((1 - share) * angle) * middle + np.sin(share * angle) * edge) / np.sin(angle)
    return point


def channel_map(
    channels: Sequence[str], ring: Sequence[int] | None, wanted: Sequence[str], wanted_ring: Sequence[int] | None
) -> Matrix:
    """Weights (wanted, channels) by which wanted channels are mixed from those there are; 0 where they cannot be."""
    mixing = np.zeros((len(wanted), len(channels)))
    if ring is not None and wanted_ring is not None:
        for place, row in enumerate(wanted_ring):
            at = place * len(ring) / len(wanted_ring)
            before, share = int(at), at - int(at)
            mixing[row, ring[before]] += 1 - share
            mixing[row, ring[(before + 1) % len(ring)]] += share
    here = {plain_name(name): column for column, name in reversed(list(enumerate(channels)))}
    spots = {column: spot for column, name in enumerate(channels) if (spot := position(name)) is not None}
    for row, name in enumerate(wanted):
        if mixing[row].any():
            continue
        if (column := here.get(plain_name(name))) is not None:
            mixing[row, column] = 1.0
        elif (spot := position(name)) is not None:
            near = sorted((float(np.linalg.norm(spot - other)), column) for column, other in spots.items())[:NEAREST]
            weights = {column: 1 / distance**2 for distance, column in near if 0 < distance <= REACH}
            for column, weight in weights.items():
                mixing[row, column] = weight / sum(weights.values())
    return mixing


@cache
def resampling(times: int, rate: float, wanted: float) -> NDArray[np.float32]:
    """(times, times at the wanted rate): windows @ this are windows at that rate, filtered against aliases."""
    from scipy.signal import resample_poly  # takes a while to import

    ratio = Fraction(wanted / rate).limit_denominator(1000)
    matrix: NDArray[np.float32] = resample_poly(
        np.eye(times), ratio.numerator, ratio.denominator, axis=1, padtype="line"
    )
    return np.ascontiguousarray(matrix, dtype=np.float32)


def starts(times: int, length: int) -> list[int]:
    """Where pieces of so many samples begin in a window: as many as cover it, overlapping by half at most where they
    must."""
    count = 1 + ceil((times - length) / length - 1e-9) if times > length else 1
    return [int(start) for start in np.linspace(0, max(0, times - length), count).round()]


def lengthened(X: Array, length: int) -> Array:
    """Windows (..., T) repeated until they have so many samples at least."""
    return X if X.shape[-1] >= length else np.concatenate([X] * ceil(length / X.shape[-1]), -1)[..., :length]
