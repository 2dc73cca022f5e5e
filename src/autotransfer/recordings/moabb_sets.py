"""MOABB's collection of EEG data sets, through its own download and cache: `moabb:NAME`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import UserError, one_line, shown
from .blocks import Block, stacked
from .epochs import epochs_block, quiet
from .labels import as_list
from .optional import need
from .raw import Raw

# The paradigm attribute of a dataset, and the default paradigm class for it.
PARADIGMS = {
    "imagery": "MotorImagery",
    "p300": "P300",
    "ssvep": "SSVEP",
    "cvep": "CVEP",
    "rstate": "RestingStateToP300Adapter",
}
DOWNLOADING = "check the network connection, the disk space and the options of the paradigm"


def read_moabb(name: str) -> Raw:
    """Return all subjects of the dataset with this name."""
    with _quietly("MOABB cannot be imported", "pip install --force-reinstall moabb"):
        datasets = need("moabb.datasets", "reading MOABB's data sets", "moabb")
        base = need("moabb.datasets.base", "reading MOABB's data sets", "moabb").BaseDataset
    known = {key: kind for key, kind in vars(datasets).items() if isinstance(kind, type) and issubclass(kind, base)}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
        advice = f"did you mean {', '.join(close)}?" if close else "such as BNCI2014_001 or PhysionetMI"
        raise UserError(f"MOABB has no data set {name!r}; {advice}")
    with _quietly(f"MOABB cannot give {name}", DOWNLOADING):
        dataset = known[name]()
    return raw_from_moabb(dataset)


def raw_from_moabb(dataset: Any, paradigm: Any = None, subjects: object = None) -> Raw:
    """Return what Recordings.from_moabb documents, before it is checked."""
    need("moabb", "reading MOABB's data sets", "moabb")
    if not all(hasattr(dataset, field) for field in ("subject_list", "event_id", "paradigm")):
        raise UserError(f"dataset is {shown(dataset)}; give a dataset of moabb.datasets")
    name, cut = type(dataset).__name__, _default_paradigm(dataset) if paradigm is None else paradigm
    if not hasattr(cut, "get_data"):
        raise UserError(f"paradigm is {shown(paradigm)}; give a paradigm of moabb.paradigms")
    if not cut.is_valid(dataset):
        raise UserError(
            f"{name} has the paradigm {dataset.paradigm!r} and the events {shown(list(dataset.event_id))}, "
            f"which {type(cut).__name__} does not support; omit the paradigm, or choose another"
        )
    if len(getattr(cut, "filters", None) or ()) != 1:
        raise UserError(f"{type(cut).__name__} makes several copies of the signal; choose a paradigm with one filter")
    there = list(dataset.subject_list)
    wanted = there if subjects is None else list(dict.fromkeys(as_list(subjects, "subjects")))
    if strange := [subject for subject in wanted if subject not in there]:
        raise UserError(f"{name} has no subject {shown(strange[0])}; there are {shown(there)}")
    blocks = _blocks(dataset, name, cut, wanted)
    return stacked(blocks, name=name, slack=1)  # MNE resamples 3 s to 384 or 385 samples at 128 Hz


def _blocks(dataset: Any, name: str, paradigm: Any, subjects: list[Any]) -> Iterator[Block]:
    """Yield one subject at a time, so that memory holds little more than the float32 windows."""
    for subject in subjects:
        with _quietly(f"MOABB cannot give {name}, subject {subject}", DOWNLOADING):
            epochs, labels, about = paradigm.get_data(dataset, subjects=[subject], return_epochs=True)
            part = epochs_block(epochs, f"subject {subject} of {name}", who=subject)
            part.X *= dataset.unit_factor  # to microvolts, as MOABB's own pipelines get them
            part.y = list(labels)
            part.session = about["session"].tolist()
            part.columns = {name: about[name].tolist() for name in about.columns}  # such as run
        yield part


def _default_paradigm(dataset: Any) -> Any:
    paradigms = need("moabb.paradigms", "reading MOABB's data sets", "moabb")
    if dataset.paradigm not in PARADIGMS:
        raise UserError(
            f"{type(dataset).__name__} has the paradigm {dataset.paradigm!r}, for which there is no default class; "
            "give one: Recordings.from_moabb(dataset, paradigm)"
        )
    name = PARADIGMS[dataset.paradigm]
    options: dict[str, Any] = {}
    if name in ("MotorImagery", "SSVEP", "CVEP"):  # avoids a warning that all events are used
        options = {"events": list(dataset.event_id), "n_classes": len(dataset.event_id)}
    with _quietly(f"the paradigm {name} cannot be made with {shown(options)}", "give one"):
        return getattr(paradigms, name)(**options)


@contextmanager
def _quietly(problem: str, remedy: str) -> Iterator[None]:
    """Silence MNE's logs and warnings; any exception, such as of a download, becomes one line."""
    mne = need("mne", "reading MOABB's data sets", "moabb")
    try:
        with quiet(mne):
            yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{problem} ({one_line(error)}); {remedy}") from error
