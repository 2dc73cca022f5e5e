"""Candidates of several kinds: which networks and closed-form models a run trains, by what it may use of a new person.

The plain network, as published, comes first: all else is measured against it. Beside it stand two networks that are
unlike each other, each with every penalty of the grid, and models that are solved in closed form: band power and means
of stretches, tangent vectors of covariances, templates of evoked responses, and what the field of the signal is known
for (REPRESENTED). They cost next to nothing beside a network, and err differently. Where a new person's unlabelled
windows may be used, each kind has a form that uses them.

To add a kind, add a line here; the encoder and the transforms that it names live in their own files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import UserError, shown
from ..model.encoders import ENCODERS
from ..models.base import base_kinds
from ..preprocessing.represent import REPRESENTATIONS, installed_representations, representation_class
from ..recordings import Recordings
from ..runs.options import RunOptions
from ..settings import Setting

# Networks other than the plain one train at a constant rate and keep the mean of their last weights.
AVERAGED = {"schedule": "constant", "checkpoint": "averaged"}
EEGNET: dict[str, Any] = {"encoder": "eegnet", "append_scale": True, "log_power": True}
SHALLOW: dict[str, Any] = {"encoder": "shallow"}

# By what may be used of a new person: networks that meet every penalty of the grid, and networks without.
PENALISED: dict[str, tuple[dict[str, Any], ...]] = {
    "zero-shot": ({"standardise": "train"} | EEGNET, {"standardise": "train"} | SHALLOW),
    "online": ({"standardise": "online"} | EEGNET, {"standardise": "online"} | SHALLOW),
    "transductive": ({"standardise": "transductive"} | EEGNET, {"standardise": "transductive"} | SHALLOW),
}
UNPENALISED: dict[str, tuple[dict[str, Any], ...]] = {
    "zero-shot": (),
    "online": ({"align": "online", "encoder": "eegnet", "log_power": True},),
    "transductive": ({"align": "transductive", "encoder": "eegnet", "log_power": True},),
}

LINEAR: dict[str, Any] = {"encoder": "linear", "standardise": "none"}
SHRINKAGES = ("auto", 0.5)  # little where there are many windows, and much: people differ by more than windows do
EMBEDDED = 16  # channels that delayed copies add up to where a recording has fewer
DELAY = 0.02  # seconds between copies
MOST_ENTRIES = 4000  # of a representation: a covariance of so many is the most that is solved


# Representations of each signal, beside "features" and "tangent", which any has: what its field has used for years, and
# what a run can afford. Which of them are good on some recordings is for the weights of the average to find.
REPRESENTED: dict[str, tuple[str, ...]] = {
    "eeg": ("bands", "fine_bands", "band_tangent", "rhythms"),
    "emg": ("tdar", "ls9", "tdpsd"),
    "ecg": ("beats", "statistics", "minirocket"),
    "wearable": ("statistics", "minirocket"),
    "other": (),
}
# Of these, what trees vote on as well: numbers made by hand, few and unlike each other, which matter in combinations.
VOTED: dict[str, tuple[str, ...]] = {"ecg": ("beats", "statistics"), "wearable": ("statistics",)}
# Constants of representations that read some, by what is known of the recordings; None: it cannot be had for these.
CONSTANTS: dict[str, Callable[[Recordings], tuple[float, ...] | None]] = {
    "rhythms": lambda recordings: frequencies(recordings),
}
# Kernels sum channels, which must be in one unit: that of the window, or of the training people where levels matter.
STANDARDISED: dict[str, dict[str, str]] = {"minirocket": {"wearable": "train", "other": "train"}}
STIMULUS = re.compile(r"(\d+(?:\.\d+)?) ?hz", re.IGNORECASE)  # in the name of a class
HARMONICS = 3  # of a stimulus
RHYTHMS = range(6, 46)  # Hz, where stimuli are not known
RESPONSE = 2.0  # seconds: shorter windows of EEG are taken for responses, longer ones for states


# Augmentations worth trying, by what is measured. What lost on every set of its kind is not among them: turned phases,
# and shifts where time says what happens.
AUGMENTED: dict[str, dict[str, float]] = {
    "eeg": {"channel_mask": 0.1, "mixup": 0.5, "time_mask": 0.15},
    "emg": {"channel_mask": 0.1, "mixup": 0.5, "amplitude": 0.2},
    "ecg": {"amplitude": 0.5, "mixup": 0.2, "time_mask": 0.15},
    "wearable": {"mixup": 0.5, "channel_mask": 0.1, "amplitude": 0.5, "time_mask": 0.4},
    "other": {"channel_mask": 0.1, "mixup": 0.5, "amplitude": 0.2},
}
# What gained on people left out, one change at a time: a candidate without being asked for.
TAKEN_UP: dict[str, dict[str, float]] = {
    "eeg": {"channel_mask": 0.1}, "emg": {"channel_mask": 0.1}, "ecg": {"amplitude": 0.5}, "wearable": {"mixup": 0.5},
}  # fmt: skip
CHANNELS = {  # how channels of each are called
    "eeg": re.compile(r"eeg.*|(fp|af|f|ft|fc|c|t|tp|cp|p|po|o)(z|\d{1,2})", re.IGNORECASE),
    "emg": re.compile(r"s?emg.*|myo.*", re.IGNORECASE),
    "ecg": re.compile(r"e[ck]g.*|i{1,3}|mlii|av[rlf]|v[1-6]", re.IGNORECASE),
    "wearable": re.compile(r"(bvp|ppg|eda|gsr|hr|rr|ibi|resp|temp|acc|gyr).*", re.IGNORECASE),
}
SLOW = 64  # Hz: what is sampled below is no electric activity of muscles or brain, unless it says so


class NetworkSpec(NamedTuple):
    """What but its penalty makes a network; a shortlist is made for each."""

    encoder: str
    network: object
    preprocessing: object
    augmentation: object
    schedule: str
    checkpoint: str


def network_spec(setting: Setting) -> NetworkSpec:
    own, training = setting, setting.training
    return NetworkSpec(
        own.encoder, own.network, own.preprocessing, own.augmentation, training.schedule, training.checkpoint
    )


def list_of(setting: Setting, *, apart: bool) -> object:
    """Settings that agree in this compete for the places of one shortlist. apart: networks of several kinds are
    averaged, and each has its own; augmentations have theirs in any case, because they are there to be compared."""
    return network_spec(setting) if apart else setting.augmentation


def networks(options: RunOptions, settings: Sequence[Setting], recordings: Recordings) -> list[Setting]:
    """The plain network, then every setting of the grid as each network has it, then networks without a penalty: those
    that align, the first with what is worth augmenting in such signals and, where channels form a ring, networks that
    turn a person's channels to where other people have theirs.

    A user's own encoder takes the place of EEGNet; what belongs to EEGNet alone is not asked of it.
    """
    name = options.adaptation
    if recordings.ring is None:
        settings = [one for one in settings if not any(augment.needs_ring for augment in one.augmentation)]
    if name is None:
        return list(settings)
    plain = settings[0]
    found = [plain]
    main = PENALISED[name][: {"one": 1, "none": 0}.get(options.networks)]
    for way in main:
        found += [_as(setting, way, options.encoder) for setting in settings]
    if options.networks != "all":
        return list(dict.fromkeys(found))
    found += [_as(plain, way, options.encoder) for way in UNPENALISED[name]]
    taken_up = TAKEN_UP.get(signal_of(recordings), {})
    found += [_as(plain, PENALISED[name][0] | {augment: value}, options.encoder) for augment, value in taken_up.items()]
    if recordings.ring is not None and name != "zero-shot":
        found += [_as(plain, way | {"turn": name}, options.encoder) for way in PENALISED[name]]
    return list(dict.fromkeys(found))


def _as(setting: Setting, way: dict[str, Any], own: str) -> Setting:
    """A setting of the grid in the way of one network."""
    encoder = own if way["encoder"] == "eegnet" else way["encoder"]
    read = ENCODERS[encoder].__dataclass_fields__ if encoder in ENCODERS else {}
    others = {name for kind in ENCODERS.values() for name in kind.__dataclass_fields__} - set(read)
    rest = {name: value for name, value in way.items() if name != "encoder" and name not in others}
    network = {"network": None} if encoder != setting.encoder else {}
    return setting.replace(encoder=encoder, **network, **AVERAGED, **rest)


def signal_of(recordings: Recordings) -> str:
    """What is measured, one of AUGMENTED: by what most channels are called, else by the name of the data set, else by
    how fast it is sampled."""
    for kind, called in CHANNELS.items():
        if 2 * sum(called.fullmatch(name) is not None for name in recordings.channels) > recordings.n_channels:
            return kind
    for kind in CHANNELS:
        if kind in re.split(r"[^a-z0-9]+", recordings.name.lower()):
            return kind
    return "wearable" if recordings.sfreq is not None and recordings.sfreq < SLOW else "other"


def augmented(recordings: Recordings, plain: Setting | None = None) -> list[Setting]:
    """A plain setting, and the same with each augmentation that is worth trying on such recordings, one at a time. What
    of them is a candidate without being asked for stands in TAKEN_UP."""
    plain = Setting() if plain is None else plain
    return [plain, *(plain.replace(**{name: value}) for name, value in AUGMENTED[signal_of(recordings)].items())]


def closed_forms(options: RunOptions, recordings: Recordings, *, costly: bool = False) -> list[Setting]:
    """Models without steps: plain and, where a person's windows may be used, centred by person. costly: also those of
    the signal's representations that take minutes, and trees, last of all; what the user names is there in any case."""
    if options.adaptation is None:
        return []
    channels, times, sfreq = recordings.n_channels, recordings.n_times, recordings.sfreq
    lag = 1 if sfreq is None else max(1, round(DELAY * sfreq))
    copies = max(1, min(round(EMBEDDED / channels), 1 + times // (4 * lag)))
    bases: list[dict[str, Any]] = [{"represent": "features"}]
    bases += [{"represent": "tangent"} | ({"delays": copies, "lag": lag} if copies > 1 else {})]
    bases = [LINEAR | base for base in bases]
    special = [LINEAR | base for base in represented(options.kinds, recordings, costly=costly)]
    templates: dict[str, Any] = {"encoder": "templates", "standardise": "train"}
    responses = [templates, *([templates | {"encoder": "evoked"}] if _responses(options.kinds, recordings) else [])]
    if options.adaptation == "zero-shot":
        bases += [*responses, *special]
    else:
        adapted = options.adaptation
        centred = [base | {"centre": adapted} for base in bases]
        bases += centred + ([base | {"turn": adapted} for base in centred] if recordings.ring is not None else [])
        bases += [*responses, *(base | {"standardise": "none", "align": adapted} for base in responses)]
        bases += [*special, *(base | {"centre": adapted} for base in special)]
    bases += pretrained(options, recordings)
    forms = [Setting(**base, shrinkage=much) for base in bases for much in SHRINKAGES]
    forms += voted(options, recordings) if costly else []
    return [one for one in forms if _entries(one, channels, times) <= MOST_ENTRIES]


def voted(options: RunOptions, recordings: Recordings) -> list[Setting]:
    """Trees on what the signal is known for."""
    names = dict.fromkeys(name for kind in _named(options.kinds, recordings) for name in VOTED.get(kind, ()))
    told = [fields for name in names if (fields := _told(name, recordings)) and _meant(fields, recordings)]
    plain = [{"encoder": "trees", "standardise": "none"} | fields for fields in told]
    if options.adaptation != "zero-shot":
        plain += [fields | {"centre": options.adaptation} for fields in plain]
    return [Setting(**fields) for fields in plain]


def pretrained(options: RunOptions, recordings: Recordings) -> list[dict[str, Any]]:
    """What the networks of a base make of a window, and beside it what networks do that nobody has trained."""
    if options.base is None:
        return []
    names = base_kinds(options.base, recordings)
    plain = [LINEAR | {"represent": name} for name in names.values()]
    adapted = [] if options.adaptation == "zero-shot" else [one | {"centre": options.adaptation} for one in plain]
    return [*plain, *adapted]


def online_forms(options: RunOptions, recordings: Recordings) -> list[Setting]:
    """Closed forms for sessions, beside candidates that use nothing of a new person: the same representations, centred
    by person."""
    if options.adaptation != "zero-shot":
        return []
    forms = closed_forms(replace(options, adaptation="online"), recordings)
    kept = ("represent", "centre", "delays", "standardise", "mu_law")
    return [one for one in forms if "centre" in (own := _traits(one)) and not own - set(kept)]


def uncentred(setting: Setting) -> Setting:
    """A closed form as it is without being centred by person."""
    return setting.replace(centre="none")


def _traits(setting: Setting) -> set[str]:
    """Names of its transforms."""
    return {name for name, _ in setting.preprocessing.named()}


def represented(kinds: str | None, recordings: Recordings, *, costly: bool = False) -> list[dict[str, Any]]:
    """What the signal is known for, as fields of a setting; left out where these recordings do not say what it must
    know, or have windows that are too short. kinds: signals or representations to take in its place, with commas.
    costly: see `closed_forms`."""
    chosen: dict[str, dict[str, Any] | None] = {}
    for kind in _named(kinds, recordings):
        if kind in REPRESENTED:
            names = (name for name in REPRESENTED[kind] if costly or not REPRESENTATIONS[name].costly)
            told = {name: _told(name, recordings) for name in names}
            meant = {name: fields for name, fields in told.items() if fields and _meant(fields, recordings)}
            chosen |= {name: fields for name, fields in meant.items() if name not in chosen}
        elif kind in (known := (*REPRESENTATIONS, *installed_representations())):
            chosen[kind] = _told(kind, recordings)
        else:
            choices = ", ".join(repr(one) for one in (*REPRESENTED, *known))
            raise UserError(f"unknown kind {shown(kind)}; choose from {choices}, several with commas")
    return [fields for name, fields in chosen.items() if fields is not None and name not in ("features", "tangent")]


def _named(kinds: str | None, recordings: Recordings) -> list[str]:
    return [signal_of(recordings)] if kinds is None else [one.strip() for one in kinds.split(",")]


def _told(name: str, recordings: Recordings) -> dict[str, Any] | None:
    """A representation with what it must know of the recordings; None where they do not say it."""
    kind = representation_class(name)
    values = {
        "sfreq": recordings.sfreq,
        "constants": CONSTANTS[name](recordings) if name in CONSTANTS else None,
    }
    values = {field: values[field] for field in kind.reads}
    if recordings.n_times < kind.shortest or None in values.values():
        return None
    scaled = {"standardise": STANDARDISED[name].get(signal_of(recordings), "trial")} if name in STANDARDISED else {}
    return {"represent": name} | scaled | values


def _meant(fields: dict[str, Any], recordings: Recordings) -> bool:
    """Whether a representation of the signal is meant for such windows, and for so many: what is fitted to many kernels
    needs as many windows. Whoever names it has it in any case."""
    kind = representation_class(fields["represent"])
    try:
        entries = _entries(Setting(**LINEAR | fields), recordings.n_channels, recordings.n_times)
    except UserError:  # its frequencies are not in these recordings
        return False
    return _seconds(recordings) >= kind.seconds and (not kind.costly or recordings.n_trials >= entries)


def _responses(kinds: str | None, recordings: Recordings) -> bool:
    """Whether windows are taken for evoked responses."""
    return "eeg" in _named(kinds, recordings) and _seconds(recordings) < RESPONSE


def _seconds(recordings: Recordings) -> float:
    """Of a window; where nobody says the rate, no window is too short."""
    return math.inf if recordings.sfreq is None else recordings.n_times / recordings.sfreq


def frequencies(recordings: Recordings) -> tuple[float, ...] | None:
    """Of stimuli that classes are named after ("13 Hz"), and of their harmonics; otherwise of all usual rhythms."""
    if recordings.sfreq is None:
        return None
    stated = {float(name[1]) for name in map(STIMULUS.search, map(str, recordings.classes)) if name}
    wanted = {f * n for f in stated for n in range(1, HARMONICS + 1)} or set(map(float, RHYTHMS))
    return tuple(sorted(f for f in wanted if 0 < f < 0.45 * recordings.sfreq)) or None


def _entries(setting: Setting, channels: int, times: int) -> int:
    rows, columns = setting.preprocessing.shape(channels, times)
    return rows * columns if setting.encoder == "linear" else 0
