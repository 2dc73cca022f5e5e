"""Overview of recordings in one line, or in a table with probable mistakes before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ..errors import UserError
from ..words import printable, shorten
from .concerns import UNKNOWN_RATE, Study, find_concerns
from .container import Recordings, check_enough, measurement_in
from .cutting import GROUP
from .labels import as_list, unlabeled_warning
from .raw import Raw
from .signal import Signal, list_names
from .windows import axes_concern

MOST_SUBJECTS = 40  # rows of the table
MOST_LETTERS = 80  # maximum length of a list of names
MEASUREMENTS = "y holds measurements, not classes; to predict them: autotransfer run --target continuous"


def describe(recordings: Recordings) -> str:
    """Return one line with the subjects, the number and shape of windows, the rate, the unit and the classes."""
    return printable(f"Read {recordings.shape_words()}; {recordings.target_words()}")


def summarize(raw: Raw) -> Iterator[str]:
    """Yield lines that describe windows; y that holds measurements is ignored."""
    study, missing = Study.from_raw(raw), []
    if raw.y is not None and raw.classes is None and measurement_in(study.classes) is not None:
        study, missing = Study.from_raw(replace(raw, y=None)), [MEASUREMENTS]
    raw, n = study.raw, len(study.X)
    warned = [
        axes_concern(tuple(study.X.shape), study.channels),
        unlabeled_warning(study.unlabeled, n + study.unlabeled),
    ]
    found = [*(line for line in warned if line), *[UNKNOWN_RATE] * (raw.sfreq is None), *find_concerns(study)]
    try:
        if not missing:
            raw.labeled()
            check_enough(study.classes, study.subjects)
    except UserError as error:
        missing.append(str(error))
    missing += [raw.hints["window"]] if "window" in raw.hints else []
    yield raw.name
    for what, value in _facts(study).items():
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


def _facts(study: Study) -> dict[str, str]:
    """Return counts and names, by the heading of their line."""
    raw, signal = study.raw, Signal.from_raw(study.raw)
    sfreq = signal.sfreq
    n, n_channels, n_times = (int(size) for size in study.X.shape)
    classes = zip(study.classes, study.counts.sum(0).tolist(), strict=True)
    facts = {
        "windows": f"{n} of {n_times} samples" + (f" ({n_times / sfreq:.3g} s at {sfreq:g} Hz)" if sfreq else ""),
        "sampling rate": f"{sfreq:g} Hz ({signal.sources['sfreq']})" if sfreq else "unknown",
        "filter": "unknown" if signal.filter is None else signal.filter.describe(),
        "channels": f"{n_channels}: {list_names(study.channels, MOST_LETTERS)}",
        "classes": "unknown" if raw.y is None else ", ".join(f"{name} {k}" for name, k in classes),
        "subjects": "unknown" if raw.subject is None else str(len(study.subjects)),
    }
    facts |= {name: value for name in ("unit", "reference") if (value := getattr(signal, name)) is not None}
    facts |= {"gaps": "some samples are missing; no window spans a gap"} if signal.has_gaps else {}
    if raw.session is not None:
        pairs = set(zip(study.subject.tolist(), as_list(raw.session, "session"), strict=True))
        sessions = Counter(subject for subject, _ in pairs).values()
        low, high = min(sessions), max(sessions)
        facts["sessions"] = f"{low if low == high else f'{low} to {high}'} per subject"
    if columns := [name for name in raw.columns or () if name != GROUP]:
        facts["other columns"] = list_names(columns, MOST_LETTERS)
    return facts


def _table(study: Study) -> Iterator[str]:
    """Yield the number of windows of each subject and class."""
    import pandas as pd

    subjects = [shorten(str(name), 20) for name in study.subjects]
    classes = [shorten(str(name), 12) for name in study.classes]
    table = pd.DataFrame(study.counts, subjects, classes).head(MOST_SUBJECTS)
    yield from table.to_string(col_space=7).splitlines()
    if len(subjects) > MOST_SUBJECTS:
        yield f"… and {len(subjects) - MOST_SUBJECTS} more"
