"""Overview: what recordings hold, before anything is trained: counts and concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..words import count, printable
from .concerns import UNKNOWN_RATE, Study, concerns
from .container import Recordings, check_sfreq, measurement_in
from .labels import as_list, unlabeled_warning
from .raw import Raw
from .windows import axes_concern

MOST_PEOPLE = 40  # rows of the table
MOST_LETTERS = 80  # of a list of names
MOST_CLASSES = 5  # names of classes in the line of `describe`
MEASUREMENTS = "y holds measurements, and no classes; to predict them: autotransfer run --target continuous"


def describe(recordings: Recordings) -> str:
    """Return one line on what was read: numbers of subjects and windows, shape, duration and rate, and classes."""
    sfreq, names = recordings.sfreq, [_short(str(name), 20) for name in recordings.classes]
    rate = "sampling rate unknown" if sfreq is None else f"{recordings.n_times / sfreq:.3g} s at {sfreq:g} Hz"
    more = f" and {len(names) - MOST_CLASSES} more" if len(names) > MOST_CLASSES else ""
    predicted = f"classes: {', '.join(names[:MOST_CLASSES])}{more}"
    if recordings.targets is not None:
        predicted = f"target from {recordings.targets.min():g} to {recordings.targets.max():g}"
    return printable(
        f"Read {count(len(recordings.people), 'subject')}, {count(recordings.n_windows, 'window')} of "
        f"{count(recordings.n_channels, 'channel')} × {recordings.n_times} samples ({rate}); {predicted}"
    )


def overview(raw: Raw) -> Iterator[str]:
    """Yield lines about what a reader returned, with or without labels. A y of measurements counts as no classes."""
    study, missing = Study.from_raw(raw), []
    if raw.y is not None and raw.classes is None and measurement_in(study.classes) is not None:
        study, missing = Study.from_raw(replace(raw, y=None)), [MEASUREMENTS]
    (raw, X, person, people, _, classes, counts, channels, unlabeled) = study
    n, n_channels, n_times = (int(size) for size in X.shape)
    read = [axes_concern(tuple(X.shape), channels), unlabeled_warning(unlabeled, n + unlabeled)]
    found = [*(line for line in read if line), *[UNKNOWN_RATE] * (raw.sfreq is None), *concerns(study)]
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
        "channels": f"{n_channels}: {_listed(channels)}",
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
        yield ""
        yield from _table(study)
    yield ""
    yield from raw.notes
    for line in (*missing, *found):
        yield f"! {line}"
    if not missing and not found:
        yield "nothing looks wrong"


def _table(study: Study) -> Iterator[str]:
    """Yield the trials of each person and class."""
    import pandas as pd

    people, classes = [_short(str(who), 20) for who in study.people], [_short(str(name), 12) for name in study.classes]
    table = pd.DataFrame(study.counts, people, classes).head(MOST_PEOPLE)
    yield from table.to_string(col_space=7).splitlines()
    if len(people) > MOST_PEOPLE:
        yield f"… and {len(people) - MOST_PEOPLE} more"


def _listed(names: Iterable[str]) -> str:
    return printable(_short(", ".join(map(str, names)), MOST_LETTERS))


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
