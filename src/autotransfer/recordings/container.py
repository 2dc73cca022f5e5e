"""Recordings: labeled windows of several subjects, validated when created."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from ..errors import UserError, shown
from ..words import count
from .filters import Filter, parse_filter
from .labels import Column, encode, encode_columns, encode_session, unlabeled_warning, without_unlabeled
from .raw import STORED, Label, Raw
from .units import Units
from .windows import as_window_array, axes_concern, channel_names, float32_windows

T = TypeVar("T")

MIN_SUBJECTS = 3
MOST_FRACTIONS = 20  # different labels that are no whole numbers: more of them are measurements


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Recordings:
    """Windows of biosignals with class and subject labels. X has raw values: standardization is part of a Setting.

    `y` and `subject` are numbers or text. Values that are equal in Python, such as 1, 1.0 and True, are one label. They
    are stored as integers 0, 1, ..., with their labels in `classes` and `subjects`, which may also be given for
    integers.
    `columns` are further values of every window by name, from a dict or a DataFrame. Whole numbers and text are labels
    of groups, other numbers are continuous; None, NaN and empty text are missing. Windows whose `y` is missing are left
    out, with a warning; with `classes`, -1 is missing, too.
    `filter` is the filter of the signals, {'highpass': Hz, 'lowpass': Hz, 'notch': [Hz]}, which a model also applies to
    streams.
    A float32 X is not copied, so do not write to it afterwards; a memory-mapped file stays memory-mapped.
    """

    X: Tensor  # (N, channels, times) float32
    y: Tensor  # (N,) int64, 0..n_classes-1
    subject: Tensor  # (N,) int64, 0..n_subjects-1
    session: Tensor | None  # (N,) int64
    columns: dict[str, Column]  # what else is known of each trial
    sfreq: float | None  # Hz
    channels: tuple[str, ...]
    classes: tuple[Label, ...]
    subjects: tuple[Label, ...]
    name: str
    filter: Filter | None  # how the signals were filtered, where that is known

    derived: ClassVar[dict[Any, Any]]  # of each object: values computed from these recordings, freed with them
    # Of an object whose `subject` counts parts of people, which are held out in turn (see folds.use_units).
    units: ClassVar[Units | None] = None
    # Of an object whose classes are bins of numbers (see recordings.targets): the numbers (N,) float64.
    targets: ClassVar[Tensor | None] = None
    target: ClassVar[str] = "classes"  # of each object: what a run predicts, as --target names it

    def __init__(
        self,
        X: object,
        y: object,
        subject: object,
        session: object = None,
        sfreq: object = None,
        channels: object = None,
        classes: object = None,
        subjects: object = None,
        name: str = "recordings",
        columns: object = None,
        filter: object = None,
    ) -> None:
        if not isinstance(name, str):
            raise UserError(f"name is {shown(name)}; it must be a string")
        source = as_window_array(X)
        names = channel_names(channels, source.shape[1])
        raw = Raw(X=source, y=y, subject=subject, session=session, columns=columns, classes=classes)
        raw, missing = without_unlabeled(raw)
        warned = [unlabeled_warning(missing, source.shape[0]), axes_concern(source.shape, names)]
        source, y, subject, session, columns = raw.X, raw.y, raw.subject, raw.session, raw.columns
        n_windows = source.shape[0]
        y_codes, class_names = encode(y, n_windows, "y", classes)
        if (fraction := measurement_in(class_names)) is not None:
            raise UserError(
                f"y holds {len(class_names)} different numbers such as {fraction:g}: measurements, and this is for "
                "classes only; to predict numbers: autotransfer run --target continuous (AutoTransferRegressor)"
            )
        subject_codes, subject_names = encode(subject, n_windows, "subject", subjects)
        _check_enough(class_names, subject_names)
        for warning in (warning for warning in warned if warning is not None):
            warnings.warn(warning, stacklevel=2)
        fields = {
            "y": y_codes,
            "subject": subject_codes,
            "session": None if session is None else encode_session(session, n_windows),
            "columns": encode_columns(columns, n_windows),
            "sfreq": check_sfreq(sfreq),
            "channels": names,
            "classes": class_names,
            "subjects": subject_names,
            "name": name,
            "filter": parse_filter(filter, check_sfreq(sfreq)),
            "X": float32_windows(source, names, allow_constant=False),  # last: the one slow check
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        object.__setattr__(self, "derived", {})

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"derived": {}}

    def compute_once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what `compute` returns, and keep it in `derived`: later calls return the same object."""
        if key not in self.derived:
            self.derived[key] = compute()
        value: T = self.derived[key]
        return value

    def for_target(self, target: str) -> Recordings:
        """Return the recordings for a run that predicts this target."""
        if target == self.target:
            return self
        fresh = copy.copy(self)
        object.__setattr__(fresh, "target", target)
        return fresh

    @classmethod
    def from_raw(cls, raw: Raw) -> Recordings:
        """Make recordings from what a reader returned, and validate them."""
        return cls(**raw.labeled())

    def raw(self) -> Raw:
        """Return the data in the form in which a reader returns them, without y if it holds numbers."""
        stored = {name: getattr(self, name) for name in STORED}
        stored |= {} if self.targets is None else {"y": None, "classes": None}
        return Raw(**stored)

    @classmethod
    def from_epochs(
        cls, epochs: object, subject: str | None = None, session: str | None = None, label: str | None = None
    ) -> Recordings:
        """Make recordings of MNE epochs: one `mne.Epochs` of all subjects, or a list or dict with those of each.

        `subject`, `session` and `label` are columns of the metadata. Without `subject`, subjects are the keys of a
        dict, the positions in a list, or in one object the metadata column "subject" or "participant_id". y holds the
        names of the events unless there is a `label`. Other columns of numbers or text that everybody has become
        `columns`, and "session" the session. X has MNE's data channels or, if there are none, every channel but the
        triggers, also those marked bad, in MNE's units, such as volts. Subjects must share channels, sampling rate and
        window.
        """
        from .epochs import raw_from_epochs

        return cls.from_raw(raw_from_epochs(epochs, subject, session, label))

    @classmethod
    def from_moabb(cls, dataset: object, paradigm: object = None, subjects: object = None) -> Recordings:
        """Make recordings of a MOABB dataset with a paradigm, the default one for its type unless given.

        MOABB downloads missing data. Its paradigm filters and epochs them; values are in microvolts.
        `subjects`: numbers of the subjects to load; all by default.
        """
        from .moabb_sets import raw_from_moabb

        return cls.from_raw(raw_from_moabb(dataset, paradigm, subjects))

    @property
    def truth(self) -> Tensor:
        """Return what is predicted for each window (N,): its class, or its number."""
        return self.y if self.targets is None else self.targets

    @property
    def n_windows(self) -> int:
        return self.X.shape[0]

    @property
    def n_channels(self) -> int:
        return self.X.shape[1]

    @property
    def n_times(self) -> int:
        return self.X.shape[2]

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_subjects(self) -> int:
        return len(self.subjects)

    @property
    def people(self) -> tuple[Label, ...]:
        """Return names of the people, whatever `subject` counts."""
        return self.subjects if self.units is None else self.units.everybody

    def __repr__(self) -> str:
        window = f"{self.n_times} samples"
        if self.sfreq is not None:
            window += f" ({self.n_times / self.sfreq:.3g} s at {self.sfreq:g} Hz)"
        n = 0 if self.session is None else len(set(self.session.tolist()))
        sessions = f", {n} session{'s' * (n > 1)}" if n else ""
        predicted = f"{self.n_classes} classes"
        if self.targets is not None:
            predicted = f"target from {self.targets.min():g} to {self.targets.max():g}"
        return (
            f"<Recordings {self.name!r}: {self.n_windows} trials × {self.n_channels} channels × {window}, "
            f"{predicted}, {len(self.people)} subjects{sessions}>"
        )


def _check_enough(classes: tuple[Label, ...], subjects: tuple[Label, ...]) -> None:
    if len(subjects) < MIN_SUBJECTS:
        names = ", ".join(shown(label) for label in subjects)
        raise UserError(
            f"there {'is' if len(subjects) == 1 else 'are'} {count(len(subjects), 'subject')} ({names}); at least "
            f"{MIN_SUBJECTS} are needed, for training, validation and testing; windows of new people "
            "go to predict of a trained model"
        )
    if len(classes) < 2:
        raise UserError(f"every trial is of the class {shown(classes[0])}; at least 2 classes are needed")


def measurement_in(classes: tuple[Label, ...]) -> float | None:
    """Return a label that shows that labels are measurements, and no classes; None if they may be classes."""
    fraction = next((label for label in classes if isinstance(label, float) and not label.is_integer()), None)
    return fraction if len(classes) > MOST_FRACTIONS else None


def check_recordings(recordings: object, what: str) -> None:
    """Raise unless these are Recordings. what: what needs them."""
    if not isinstance(recordings, Recordings):
        raise UserError(
            f"{what} needs Recordings, not {type(recordings).__name__}; make them with at.Recordings or at.load"
        )


def check_sfreq(sfreq: Any) -> float | None:
    """Return the sampling rate in Hz as a float, or None when it is unknown."""
    if sfreq is None:
        return None
    try:
        value = math.nan if isinstance(sfreq, (bool, str, bytes)) else float(sfreq)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"sfreq is {shown(sfreq)}; it must be a positive number of samples per second, or None")
    return value
