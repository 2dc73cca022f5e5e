"""Windows that arrive in blocks, usually one per subject, concatenated to one X without a second copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import UserError
from .columns import plain_columns
from .messages import show
from .raw import Array, Label, Raw


@dataclass(kw_only=True)
class Block:
    """Windows of one recording. `y`, `subject` and `session` have one entry per window, or are unknown."""

    X: Array  # (n, channels, times) float32
    y: list[Label] | None = None
    subject: list[Label] | None = None
    session: list[Label] | None = None
    columns: dict[str, list[Label]] = field(default_factory=dict)
    channels: tuple[str, ...]
    sfreq: float | None  # Hz
    start: float | None = None  # s, the first sample relative to the event
    name: str  # of the subject or the file, for messages
    events: dict[str, int] = field(default_factory=dict)  # of a continuous recording: how often each name occurs
    lasting: float | None = None  # s: the usual duration of its events, where they have one, the median
    notes: dict[str, int] = field(default_factory=dict)  # what its reader made of the file, and how often


class Remedies(NamedTuple):
    """What the user can do about blocks that differ; each reader has its own advice."""

    channels: str
    sfreq: str
    times: str


def stacked(
    blocks: Iterable[Block],
    remedies: Remedies,
    *,
    name: str,
    hints: Mapping[str, str] | None = None,
    slack: int = 0,
) -> Raw:
    """Concatenate blocks that agree. Labels that one block lacks are missing from the result.

    Windows may differ by `slack` samples in length, as after resampling, and are cropped to the shortest.
    """
    kept: list[Block] = []
    for block in blocks:
        if len(block.X) == 0:
            raise UserError(f"{block.name} holds no windows; leave it out")
        if kept:
            _match(block, kept[0], remedies, slack)
        kept.append(block)
    if not kept:
        raise UserError(f"{name!r} holds no recordings")
    return Raw(
        y=_joined([block.y for block in kept]),
        subject=_joined([block.subject for block in kept]),
        session=_joined([block.session for block in kept]),
        columns=_joined_columns([block.columns for block in kept]),
        sfreq=kept[0].sfreq,
        channels=kept[0].channels,
        name=name,
        hints=hints or {},
        X=_joined_windows(kept),  # last: it takes the blocks apart
    )


def _match(block: Block, first: Block, remedies: Remedies, slack: int) -> None:
    """Bring the block's channels into the order of the first one's; refuse what differs otherwise."""
    if block.channels != first.channels and sorted(block.channels) == sorted(first.channels):
        block.X = block.X[:, [block.channels.index(name) for name in first.channels]]
        block.channels = first.channels
    if block.channels != first.channels:
        raise UserError(f"{_channel_difference(block, first)}; {remedies.channels}")
    if not _same(block.sfreq, first.sfreq):
        raise UserError(
            f"{block.name} is sampled at {_hertz(block.sfreq)}, {first.name} at {_hertz(first.sfreq)}; {remedies.sfreq}"
        )
    if abs(block.X.shape[2] - first.X.shape[2]) > slack:
        raise UserError(
            f"{block.name} has windows of {block.X.shape[2]} samples, {first.name} of {first.X.shape[2]}; "
            f"{remedies.times}"
        )
    if not _same(block.start, first.start):
        raise UserError(
            f"{block.name} has windows that start at {block.start} s, {first.name} at {first.start} s; {remedies.times}"
        )


def _joined_windows(blocks: list[Block]) -> Array:
    """Concatenate the windows; each block releases its own once they are copied."""
    if len(blocks) == 1:
        return blocks[0].X
    n_times = min(block.X.shape[2] for block in blocks)
    X = np.empty((sum(len(block.X) for block in blocks), len(blocks[0].channels), n_times), np.float32)
    start = 0
    for block in blocks:
        X[start : start + len(block.X)] = block.X[:, :, :n_times]
        start += len(block.X)
        del block.X
    return X


def _joined(parts: list[list[Label] | None]) -> list[Label] | None:
    known = [part for part in parts if part is not None]
    return [label for part in known for label in part] if len(known) == len(parts) else None


def _joined_columns(parts: list[dict[str, list[Label]]]) -> dict[str, list[Label]]:
    """Columns that every block has, where they hold the same kind of values."""
    common = [name for name in parts[0] if all(name in part for part in parts)]
    return plain_columns({name: [value for part in parts for value in part[name]] for name in common})


def _same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def _hertz(sfreq: float | None) -> str:
    return "an unknown rate" if sfreq is None else f"{sfreq:g} Hz"


def _channel_difference(block: Block, first: Block) -> str:
    """Name a channel that only one of two blocks has."""
    for having, lacking in ((first, block), (block, first)):
        extra = [name for name in having.channels if name not in lacking.channels]
        if extra:
            return f"{having.name} has the channel {show(extra[0])}, {lacking.name} has not"
    return f"{block.name} has {len(block.channels)} channels, {first.name} has {len(first.channels)}"
