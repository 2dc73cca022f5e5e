"""MOABB's collection of EEG data sets, through its own download and cache: `moabb:NAME`, `moabb:NAME/PARADIGM`.

Options follow a question mark, as in `moabb:PhysionetMI/LeftRightImagery?subjects=1-20&resample=128`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import UserError, check_choice
from .blocks import Block, stacked
from .columns import plain_columns
from .epochs import block, quiet
from .labels import as_list
from .messages import reason, show
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
MORE_PARADIGMS = ("LeftRightImagery", "SpeechImagery")
NUMBERS = ("fmin", "fmax", "tmin", "tmax", "resample")  # options handed to the paradigm
DOWNLOADING = "check the network connection, the disk space and the options of the paradigm"


def read_moabb(text: str) -> Raw:
    """The source on the command line: NAME or NAME/PARADIGM, optionally with ?option=value&option=value."""
    source, _, rest = text.partition("?")
    name, _, paradigm = source.partition("/")
    options = _options(rest)
    subjects = options.pop("subjects", None)
    return raw_from_moabb(name, paradigm or None, subjects, **options)


def raw_from_moabb(dataset: object, paradigm: object = None, subjects: object = None, **options: Any) -> Raw:
    """What Recordings.from_moabb documents, before it is checked; `options` of a paradigm given by name."""
    need("moabb", "reading MOABB's data sets", "moabb")
    known: Any = _dataset(dataset) if isinstance(dataset, str) else dataset
    if not all(hasattr(known, field) for field in ("subject_list", "event_id", "paradigm")):
        raise UserError(f"dataset is {show(dataset)}; give a dataset of moabb.datasets, or its name")
    name = type(known).__name__
    cut: Any = _paradigm(known, paradigm, options) if paradigm is None or isinstance(paradigm, str) else paradigm
    if not hasattr(cut, "get_data"):
        raise UserError(f"paradigm is {show(paradigm)}; give a paradigm of moabb.paradigms, or its name")
    if not cut.is_valid(known):
        raise UserError(
            f"{name} has the paradigm {known.paradigm!r} and the events {show(list(known.event_id))}, "
            f"which {type(cut).__name__} does not support; omit the paradigm, or choose another"
        )
    bank = getattr(cut, "filters", None)
    if bank is None or len(bank) != 1:
        raise UserError(f"{type(cut).__name__} makes several copies of the signal; choose a paradigm with one filter")
    blocks = _blocks(known, name, cut, _chosen(known, name, subjects))
    return stacked(blocks, name=name, slack=1)  # MNE resamples 3 s to 384 or 385 samples at 128 Hz


def _blocks(dataset: Any, name: str, paradigm: Any, subjects: list[Any]) -> Iterator[Block]:
    """One subject at a time, so that memory holds little more than the float32 windows."""
    for subject in subjects:
        with _quietly(f"MOABB cannot give {name}, subject {subject}", DOWNLOADING):
            epochs, labels, about = paradigm.get_data(dataset, subjects=[subject], return_epochs=True)
            part = block(epochs, f"subject {subject} of {name}", who=subject)
            part.X *= dataset.unit_factor  # to microvolts, as MOABB's own pipelines get them
            part.y = list(labels)
            part.session = about["session"].tolist()
            part.columns = plain_columns({name: about[name].tolist() for name in about.columns})  # such as run
        yield part


def _chosen(dataset: Any, name: str, subjects: object) -> list[Any]:
    there = list(dataset.subject_list)
    wanted = there if subjects is None else list(dict.fromkeys(as_list(subjects, "subjects")))
    if strange := [subject for subject in wanted if subject not in there]:
        raise UserError(f"{name} has no subject {show(strange[0])}; there are {show(there)}")
    return wanted


def _dataset(name: str) -> Any:
    with _quietly("MOABB cannot be imported", "pip install --force-reinstall moabb"):
        datasets = need("moabb.datasets", "reading MOABB's data sets", "moabb")
        base = need("moabb.datasets.base", "reading MOABB's data sets", "moabb").BaseDataset
    known = {key: kind for key, kind in vars(datasets).items() if isinstance(kind, type) and issubclass(kind, base)}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
        advice = f"did you mean {', '.join(close)}?" if close else "such as BNCI2014_001 or PhysionetMI"
        raise UserError(f"MOABB has no data set {name!r}; {advice}")
    with _quietly(f"MOABB cannot give {name}", DOWNLOADING):
        return known[name]()


def _paradigm(dataset: Any, name: str | None, options: dict[str, Any]) -> Any:
    paradigms = need("moabb.paradigms", "reading MOABB's data sets", "moabb")
    if name is None:
        if dataset.paradigm not in PARADIGMS:
            raise UserError(
                f"{type(dataset).__name__} has the paradigm {dataset.paradigm!r}, for which there is no default class; "
                f"give one: Recordings.from_moabb(dataset, paradigm)"
            )
        name = PARADIGMS[dataset.paradigm]
    check_choice("paradigm of MOABB", name, (*PARADIGMS.values(), *MORE_PARADIGMS))
    if name in ("MotorImagery", "SSVEP", "CVEP"):  # avoids a warning that all events are used
        options = {"events": list(dataset.event_id), "n_classes": len(dataset.event_id), **options}
    with _quietly(f"the paradigm {name} cannot be made with {show(options)}", "correct its options"):
        return getattr(paradigms, name)(**options)


def _options(text: str) -> dict[str, Any]:
    """Parse subjects=1,2,5-9 and the NUMBERS."""
    options: dict[str, Any] = {}
    for part in filter(None, text.split("&")):
        key, _, value = part.partition("=")
        check_choice("option of moabb:", key, ("subjects", *NUMBERS))
        try:
            if key == "subjects":
                spans = [span.partition("-") for span in value.split(",")]
                options[key] = [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]
            else:
                options[key] = float(value)
        except ValueError:
            raise UserError(
                f"the option {part!r} of moabb: is not understood; write subjects=1,2,5-9 or fmin=8"
            ) from None
    return options


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
        raise UserError(f"{problem} ({reason(error)}); {remedy}") from error
