"""MOABB's collection of EEG data sets, with its own download and cache: `moabb:NAME`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from ..errors import UserError
from .blocks import concatenate
from .epochs import quiet, read_epochs
from .optional import need, one_line_errors
from .raw import Raw

# The paradigm class for the paradigm that a dataset states.
PARADIGMS = {
    "imagery": "MotorImagery",
    "p300": "P300",
    "ssvep": "SSVEP",
    "cvep": "CVEP",
    "rstate": "RestingStateToP300Adapter",
}
PURPOSE = "reading MOABB's data sets"
DOWNLOADING = "check the network connection and the disk space"


def read_moabb(name: str) -> Raw:
    """Return all subjects of the dataset with this name."""
    with one_line_errors("MOABB cannot be imported", "pip install --force-reinstall moabb"):
        datasets = need("moabb.datasets", PURPOSE, "moabb")
        base = need("moabb.datasets.base", PURPOSE, "moabb").BaseDataset
    known = {key: kind for key, kind in vars(datasets).items() if isinstance(kind, type) and issubclass(kind, base)}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
        advice = f"did you mean {', '.join(close)}?" if close else "such as BNCI2014_001 or PhysionetMI"
        raise UserError(f"MOABB has no data set {name!r}; {advice}")
    with one_line_errors(f"MOABB cannot load {name}", DOWNLOADING):
        dataset = known[name]()
    return raw_from_moabb(dataset)


def raw_from_moabb(dataset: Any) -> Raw:
    """Return the windows of a dataset in microvolts, with the default paradigm for its type."""
    # MNE resamples 3 s to 384 or 385 samples at 128 Hz.
    return concatenate(_blocks(dataset), name=type(dataset).__name__, slack=1)


def _blocks(dataset: Any) -> Iterator[Raw]:
    """Yield one subject at a time, so that memory holds little more than the float32 windows."""
    name, paradigm = type(dataset).__name__, _make_paradigm(dataset)
    for subject in dataset.subject_list:
        with (
            one_line_errors(f"MOABB cannot load {name}, subject {subject}", DOWNLOADING),
            quiet(need("mne", PURPOSE, "moabb")),
        ):
            epochs, labels, about = paradigm.get_data(dataset, subjects=[subject], return_epochs=True)
            block = read_epochs(epochs, f"subject {subject} of {name}")
            block.subject = [subject] * len(block.X)
            block.X *= dataset.unit_factor  # to microvolts, as MOABB's own pipelines get them
            block.unit = "µV" if dataset.unit_factor == 1e6 else None
            block.y = list(labels)
            block.session = about["session"].tolist()
            block.columns = {name: about[name].tolist() for name in about.columns}  # such as run
        yield block


def _make_paradigm(dataset: Any) -> Any:
    paradigms = need("moabb.paradigms", PURPOSE, "moabb")
    if dataset.paradigm not in PARADIGMS:
        raise UserError(
            f"{type(dataset).__name__} has the paradigm {dataset.paradigm!r}, not one of {', '.join(PARADIGMS)}; cut "
            "its epochs and use Recordings.from_epochs(epochs)"
        )
    name = PARADIGMS[dataset.paradigm]
    options: dict[str, Any] = {}
    if name in ("MotorImagery", "SSVEP", "CVEP"):  # avoids a warning that all events are used
        options = {"events": list(dataset.event_id), "n_classes": len(dataset.event_id)}
    return getattr(paradigms, name)(**options)
