"""Concatenation of blocks of windows, usually one per subject or file, without a second copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ..errors import UserError, shown
from .labels import plain_columns
from .raw import Array, Label, Raw, get_stated


def concatenate(blocks: Iterable[Raw], *, name: str, hints: Mapping[str, str] | None = None, slack: int = 0) -> Raw:
    """Concatenate blocks and release their X. Windows that differ by at most `slack` samples are cropped."""
    parts: list[Raw] = []
    for block in blocks:
        if len(block.X) == 0:
            raise UserError(f"{block.name} holds no windows; leave it out")
        if parts:
            _match(block, parts[0], slack)
        parts.append(block)
    if not parts:
        raise UserError(f"{name!r} holds no recordings")
    tables = [part.columns or {} for part in parts]
    common = [column for column in tables[0] if all(column in table for table in tables)]
    properties = get_stated(parts[0]) | {"has_gaps": any(part.has_gaps for part in parts) or parts[0].has_gaps}
    notes = list[str]()
    for field in ("unit", "filter"):
        if other := next((part for part in parts if getattr(part, field) != properties[field]), None):
            values = [f"{part.name} {getattr(part, field) or 'none'}" for part in (parts[0], other)]
            notes.append(f"the {field} differs between recordings ({', '.join(values)}), so it counts as unknown")
            properties[field] = None
    return Raw(
        y=_join([part.y for part in parts]),
        subject=_join([part.subject for part in parts]),
        session=_join([part.session for part in parts]),
        columns=plain_columns({column: [value for table in tables for value in table[column]] for column in common}),
        name=name,
        hints=hints or {},
        notes=tuple(notes),
        X=_join_windows(parts),
        **properties,
    )


def _match(block: Raw, first: Raw, slack: int) -> None:
    """Reorder the channels of a block as in the first block; raise if the blocks differ otherwise."""
    if sorted(block.channels) == sorted(first.channels):
        block.X = block.X[:, [block.channels.index(name) for name in first.channels]]
        block.channels = first.channels
    for larger, smaller in ((first, block), (block, first)):
        if extra := [name for name in larger.channels if name not in smaller.channels]:
            raise UserError(
                f"{larger.name} has the channel {shown(extra[0])}, {smaller.name} does not have it; leave it out"
            )
    rates = np.array([block.sfreq, first.sfreq], dtype=np.float64)  # NaN for None
    if not np.isclose(rates[0], rates[1], atol=1e-9, rtol=1e-6, equal_nan=True):
        stated = ["an unknown sampling rate" if np.isnan(hz) else f"a sampling rate of {hz:g} Hz" for hz in rates]
        raise UserError(f"{block.name} has {stated[0]}, {first.name} has {stated[1]}; resample all to the same rate")
    if None not in (block.unit, first.unit) and block.unit != first.unit:
        raise UserError(f"{block.name} has the unit {shown(block.unit)}, {first.name} {shown(first.unit)}; convert one")
    if abs(block.X.shape[2] - first.X.shape[2]) > slack:
        raise UserError(
            f"{block.name} has windows of {block.X.shape[2]} samples, {first.name} of {first.X.shape[2]}; "
            "cut windows of one length with --window SECONDS"
        )


def _join_windows(parts: list[Raw]) -> Array:
    """Concatenate windows; the windows of each part are released once they are copied."""
    if len(parts) == 1:
        single: Array = parts[0].X
        return single
    n_times = min(part.X.shape[2] for part in parts)
    X = np.empty((sum(len(part.X) for part in parts), len(parts[0].channels), n_times), np.float32)
    start = 0
    for part in parts:
        X[start : start + len(part.X)] = part.X[:, :, :n_times]
        start += len(part.X)
        part.X = None
    return X


def _join(lists: list[list[Label] | None]) -> list[Label] | None:
    """Concatenate lists of labels; None if one list is unknown."""
    known = [labels for labels in lists if labels is not None]
    return [label for labels in known for label in labels] if len(known) == len(lists) else None
