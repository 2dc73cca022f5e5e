"""Signal: known properties of recorded signals, from the reader of a file to the card of a model.

`Signal.check` is the only comparison of the signals that a model was trained on with the signals that it is given.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from ..errors import UserError, shown
from ..words import printable, shorten
from .filters import Filter, parse_filter
from .labels import as_list, check_distinct
from .raw import Raw

TOLERANCE = 1e-3  # relative difference of equal rates: devices state a nominal rate
# Spellings of units; streams may have powers of ten of a volt.
UNITS = {"microvolt": "μV", "millivolt": "mV", "volt": "V", "-6": "μV", "-3": "mV", "0": "V", "none": "", "n/a": ""}


class Match(NamedTuple):
    """Result of `Signal.check`."""

    channels: list[int]  # indices of the model's channels in the data
    warnings: list[str]  # what could not be compared, and what may lower the accuracy


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Known properties of recorded signals; None means unknown."""

    channels: tuple[str, ...]
    sfreq: float | None = None  # Hz
    filter: Filter | None = None  # an empty one if the signals were not filtered
    unit: str | None = None  # of the values, such as V
    reference: str | None = None  # such as average, or the name of an electrode
    has_gaps: bool | None = None  # whether samples are missing in the recordings
    sources: dict[str, str] = field(default_factory=dict)  # by property: stated (in a file), measured or user

    def __post_init__(self) -> None:
        check_distinct(list(self.channels), "channels", allow_blank=True)
        check_sfreq(self.sfreq)
        parse_filter(self.filter, self.sfreq)

    @classmethod
    def from_raw(cls, raw: Raw) -> Self:
        """Validate the properties of signals that a reader states."""
        sfreq = check_sfreq(raw.sfreq)
        known = {"sfreq": sfreq, "filter": parse_filter(raw.filter), "unit": raw.unit, "reference": raw.reference}
        for name in ("unit", "reference"):
            if not isinstance(known[name], str | None):
                raise UserError(f"{name} is {shown(known[name])}; it must be a string")
        sources = {name: raw.sources.get(name, "stated") for name, value in known.items() if value is not None}
        channels = channel_names(raw.channels, raw.X.shape[1])
        return cls(channels=channels, has_gaps=raw.has_gaps, sources=sources, **known)

    @cached_property
    def is_named(self) -> bool:
        """Return whether channels have other names than the default names."""
        return self.channels != default_names(len(self.channels))

    @cached_property
    def without_filter(self) -> Signal:
        """Return the signal with an unknown filter, because arrays do not state a filter."""
        return replace(self, filter=None)

    def with_channels(self, names: object) -> Signal:
        """Return the signal of arrays whose channels have these names, with an unknown filter."""
        listed = as_list(names, "channels")
        return replace(self, channels=channel_names(listed, len(listed)), filter=None)

    def check(self, data: Signal, *, remedy: str | None = None, by_position: bool = False) -> Match:
        """Compare the signals of a model with the signals of data; raise if the data do not fit.

        remedy: how the user can state the filter of the data, so that a filter that only the model states is an error;
        None: it is a warning. by_position: whether to ignore names of channels.
        """
        indices = self._find_channels(data, by_position=by_position)
        warnings = []
        if self.is_named != data.is_named and not by_position:
            which, names = ("data do", self.channels) if self.is_named else ("model does", data.channels)
            warnings.append(f"the {which} not name channels; they are assumed to be {list_names(names)}")
        check_rate(data.sfreq, self.sfreq)
        if data.sfreq is None and self.sfreq is not None:
            warnings.append(f"the data have no sampling rate; the model expects {self.sfreq:g} Hz")
        warnings += self._compare_filters(data, remedy)
        for what, own, other in (("unit", self.unit, data.unit), ("reference", self.reference, data.reference)):
            if own is not None and other is not None and _simplify(own) != _simplify(other):
                raise UserError(f"the {what} of the data is {shown(other)}, the model expects {shown(own)}; convert X")
        return Match(indices, warnings)

    def _find_channels(self, data: Signal, *, by_position: bool) -> list[int]:
        """Return the indices of these channels in the data, by name if both name their channels."""
        if data.channels == self.channels:  # as for every window of an online session
            return list(range(len(self.channels)))
        listed = list_names(data.channels) if data.is_named else str(len(data.channels))
        if self.is_named and data.is_named and not by_position:
            indices, missing = find_channels(data.channels, self.channels)
            if missing:
                raise UserError(
                    f"the model needs the channel {missing[0]!r}, and the data have {listed}; if the data have this "
                    "channel under another name, give it the model's name"
                )
            return indices
        if len(data.channels) != len(self.channels):
            raise UserError(
                f"the model takes {len(self.channels)} channels, the data have {listed}; give the channels of the "
                f"model, {list_names(self.channels)}"
            )
        return list(range(len(self.channels)))

    def _compare_filters(self, data: Signal, remedy: str | None) -> list[str]:
        """Return warnings about filters; raise if they differ."""
        own, other = self.filter, data.filter
        if own is not None and other is not None and own.band != other.band:
            raise UserError(
                f"the data are {other.describe()}, and the model was trained on signals that are {own.describe()}; "
                "give data with the same filter"
            )
        if own and other is None:
            line = f"the model was trained on signals that are {own.describe()}, and the filter of the data is unknown"
            if remedy is not None:
                raise UserError(f"{line}; {remedy}")
            return [f"{line}; pass windows with this filter"]
        if other and own is None:
            return [f"the data are {other.describe()}, and the filter of the training recordings is unknown"]
        if own and other and own.is_causal != other.is_causal:
            which = "training recordings were" if other.is_causal else "data were"
            return [
                f"the {which} filtered by another program, probably without delay; the other signals were filtered "
                "with a delay, which can lower the accuracy"
            ]
        return []


def find_channels(names: Sequence[str], wanted: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the indices of the wanted channels among names, and the wanted channels that are missing.

    Names may differ in spelling (see `simplify_name`) if they stay distinct.
    """
    plain, plain_wanted = ([simplify_name(name) for name in group] for group in (names, wanted))
    if len({*plain}) < len(plain) or len({*plain_wanted}) < len(plain_wanted) or "" in (*plain, *plain_wanted):
        plain, plain_wanted = list(names), list(wanted)
    missing = [name for name, key in zip(wanted, plain_wanted, strict=True) if key not in plain]
    return [plain.index(key) for key in plain_wanted if key in plain], missing


def simplify_name(name: str) -> str:
    """Return a name in lower case without blanks, underscores, invisible characters and final dots: fc5 for Fc_5.

    Blanks between two numbers stay, because R1_11 and R11_1 are two channels. So do signs, as in A'1 and A1.
    """
    text = unicodedata.normalize("NFKC", name).casefold()
    marks = {"Pc": "_", "Zs": "_", "Cc": "_", "Cf": ""}
    text = "".join(marks.get(unicodedata.category(letter), letter) for letter in text).rstrip("_.")
    return re.sub(r"(?<=[^\W\d_])_+|_+(?=[^\W\d_])", "", text)


def default_names(n_channels: int) -> tuple[str, ...]:
    """Return the names of channels that have none: ch0, ch1, ..."""
    return tuple(f"ch{c}" for c in range(n_channels))


def channel_names(channels: object, n_channels: int) -> tuple[str, ...]:
    """Return the names of channels; raise unless each channel has a name. `Signal` checks that names differ."""
    names = [str(name) for name in (default_names(n_channels) if channels is None else as_list(channels, "channels"))]
    if len(names) != n_channels:
        problem = f"channels holds {len(names)} names but X has {n_channels} channels"
        raise UserError(f"{problem}; give X as windows × channels × samples, and one name per channel")
    return tuple(names)


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


def check_rate(sfreq: float | None, expected: float | None, what: str = "model") -> None:
    """Raise if the rate of the data in Hz is not the one that a model or a setting expects."""
    if sfreq is not None and expected is not None and abs(sfreq - expected) > TOLERANCE * expected:
        raise UserError(f"the data are sampled at {sfreq:g} Hz, the {what} expects {expected:g} Hz; resample them")


def agree_on_rate(stored: object, given: object, what: str) -> float | None:
    """Return the rate in Hz that the data or the user state; raise if they state different rates."""
    rate, wanted = check_sfreq(stored), check_sfreq(given)
    if rate is not None and wanted is not None and abs(rate - wanted) > TOLERANCE * rate:
        raise UserError(f"{shown(what, 400)} is sampled at {rate:g} Hz, not at {wanted:g} Hz; leave sfreq out")
    return wanted if rate is None else rate


def common_unit(units: Sequence[str]) -> str | None:
    """Return the unit that all channels of a stream or a file state; None if there is no such unit."""
    stated = {_simplify(unit) for unit in units}
    return next(iter(stated)) or None if len(stated) == 1 else None


def _simplify(name: str) -> str:
    """Return a unit or a reference in one spelling: uV and microvolts are µV."""
    text = re.sub(r"^u(?=[VA]$)", "μ", unicodedata.normalize("NFKC", name).strip())
    return UNITS.get(text.lower().removesuffix("s"), text)


def list_names(names: Iterable[object], limit: int = 200) -> str:
    """Return names in one printable line of at most `limit` characters."""
    return printable(shorten(", ".join(map(str, names)), limit))
