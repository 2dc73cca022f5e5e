"""Windows that arrive in blocks, usually one per subject, concatenated to one X without a second copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import UserError, shown
from .labels import plain_columns
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
    notes: tuple[str, ...] = ()  # what its reader made of the file


def stacked(
    blocks: Iterable[Block],
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
            _match(block, kept[0], slack)
        kept.append(block)
    if not kept:
        raise UserError(f"{name!r} holds no recordings")
    common = [name for name in kept[0].columns if all(name in block.columns for block in kept)]
    columns = {name: [value for block in kept for value in block.columns[name]] for name in common}
    return Raw(
        y=_joined([block.y for block in kept]),
        subject=_joined([block.subject for block in kept]),
        session=_joined([block.session for block in kept]),
        columns=plain_columns(columns),
        sfreq=kept[0].sfreq,
        channels=kept[0].channels,
        name=name,
        hints=hints or {},
        X=_joined_windows(kept),  # last: it takes the blocks apart
    )


def _match(block: Block, first: Block, slack: int) -> None:
    """Bring the block's channels into the order of the first one's; refuse what differs otherwise."""
    if sorted(block.channels) == sorted(first.channels):
        block.X = block.X[:, [block.channels.index(name) for name in first.channels]]
        block.channels = first.channels
    if block.channels != first.channels:
        for having, lacking in ((first, block), (block, first)):
            if extra := [name for name in having.channels if name not in lacking.channels]:
                raise UserError(
                    f"{having.name} has the channel {shown(extra[0])}, {lacking.name} has not; "
                    "keep the same channels in all of them"
                )
    for what, unit, remedy in (
        ("sfreq", "sampled at {} Hz", "resample all of them to the same rate"),
        ("start", "cut from {} s", "cut the same windows from all of them"),
    ):
        own, others = getattr(block, what), getattr(first, what)
        pair = np.array([np.nan if n is None else n for n in (own, others)])
        if not np.isclose(pair[0], pair[1], atol=1e-9, rtol=1e-6, equal_nan=True):
            own, others = (unit.format("an unknown number of" if n is None else f"{n:g}") for n in (own, others))
            raise UserError(f"{block.name} is {own}, {first.name} is {others}; {remedy}")
    if abs(block.X.shape[2] - first.X.shape[2]) > slack:
        raise UserError(
            f"{block.name} has windows of {block.X.shape[2]} samples, {first.name} of {first.X.shape[2]}; "
            "cut windows of one length, --window SECONDS"
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
