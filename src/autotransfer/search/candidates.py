"""Candidates of a run: networks and linear models, by signal and by what they may use of a new subject.

The paper's network comes first. Two other networks follow, each with every penalty of the grid. Linear models are
fitted in closed form on band power and means, on tangent vectors of covariances, on templates of evoked responses, and
on the representations that are usual for the signal. If unlabeled windows of a new subject may be used, each model has
a variant that uses them.

To add a candidate, add a line to one of the tables. Its encoder and transforms are defined in their own files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import UserError, shown
from ..model.encoders import ENCODERS
from ..preprocessing import Preprocessing
from ..preprocessing.represent import REPRESENTATIONS, representation_class
from ..recordings import Recordings
from ..runs.options import DEFAULT_ENCODER
from ..runs.preparation import Preparation
from ..settings import Setting

# Networks other than the plain one train at a constant rate and keep the mean of their last weights.
AVERAGED_CHECKPOINT = {"schedule": "constant", "checkpoint": "averaged"}
EEGNET: dict[str, Any] = {"encoder": "eegnet", "append_scale": True, "log_power": True}
SHALLOW: dict[str, Any] = {"encoder": "shallow"}

# By what may be used of a new person: networks that meet every penalty of the grid, and networks without.
PENALIZED_NETWORKS: dict[str, tuple[dict[str, Any], ...]] = {
    used: ({"standardize": statistics} | EEGNET, {"standardize": statistics} | SHALLOW)
    for used, statistics in (("zero-shot", "train"), ("online", "online"), ("transductive", "transductive"))
}
UNPENALIZED_NETWORKS: dict[str, tuple[dict[str, Any], ...]] = {
    "zero-shot": (),
    "online": ({"align": "online", "encoder": "eegnet", "log_power": True},),
    "transductive": ({"align": "transductive", "encoder": "eegnet", "log_power": True},),
}

FAMILIES = ("linear", "trees", "networks")  # of models: if `kinds` names some, others are not trained
LINEAR: dict[str, Any] = {"encoder": "linear", "standardize": "none"}
SHRINKAGES = ("auto", 0.5)  # little where there are many windows, and much: people differ by more than windows do
EMBEDDED = 16  # channels that delayed copies add up to where a recording has fewer
DELAY = 0.02  # seconds between copies
MOST_ENTRIES = 4000  # of a representation: a covariance of so many is the most that is solved


# Representations of each signal, in addition to "features" and "tangent", which every signal has: the usual ones of its
# field that a run can afford. The weights of the average tell which of them are good on some recordings.
SIGNAL_REPRESENTATIONS: dict[str, tuple[str, ...]] = {
    "eeg": ("bands", "fine_bands", "band_tangent", "rhythms"),
    "emg": ("tdar", "ls9", "tdpsd"),
    "ecg": ("beats", "statistics", "minirocket"),
    "wearable": ("statistics", "minirocket"),
    "other": (),
}
# Of these, representations for trees: few hand-made features of different kinds, whose combinations matter.
TREE_REPRESENTATIONS: dict[str, tuple[str, ...]] = {"ecg": ("beats", "statistics"), "wearable": ("statistics",)}
# Constants of representations, from the recordings; None where the recordings do not have them.
CONSTANTS: dict[str, Callable[[Recordings], tuple[float, ...] | None]] = {
    "rhythms": lambda recordings: frequencies(recordings),
}
# Kernels sum channels, which must be in one unit: that of the window, or of the training people where levels matter.
STANDARDIZED: dict[str, dict[str, str]] = {"minirocket": {"wearable": "train", "other": "train"}}
STIMULUS = re.compile(r"(\d+(?:\.\d+)?) ?hz", re.IGNORECASE)  # in the name of a class
HARMONICS = 3  # of a stimulus
RHYTHMS = range(6, 46)  # Hz, where stimuli are not known
RESPONSE = 2.0  # seconds: shorter windows of EEG are taken for responses, longer ones for states


# Augmentations that gained on people left out, one change at a time: candidates by default.
SIGNAL_AUGMENTATIONS: dict[str, dict[str, float]] = {
    "eeg": {"channel_mask": 0.1}, "emg": {"channel_mask": 0.1}, "ecg": {"amplitude": 0.5}, "wearable": {"mixup": 0.5},
}  # fmt: skip
CHANNELS = {  # how channels of each are called
    "eeg": re.compile(r"eeg.*|(fp|af|f|ft|fc|c|t|tp|cp|p|po|o)(z|\d{1,2})", re.IGNORECASE),
    "emg": re.compile(r"s?emg.*|myo.*", re.IGNORECASE),
    "ecg": re.compile(r"e[ck]g.*|i{1,3}|mlii|av[rlf]|v[1-6]", re.IGNORECASE),
    "wearable": re.compile(r"(bvp|ppg|eda|gsr|hr|rr|ibi|resp|temp|acc|gyr).*", re.IGNORECASE),
}
SLOW = 64  # Hz: what is sampled below is no electric activity of muscles or brain, unless it says so


def shortlist_key(setting: Setting, *, apart: bool) -> object:
    """Return the key of a setting's shortlist. apart: every network has a shortlist, because several kinds are
    averaged. Augmentations have one in any case, because they are there to be compared."""
    if not apart:
        return setting.augmentation
    training = setting.training
    network = setting.encoder, setting.network, setting.preprocessing, setting.augmentation
    return (*network, training.schedule, training.checkpoint)


class Candidates(NamedTuple):
    """Candidates that options ask for on some recordings."""

    networks: list[Setting]  # the plain one first; empty if no network is to be trained
    linear: list[Setting]  # linear models that take seconds
    costly: list[Setting]  # trees, and linear models that take minutes

    @property
    def every(self) -> list[Setting]:
        """Return all candidates that the average may contain."""
        return [*self.networks, *self.linear, *self.costly]


def find_candidates(prepared: Preparation) -> Candidates:
    """Return what options ask for on these recordings."""
    options, recordings = prepared.options, prepared.recordings
    adaptation = options.adaptation
    families = [family for family in FAMILIES if family in _split(options.kinds)] or list(FAMILIES)
    if options.task.is_numeric:  # a ridge has strengths of its own
        forms = linear_candidates(adaptation, recordings, options.kinds)
        numeric = [form.replace(shrinkage="auto") for form in forms if form.encoder == "linear"]
        return Candidates([], list(dict.fromkeys(numeric)), [])
    if not options.has_stages:
        return Candidates(options.settings(), [], [])
    linear = linear_candidates(adaptation, recordings, options.kinds) if "linear" in families else []
    every = linear_candidates(adaptation, recordings, options.kinds, costly=True)
    of_families = [form for form in every if ("trees" if form.encoder == "trees" else "linear") in families]
    costly = [form for form in of_families if form not in linear]
    trained = list[Setting]()
    if options.networks != "none" and "networks" in families:
        trained = network_candidates(options.settings(), recordings, adaptation, options.networks, options.encoder)
    elif options.encoder != DEFAULT_ENCODER:
        raise UserError(f"encoder is {shown(options.encoder)}, and no network is to be trained; leave one of them out")
    if options.constants:
        linear, costly, trained = (
            list(dict.fromkeys(map(options.with_constants, every))) for every in (linear, costly, trained)
        )
    if not (trained or linear or costly):
        raise UserError(f"kinds is {shown(options.kinds)}, and there is no such model for these recordings; add linear")
    return Candidates(trained, linear, costly)


def network_candidates(
    settings: Sequence[Setting], recordings: Recordings, adaptation: str, which: str = "all",
    encoder: str = "eegnet",
) -> list[Setting]:  # fmt: skip
    """Return the paper's network, then every setting of the grid with each network, then networks without a penalty:
    those that align, and the first one with the augmentations of the signal.

    settings: of the grid, the paper's network first. which: of the further networks, "all", "main" or "one". encoder:
    takes the place of EEGNet, without the options that only EEGNet has.
    """
    plain, penalized = settings[0], PENALIZED_NETWORKS[adaptation]
    unpenalized: list[dict[str, Any]] = []
    if which == "all":
        taken_up = SIGNAL_AUGMENTATIONS.get(find_signal(recordings), {})
        unpenalized += UNPENALIZED_NETWORKS[adaptation]
        unpenalized += [penalized[0] | {augment: value} for augment, value in taken_up.items()]
    pairs = [(setting, network) for network in penalized[: 1 if which == "one" else None] for setting in settings]
    pairs += [(plain, network) for network in unpenalized]
    return list(dict.fromkeys([plain, *(_with_network(setting, network, encoder) for setting, network in pairs)]))


def _with_network(setting: Setting, network: dict[str, Any], own: str) -> Setting:
    """Return a setting of the grid with one of the networks. own: the encoder in the place of EEGNet."""
    encoder = own if network["encoder"] == "eegnet" else network["encoder"]
    read = ENCODERS[encoder].__dataclass_fields__ if encoder in ENCODERS else {}
    others = {name for kind in ENCODERS.values() for name in kind.__dataclass_fields__} - set(read)
    fields = {name: value for name, value in network.items() if name != "encoder" and name not in others}
    reset = {"network": None} if encoder != setting.encoder else {}
    return setting.replace(encoder=encoder, **reset, **AVERAGED_CHECKPOINT, **fields)


def find_signal(recordings: Recordings) -> str:
    """Return the kind of signal, one of SIGNAL_REPRESENTATIONS, by the names of most channels, by the name of the data
    set or by the sampling rate."""
    for kind, called in CHANNELS.items():
        if 2 * sum(called.fullmatch(name) is not None for name in recordings.channels) > recordings.n_channels:
            return kind
    for kind in CHANNELS:
        if kind in re.split(r"[^a-z0-9]+", recordings.name.lower()):
            return kind
    return "wearable" if recordings.sfreq is not None and recordings.sfreq < SLOW else "other"


def linear_candidates(
    adaptation: str, recordings: Recordings, kinds: str | None = None, *, costly: bool = False,
) -> list[Setting]:  # fmt: skip
    """Return models without steps: plain and, if a person's windows may be used, centered by person.

    kinds: see `represented`. costly: also the representations of the signal that take minutes and, last, trees; those
    that the user names are always included.
    """
    lag = 1 if recordings.sfreq is None else max(1, round(DELAY * recordings.sfreq))
    copies = max(1, min(round(EMBEDDED / recordings.n_channels), 1 + recordings.n_times // (4 * lag)))
    delays = {"delays": copies, "lag": lag} if copies > 1 else {}
    usual: list[dict[str, Any]] = [LINEAR | {"represent": "features"}, LINEAR | {"represent": "tangent"} | delays]
    special = [LINEAR | fields for fields in represented(kinds, recordings, costly=costly)]
    voted = (
        {name for kind in _named(kinds, recordings) for name in TREE_REPRESENTATIONS.get(kind, ())} if costly else set()
    )
    trees = [fields | {"encoder": "trees"} for fields in special if fields["represent"] in voted]
    templates: dict[str, Any] = {"encoder": "templates", "standardize": "train"}
    responses = [templates, *([templates | {"encoder": "evoked"}] if _responses(kinds, recordings) else [])]
    if adaptation == "zero-shot":
        linear = [*usual, *responses, *special]
    else:

        def centered(plain: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [fields | {"center": adaptation} for fields in plain]

        aligned = [fields | {"standardize": "none", "align": adaptation} for fields in responses]
        linear = [*usual, *centered(usual), *responses, *aligned]
        linear += [*special, *centered(special)]
        trees += centered(trees)
    solvable = [one for one in linear if one["encoder"] != "linear" or _entries(one, recordings) <= MOST_ENTRIES]
    shrunk = [fields | {"shrinkage": much} for fields in solvable for much in SHRINKAGES]
    return [Setting(**fields) for fields in (*shrunk, *trees)]


def represented(kinds: str | None, recordings: Recordings, *, costly: bool = False) -> list[dict[str, Any]]:
    """Return representations of the signal as fields of settings, without those that need more than the recordings
    tell, or longer windows.

    kinds: signals or representations to use instead, with commas. costly: see `linear_candidates`.
    """
    chosen: dict[str, dict[str, Any]] = {}
    for kind in _named(kinds, recordings):
        asked = kind not in SIGNAL_REPRESENTATIONS
        if asked and kind not in REPRESENTATIONS:
            choices = ", ".join(map(repr, (*FAMILIES, *SIGNAL_REPRESENTATIONS, *REPRESENTATIONS)))
            raise UserError(f"unknown kind {shown(kind)}; choose from {choices}, several with commas")
        of_signal = [
            name for name in SIGNAL_REPRESENTATIONS.get(kind, ()) if costly or not REPRESENTATIONS[name].is_slow
        ]
        for name in [kind] if asked else [name for name in of_signal if name not in chosen]:
            if (fields := _fields_of(name, recordings, asked=asked)) is not None:
                chosen[name] = fields
    return [fields for name, fields in chosen.items() if name not in ("features", "tangent")]


def _named(kinds: str | None, recordings: Recordings) -> list[str]:
    """Return the signals and representations that `kinds` names; by default, the recordings' signal."""
    return [kind for kind in _split(kinds) if kind not in FAMILIES] or [find_signal(recordings)]


def _split(kinds: str | None) -> list[str]:
    return [] if kinds is None else [kind.strip() for kind in kinds.split(",")]


def _fields_of(name: str, recordings: Recordings, *, asked: bool) -> dict[str, Any] | None:
    """Return a representation with what it reads of the recordings; None if they do not have it. Unless it is asked for
    by name, return None also if windows are too short for it or, with one of many kernels, fewer than its entries."""
    scaled = {"standardize": STANDARDIZED[name].get(find_signal(recordings), "trial")} if name in STANDARDIZED else {}
    values = {
        "sfreq": recordings.sfreq,
        "constants": CONSTANTS[name](recordings) if name in CONSTANTS else None,
    }
    kind = representation_class(name)
    values = {field: values[field] for field in kind.required_fields}
    if recordings.n_times < kind.min_samples or None in values.values():
        return None
    fields = {"represent": name} | scaled | values
    if asked:
        return fields
    try:
        entries = _entries(LINEAR | fields, recordings)
    except UserError:  # its frequencies are not in these recordings
        return None
    few = kind.is_slow and recordings.n_windows < entries
    return None if few or _seconds(recordings) < kind.min_seconds else fields


def _responses(kinds: str | None, recordings: Recordings) -> bool:
    """Return whether windows are taken for evoked responses."""
    return "eeg" in _named(kinds, recordings) and _seconds(recordings) < RESPONSE


def _seconds(recordings: Recordings) -> float:
    """Return the length of a window in seconds; with an unknown sampling rate no window is too short."""
    return math.inf if recordings.sfreq is None else recordings.n_times / recordings.sfreq


def frequencies(recordings: Recordings) -> tuple[float, ...] | None:
    """Return the frequencies of stimuli in the names of classes ("13 Hz") and their harmonics; without such names,
    RHYTHMS."""
    if recordings.sfreq is None:
        return None
    stated = {float(name[1]) for name in map(STIMULUS.search, map(str, recordings.classes)) if name}
    wanted = {f * n for f in stated for n in range(1, HARMONICS + 1)} or set(map(float, RHYTHMS))
    return tuple(sorted(f for f in wanted if 0 < f < 0.45 * recordings.sfreq)) or None


def _entries(fields: dict[str, Any], recordings: Recordings) -> int:
    """Return the number of entries of a window as a setting of these fields prepares it."""
    return math.prod(Preprocessing.from_values(fields).shape(recordings.n_channels, recordings.n_times))
