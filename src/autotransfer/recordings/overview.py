"""Overview: what recordings hold, before anything is trained: counts and concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..words import count, printable
from .concerns import codes_of, concerns
from .container import check_sfreq, measurement_in
from .labels import as_list, without_unlabelled
from .raw import Raw
from .windows import names_or_numbers, window_array

MOST_PEOPLE = 40  # rows of the table
MOST_LETTERS = 80  # of a list of names
MEASUREMENTS = "y holds measurements, and no classes; to predict them: autotransfer run --target continuous"


def overview(raw: Raw) -> Iterator[str]:
    """Yield lines about what a reader returned, with or without labels. A y of measurements counts as no classes."""
    raw = replace(raw, X=window_array(raw.X))
    missing = []
    if raw.y is not None and raw.classes is None:
        labelled, _ = without_unlabelled(raw)
        if measurement_in(codes_of(labelled.y, len(labelled.X), "y", None)[1]) is not None:
            raw, missing = replace(raw, y=None), [MEASUREMENTS]
    found = concerns(raw)
    raw, _ = without_unlabelled(raw)
    n, n_channels, n_times = (int(size) for size in raw.X.shape)
    label, classes = codes_of(raw.y, n, "y", raw.classes)
    person, people = codes_of(raw.subject, n, "subject", raw.subjects)
    counts = np.zeros((len(people), len(classes)), np.int64)
    np.add.at(counts, (person, label), 1)
    if raw.y is None and not missing:
        missing.append(f"no classes are known; to train, {raw.hints.get('y', 'y must give one per trial')}")
    if raw.subject is None:
        missing.append(f"no people are known; to train, {raw.hints.get('subject', 'subject must give one per trial')}")
    if raw.subject is not None and len(people) < 3:
        missing.append(f"{count(len(people), 'person', 'people')}: to train, at least 3 are needed")
    if raw.y is not None and len(classes) < 2:
        missing.append("one class: to train, at least 2 are needed")
    sfreq = check_sfreq(raw.sfreq)
    facts = {
        "windows": f"{n} of {n_times} samples" + (f" ({n_times / sfreq:.3g} s at {sfreq:g} Hz)" if sfreq else ""),
        "sampling rate": f"{sfreq:g} Hz" if sfreq else "unknown",
        "channels": f"{n_channels}: {_listed(names_or_numbers(raw.channels, n_channels))}",
        "classes": ", ".join(f"{name} {k}" for name, k in zip(classes, counts.sum(0).tolist(), strict=True)),
        "people": "unknown" if raw.subject is None else str(len(people)),
    }
    if raw.y is None:
        facts["classes"] = "unknown"
    if raw.session is not None:
        owners = Counter(s for s, _ in set(zip(person.tolist(), as_list(raw.session, "session"), strict=True)))
        low, high = min(owners.values()), max(owners.values())
        facts["sessions"] = f"{low if low == high else f'{low} to {high}'} per person"
    if names := list(getattr(raw.columns, "keys", list)()):
        facts["columns"] = _listed(names)
    yield raw.name
    for what, value in facts.items():
        yield f"  {what:<14} {value}"
    if raw.subject is not None and raw.y is not None:
        yield from _table(list(map(str, people)), list(map(str, classes)), counts)
    yield ""
    yield from raw.notes
    for line in (*missing, *found):
        yield f"! {line}"
    if not missing and not found:
        yield "nothing looks wrong"


def _table(people: list[str], classes: list[str], counts: NDArray[np.int64]) -> Iterator[str]:
    """Yield the trials of each person and class."""
    rows = [["person", *(_short(name, 12) for name in classes)]]
    rows += [[_short(who, 20), *map(str, row)] for who, row in zip(people, counts.tolist(), strict=True)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    yield ""
    for name, *cells in rows[: MOST_PEOPLE + 1]:
        numbers = (cell.rjust(max(width, 5)) for cell, width in zip(cells, widths[1:], strict=True))
        yield f"  {name:<{widths[0]}}  " + "  ".join(numbers)
    if len(people) > MOST_PEOPLE:
        yield f"  … and {len(people) - MOST_PEOPLE} more"


def _listed(names: list[str]) -> str:
    return printable(_short(", ".join(map(str, names)), MOST_LETTERS))


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
