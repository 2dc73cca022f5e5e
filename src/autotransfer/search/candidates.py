"""Candidates of a run: networks, linear models and trees for a signal and an adaptation.

Adaptation is the use of unlabeled windows of a new subject: zero-shot (no use), online (in order) or transductive (all
at once). To add a candidate, add a line to one of the tables.
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

AVERAGED_CHECKPOINT = {"schedule": "constant", "checkpoint": "averaged"}  # fields of all networks except the paper's
EEGNET: dict[str, Any] = {"encoder": "eegnet", "append_scale": True, "log_power": True}
SHALLOW: dict[str, Any] = {"encoder": "shallow"}

# Networks that are trained with every penalty of the grid, by adaptation.
PENALIZED_NETWORKS: dict[str, tuple[dict[str, Any], ...]] = {
    adaptation: ({"standardize": statistics} | EEGNET, {"standardize": statistics} | SHALLOW)
    for adaptation, statistics in (("zero-shot", "train"), ("online", "online"), ("transductive", "transductive"))
}
# Networks that are trained only without a penalty, by adaptation.
UNPENALIZED_NETWORKS: dict[str, tuple[dict[str, Any], ...]] = {
    "zero-shot": (),
    "online": ({"align": "online", "encoder": "eegnet", "log_power": True},),
    "transductive": ({"align": "transductive", "encoder": "eegnet", "log_power": True},),
}

FAMILIES = ("linear", "trees", "networks")  # if `kinds` names families, only these families are trained
LINEAR: dict[str, Any] = {"encoder": "linear", "standardize": "none"}
SHRINKAGES = ("auto", 0.5)  # estimated from windows, and larger, because subjects differ more than windows
DELAYED_CHANNELS = 16  # approximate number of channels with delayed copies, if recordings have fewer channels
DELAY = 0.02  # seconds between delayed copies
MAX_FEATURES = 4000  # of a linear model, because their covariance matrix is inverted

# Linear models of every signal; each needs windows that are long enough.
REPRESENTATIONS_OF_ALL = ("combined", "tdar", "bands")
# Further representations of each signal, in addition to "features", "tangent" and REPRESENTATIONS_OF_ALL.
SIGNAL_REPRESENTATIONS: dict[str, tuple[str, ...]] = {
    "eeg": ("fine_bands", "band_tangent", "rhythms"),
    "emg": ("ls9", "tdpsd"),
    "ecg": ("beats", "minirocket"),
    "wearable": ("minirocket",),
    "other": (),
}
TREES = ("trees", "boosting")  # encoders, fitted to the features of "combined"
# Constants of representations as a function of the recordings; None if the recordings do not determine them.
CONSTANTS: dict[str, Callable[[Recordings], tuple[float, ...] | None]] = {
    "rhythms": lambda recordings: stimulus_frequencies(recordings),
}
# MiniRocket sums over channels, so they are standardized by window, or by training subjects if levels are informative.
STANDARDIZATION: dict[str, dict[str, str]] = {"minirocket": {"wearable": "train", "other": "train"}}
STIMULUS = re.compile(r"(\d+(?:\.\d+)?) ?hz", re.IGNORECASE)  # stimulus frequency in the name of a class
HARMONICS = 3  # harmonics of each stimulus frequency
RHYTHMS = range(6, 46)  # Hz, if class names contain no stimulus frequencies
RESPONSE_SECONDS = 2.0  # shorter windows of EEG are assumed to contain evoked responses

# Augmentations that raised scores on held-out subjects. Each augmentation is a candidate.
SIGNAL_AUGMENTATIONS: dict[str, dict[str, float]] = {
    "eeg": {"channel_mask": 0.1}, "emg": {"channel_mask": 0.1}, "ecg": {"amplitude": 0.5}, "wearable": {"mixup": 0.5},
}  # fmt: skip
CHANNEL_NAMES = {
    "eeg": re.compile(r"eeg.*|(fp|af|f|ft|fc|c|t|tp|cp|p|po|o)(z|\d{1,2})", re.IGNORECASE),
    "emg": re.compile(r"s?emg.*|myo.*", re.IGNORECASE),
    "ecg": re.compile(r"e[ck]g.*|i{1,3}|mlii|av[rlf]|v[1-6]", re.IGNORECASE),
    "wearable": re.compile(r"(bvp|ppg|eda|gsr|hr|rr|ibi|resp|temp|acc|gyr).*", re.IGNORECASE),
}
MIN_ELECTRIC_SFREQ = 64  # Hz: recordings with a lower rate and unknown channels are assumed to be from a wearable


def shortlist_key(setting: Setting, *, by_network: bool) -> object:
    """Return the key of the shortlist of a setting: the network with its training, or only the augmentation."""
    if not by_network:
        return setting.augmentation
    network = setting.encoder, setting.network, setting.preprocessing, setting.augmentation
    return (*network, setting.training.schedule, setting.training.checkpoint)


class Candidates(NamedTuple):
    """Settings that a run may train on some recordings."""

    networks: list[Setting]  # the paper's network first; empty if no network is trained
    linear: list[Setting]
    trees: list[Setting]

    @property
    def settings(self) -> list[Setting]:
        return [*self.networks, *self.linear, *self.trees]


def is_slow(setting: Setting) -> bool:
    """Return whether a setting is a linear model that a run fits in a later stage."""
    return setting.encoder == "linear" and representation_class(setting.family).is_slow


def find_candidates(prepared: Preparation) -> Candidates:
    """Return the candidates for the options and recordings of a run."""
    options, recordings = prepared.options, prepared.recordings
    adaptation = options.adaptation
    families = [family for family in FAMILIES if family in _split_kinds(options.kinds)] or list(FAMILIES)
    if not (options.has_stages or options.task.is_numeric):
        return Candidates(options.settings(), [], [])
    linear = linear_candidates(adaptation, recordings, options.kinds)
    if options.task.is_numeric:  # ridge regressions have strengths in place of shrinkage
        ridge = [setting.replace(shrinkage="auto") for setting in linear if setting.encoder == "linear"]
        return Candidates([], list(dict.fromkeys(ridge)), [])
    linear = linear if "linear" in families else []
    trees = tree_candidates(adaptation, recordings) if "trees" in families else []
    networks = list[Setting]()
    if options.networks != "none" and "networks" in families:
        networks = network_candidates(options.settings(), recordings, adaptation, options.networks, options.encoder)
    elif options.encoder != DEFAULT_ENCODER:
        raise UserError(f"encoder is {shown(options.encoder)}, but no network is trained; leave encoder out")
    if options.constants:
        networks, linear, trees = (
            list(dict.fromkeys(map(options.with_constants, settings))) for settings in (networks, linear, trees)
        )
    if not (networks or linear or trees):
        raise UserError(f"kinds is {shown(options.kinds)}, and these recordings allow no such model; add linear")
    return Candidates(networks, linear, trees)


def network_candidates(
    settings: Sequence[Setting], recordings: Recordings, adaptation: str, networks: str = "all",
    encoder: str = "eegnet",
) -> list[Setting]:  # fmt: skip
    """Return the paper's network, each network with every setting of the grid, and networks without a penalty.

    settings: settings of the grid, the paper's network first. networks: "all", "main" (networks that are trained with
    every penalty) or "one" of these. encoder: replacement of EEGNet, without the options that only EEGNet has.
    """
    paper_network, penalized = settings[0], PENALIZED_NETWORKS[adaptation]
    unpenalized: list[dict[str, Any]] = []
    if networks == "all":
        augmentations = SIGNAL_AUGMENTATIONS.get(find_signal(recordings), {})
        unpenalized += UNPENALIZED_NETWORKS[adaptation]
        unpenalized += [penalized[0] | {name: value} for name, value in augmentations.items()]
    pairs = [(setting, network) for network in penalized[: 1 if networks == "one" else None] for setting in settings]
    pairs += [(paper_network, network) for network in unpenalized]
    further = [_set_network(setting, network, encoder) for setting, network in pairs]
    return list(dict.fromkeys([paper_network, *further]))


def _set_network(setting: Setting, network: dict[str, Any], eegnet: str) -> Setting:
    """Return a setting of the grid with another network. eegnet: encoder that replaces EEGNet."""
    encoder = eegnet if network["encoder"] == "eegnet" else network["encoder"]
    options = ENCODERS[encoder].__dataclass_fields__ if encoder in ENCODERS else {}
    other_options = {name for config in ENCODERS.values() for name in config.__dataclass_fields__} - set(options)
    fields = {name: value for name, value in network.items() if name != "encoder" and name not in other_options}
    reset = {"network": None} if encoder != setting.encoder else {}
    return setting.replace(encoder=encoder, **reset, **AVERAGED_CHECKPOINT, **fields)


def find_signal(recordings: Recordings) -> str:
    """Return the signal of recordings from most channel names, the name of the data set, or the sampling rate."""
    for signal, names in CHANNEL_NAMES.items():
        if 2 * sum(names.fullmatch(name) is not None for name in recordings.channels) > recordings.n_channels:
            return signal
    for signal in CHANNEL_NAMES:
        if signal in re.split(r"[^a-z0-9]+", recordings.name.lower()):
            return signal
    return "wearable" if recordings.sfreq is not None and recordings.sfreq < MIN_ELECTRIC_SFREQ else "other"


def linear_candidates(adaptation: str, recordings: Recordings, kinds: str | None = None) -> list[Setting]:
    """Return linear models: zero-shot and, if the adaptation uses windows of new subjects, centered by subject.

    kinds: see `find_representations`
    """
    lag = 1 if recordings.sfreq is None else max(1, round(DELAY * recordings.sfreq))
    copies = max(1, min(round(DELAYED_CHANNELS / recordings.n_channels), 1 + recordings.n_times // (4 * lag)))
    delays = {"delays": copies, "lag": lag} if copies > 1 else {}
    base: list[dict[str, Any]] = [LINEAR | {"represent": "features"}, LINEAR | {"represent": "tangent"} | delays]
    base += [LINEAR | fields for fields in find_representations(kinds, recordings)]
    templates: list[dict[str, Any]] = [{"encoder": "templates", "standardize": "train"}]
    if "eeg" in _parse_kinds(kinds, recordings) and _compute_window_seconds(recordings) < RESPONSE_SECONDS:
        templates.append({"encoder": "evoked", "standardize": "train"})
    linear = [*base[:2], *templates, *base[2:]]
    if adaptation != "zero-shot":
        linear += [fields | {"center": adaptation} for fields in base]
        linear += [fields | {"standardize": "none", "align": adaptation} for fields in templates]
    small = [s for s in linear if s["encoder"] != "linear" or _count_features(s, recordings) <= MAX_FEATURES]
    return [Setting(**fields | {"shrinkage": shrinkage}) for fields in small for shrinkage in SHRINKAGES]


def tree_candidates(adaptation: str, recordings: Recordings) -> list[Setting]:
    """Return trees: zero-shot and, if the adaptation uses windows of new subjects, centered by subject."""
    if not _is_suitable("combined", recordings):
        return []
    centers = ["none"] if adaptation == "zero-shot" else ["none", adaptation]
    features = {"represent": "combined", "standardize": "none"}
    return [Setting(encoder=encoder, center=center, **features) for center in centers for encoder in TREES]


def find_representations(kinds: str | None, recordings: Recordings) -> list[dict[str, Any]]:
    """Return the representations for all signals and for `kinds`, as fields of settings.

    kinds: signals and representations, separated by commas; by default, the signal of the recordings
    """
    names: dict[str, None] = dict.fromkeys(name for name in REPRESENTATIONS_OF_ALL if _is_suitable(name, recordings))
    for kind in _parse_kinds(kinds, recordings):
        if kind in SIGNAL_REPRESENTATIONS:
            names |= dict.fromkeys(name for name in SIGNAL_REPRESENTATIONS[kind] if _is_suitable(name, recordings))
        elif kind in REPRESENTATIONS:
            names[kind] = None
        else:
            choices = ", ".join(map(repr, (*FAMILIES, *SIGNAL_REPRESENTATIONS, *REPRESENTATIONS)))
            raise UserError(f"unknown kind {shown(kind)}; choose from {choices}, several with commas")
    fields = (_find_representation_fields(name, recordings) for name in names if name not in ("features", "tangent"))
    return [values for values in fields if values is not None]


def _parse_kinds(kinds: str | None, recordings: Recordings) -> list[str]:
    """Return the signals and representations in `kinds`; by default, the signal of the recordings."""
    return [kind for kind in _split_kinds(kinds) if kind not in FAMILIES] or [find_signal(recordings)]


def _split_kinds(kinds: str | None) -> list[str]:
    return [] if kinds is None else [kind.strip() for kind in kinds.split(",")]


def _find_representation_fields(name: str, recordings: Recordings) -> dict[str, Any] | None:
    """Return the fields of a setting with a representation; None if the recordings do not meet its requirements."""
    constants = CONSTANTS[name](recordings) if name in CONSTANTS else None
    values = {"sfreq": recordings.sfreq, "constants": constants}
    representation = representation_class(name)
    required = {field: values[field] for field in representation.required_fields}
    if recordings.n_times < representation.min_samples or None in required.values():
        return None
    by_signal = STANDARDIZATION.get(name)
    standardize = {} if by_signal is None else {"standardize": by_signal.get(find_signal(recordings), "trial")}
    return {"represent": name} | standardize | required


def _is_suitable(name: str, recordings: Recordings) -> bool:
    """Return whether windows are long enough and, for a slow representation, as many as its features or more."""
    fields, representation = _find_representation_fields(name, recordings), representation_class(name)
    if fields is None or _compute_window_seconds(recordings) < representation.min_seconds:
        return False
    try:
        return _count_features(LINEAR | fields, recordings) <= recordings.n_windows or not representation.is_slow
    except UserError:  # the sampling rate is too low for the frequencies of the representation
        return False


def _compute_window_seconds(recordings: Recordings) -> float:
    """Return the length of a window in seconds; infinite if the sampling rate is unknown."""
    return math.inf if recordings.sfreq is None else recordings.n_times / recordings.sfreq


def stimulus_frequencies(recordings: Recordings) -> tuple[float, ...] | None:
    """Return stimulus frequencies in class names ("13 Hz") with harmonics, or RHYTHMS; None without a sampling rate."""
    if recordings.sfreq is None:
        return None
    stimuli = {float(match[1]) for match in map(STIMULUS.search, map(str, recordings.classes)) if match}
    frequencies = {f * n for f in stimuli for n in range(1, HARMONICS + 1)} or set(map(float, RHYTHMS))
    return tuple(sorted(f for f in frequencies if 0 < f < 0.45 * recordings.sfreq)) or None


def _count_features(fields: dict[str, Any], recordings: Recordings) -> int:
    """Return the number of features of a window after the preprocessing of a setting with these fields."""
    return math.prod(Preprocessing.from_values(fields).shape(recordings.n_channels, recordings.n_times))
