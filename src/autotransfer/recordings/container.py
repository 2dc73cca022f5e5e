"""Recordings: labeled windows of several subjects, validated when they are created."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from ..errors import UserError, shown
from ..words import count, printable
from .labels import Column, encode, encode_columns, encode_session, unlabeled_warning, without_unlabeled
from .raw import STORED, Label, Raw, get_stated
from .signal import Signal, list_names
from .units import Units
from .windows import as_window_array, axes_concern, float32_windows

T = TypeVar("T")

MIN_SUBJECTS = 3
MOST_FRACTIONS = 20  # if y has more different numbers and some have a fraction, they are measurements, not classes
MOST_LETTERS = 100  # letters of the names of classes in one line


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Recordings:
    """Windows of biosignals with a class and a subject each.

    Labels are stored as integers 0, 1, ... with their names in `classes` and `subjects`. Windows without a label (None,
    NaN, empty text, or -1 if `classes` are given) are left out with a warning. A float32 X is not copied, so do not
    write to it afterwards.

    Parameters
    ----------
    X : array or Tensor (N, channels, times)
        Raw values; standardization belongs to a Setting.
    y, subject : sequence (N,)
        Class and subject of each window, numbers or text.
    session : sequence (N,), optional
        Recording session of each window.
    sfreq : float, optional
        Sampling rate in Hz.
    channels, classes, subjects : sequence of str, optional
        Names, by position.
    name : str
        Name of the data set.
    columns : dict or DataFrame, optional
        Further values of each window: whole numbers and text are labels of groups, other numbers are continuous.
    filter : dict, optional
        Filter of the signals, {'highpass': Hz, 'lowpass': Hz, 'notch': [Hz]}, which a model applies to streams.
    unit : str, optional
        Unit of the values, such as "V".
    signal : Signal, optional
        Properties of the signals; replaces sfreq, channels, filter and unit.
    """

    X: Tensor  # (N, channels, times) float32
    y: Tensor  # (N,) int64, 0..n_classes-1
    subject: Tensor  # (N,) int64, 0..n_subjects-1
    session: Tensor | None  # (N,) int64
    columns: dict[str, Column]  # further values of each window
    signal: Signal
    classes: tuple[Label, ...]
    subjects: tuple[Label, ...]
    name: str

    # Attributes of each object that are not arguments.
    derived: ClassVar[dict[Any, Any]]  # values computed from these recordings
    units: ClassVar[Units | None] = None  # if `subject` contains parts of people (see folds.use_units)
    targets: ClassVar[Tensor | None] = None  # (N,) float64, if classes are bins of numbers (see targets.py)
    target: ClassVar[str] = "classes"  # what a run predicts, as in --target

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
        unit: object = None,
        signal: Signal | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise UserError(f"name is {shown(name)}; it must be a string")
        source = as_window_array(X)
        if signal is None:
            sources = dict.fromkeys(("sfreq", "filter", "unit"), "user")
            given = Raw(X=source, sfreq=sfreq, channels=channels, filter=filter, unit=unit, sources=sources)
            signal = Signal.from_raw(given)
        names = signal.channels
        raw = Raw(X=source, y=y, subject=subject, session=session, columns=columns, classes=classes)
        raw, missing = without_unlabeled(raw)
        warned = [unlabeled_warning(missing, source.shape[0]), axes_concern(source.shape, names)]
        source, y, subject, session, columns = raw.X, raw.y, raw.subject, raw.session, raw.columns
        n_windows = source.shape[0]
        y_codes, class_names = encode(y, n_windows, "y", classes)
        if (fraction := measurement_in(class_names)) is not None:
            raise UserError(
                f"y holds {len(class_names)} different numbers such as {fraction:g}, not classes; to predict numbers, "
                "use --target continuous (in Python AutoTransferRegressor)"
            )
        subject_codes, subject_names = encode(subject, n_windows, "subject", subjects)
        check_enough(class_names, subject_names)
        for warning in (warning for warning in warned if warning is not None):
            warnings.warn(warning, stacklevel=2)
        values = {
            "y": y_codes,
            "subject": subject_codes,
            "session": None if session is None else encode_session(session, n_windows),
            "columns": encode_columns(columns, n_windows),
            "signal": signal,
            "classes": class_names,
            "subjects": subject_names,
            "name": name,
            "X": float32_windows(source, names, allow_constant=False),  # last, because it is slow
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)
        object.__setattr__(self, "derived", {})

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"derived": {}}

    def compute_once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, which is stored in `derived` and returned by later calls."""
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
        """Validate the windows that a reader returned."""
        labeled = raw.labeled()
        return cls(**labeled, signal=Signal.from_raw(replace(raw, X=as_window_array(raw.X))))

    def raw(self) -> Raw:
        """Return the windows as a reader returns them, without y if it holds numbers."""
        stored = {name: getattr(self, name) for name in STORED}
        stored |= {} if self.targets is None else {"y": None, "classes": None}
        return Raw(**stored, **get_stated(self.signal))

    @classmethod
    def from_epochs(
        cls, epochs: object, subject: str | None = None, session: str | None = None, label: str | None = None
    ) -> Recordings:
        """Make recordings of one `mne.Epochs` of all subjects; for one file per subject see `load`.

        `subject`, `session` and `label` are columns of the metadata. Without `subject`, subjects are in the column
        "subject" or "participant_id". Without `label`, y holds the names of events. Other metadata become `columns`,
        and "session" the session. X has MNE's data channels, also bad ones, or every channel but the triggers if there
        are none, in MNE's units.
        """
        from .epochs import raw_from_epochs

        return cls.from_raw(raw_from_epochs(epochs, subject, session, label))

    @property
    def channels(self) -> tuple[str, ...]:
        return self.signal.channels

    @property
    def sfreq(self) -> float | None:
        return self.signal.sfreq

    @property
    def truth(self) -> Tensor:
        """Return the class or the target of each window (N,)."""
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
        """Return the names of the people, even if `subject` contains parts of people."""
        return self.subjects if self.units is None else self.units.unique_subjects

    def __repr__(self) -> str:
        n = 0 if self.session is None else len(set(self.session.tolist()))
        sessions = f"; {count(n, 'session')}" if n else ""
        return printable(f"<Recordings {self.name!r}: {self.shape_words()}; {self.target_words()}{sessions}>")

    def shape_words(self) -> str:
        """Describe the numbers of subjects and windows, and the shape, duration, rate and unit of a window."""
        rate = (
            "unknown sampling rate" if self.sfreq is None else f"{self.n_times / self.sfreq:.3g} s at {self.sfreq:g} Hz"
        )
        unit = "" if self.signal.unit is None else f", unit {self.signal.unit}"
        return (
            f"{count(len(self.people), 'subject')}, {count(self.n_windows, 'window')} of "
            f"{count(self.n_channels, 'channel')} × {self.n_times} samples ({rate}){unit}"
        )

    def target_words(self) -> str:
        """List the names of the classes, or the range of the target."""
        if self.targets is not None:
            return f"target from {self.targets.min():g} to {self.targets.max():g}"
        return f"classes: {list_names(self.classes, MOST_LETTERS)}"


def check_enough(classes: tuple[Label, ...], subjects: tuple[Label, ...]) -> None:
    """Raise if there are too few classes or subjects for training."""
    if len(subjects) < MIN_SUBJECTS:
        raise UserError(
            f"there {'is' if len(subjects) == 1 else 'are'} {count(len(subjects), 'subject')} "
            f"({', '.join(map(shown, subjects))}); training needs at least {MIN_SUBJECTS}. Record more "
            "subjects, or use the model of another run with autotransfer predict"
        )
    if len(classes) < 2:
        raise UserError(f"every window is of the class {shown(classes[0])}; at least 2 classes are needed")


def measurement_in(classes: tuple[Label, ...]) -> float | None:
    """Return a number with a fraction if labels are measurements; None if they may be classes."""
    fraction = next((label for label in classes if isinstance(label, float) and not label.is_integer()), None)
    return fraction if len(classes) > MOST_FRACTIONS else None


def check_recordings(recordings: object, what: str) -> None:
    """Raise unless these are Recordings, which `what` needs."""
    if not isinstance(recordings, Recordings):
        raise UserError(
            f"{what} needs Recordings, not {type(recordings).__name__}; make them with at.Recordings or at.load"
        )
