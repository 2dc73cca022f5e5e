"""Candidates of several kinds: which networks and closed-form models a run trains, by what it may use of a new person.

The plain network, as published, comes first: all else is measured against it. Beside it stand two networks that are
unlike each other, each with every penalty of the grid, and models that are solved in closed form: band power and means
of stretches, tangent vectors of covariances, templates of evoked responses. They cost next to nothing beside a network,
and err differently. Where a new person's unlabelled windows may be used, each kind has a form that uses them.

To add a kind, add a line here; the encoder and the transforms that it names live in their own files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..model.encoders import ENCODERS
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


class Way(NamedTuple):
    """What but its penalty makes a network; a shortlist is made for each."""

    encoder: str
    network: object
    preprocessing: object
    schedule: str
    checkpoint: str


def way_of(setting: Setting) -> Way:
    training = setting.training
    return Way(setting.encoder, setting.network, setting.preprocessing, training.schedule, training.checkpoint)


def networks(options: RunOptions, settings: Sequence[Setting]) -> list[Setting]:
    """The plain network, then every setting of the grid as each network has it, then networks without a penalty.

    A user's own encoder takes the place of EEGNet; what belongs to EEGNet alone is not asked of it.
    """
    name = options.preprocessing
    if name is None:
        return list(settings)
    plain = settings[0]
    found = [plain]
    for way in PENALISED[name]:
        found += [_as(setting, way, options.encoder) for setting in settings]
    found += [_as(plain, way, options.encoder) for way in UNPENALISED[name]]
    return list(dict.fromkeys(found))


def _as(setting: Setting, way: dict[str, Any], own: str) -> Setting:
    """A setting of the grid in the way of one network."""
    encoder = own if way["encoder"] == "eegnet" else way["encoder"]
    read = ENCODERS[encoder].__dataclass_fields__ if encoder in ENCODERS else {}
    others = {name for kind in ENCODERS.values() for name in kind.__dataclass_fields__} - set(read)
    rest = {name: value for name, value in way.items() if name != "encoder" and name not in others}
    network = {"network": None} if encoder != setting.encoder else {}
    return setting.replace(encoder=encoder, **network, **AVERAGED, **rest)


def closed_forms(options: RunOptions, recordings: Recordings) -> list[Setting]:
    """Models without steps: plain and, where a person's windows may be used, centred by person."""
    if options.preprocessing is None:
        return []
    channels, times, sfreq = recordings.n_channels, recordings.n_times, recordings.sfreq
    lag = 1 if sfreq is None else max(1, round(DELAY * sfreq))
    copies = max(1, min(round(EMBEDDED / channels), 1 + times // (4 * lag)))
    bases: list[dict[str, Any]] = [{"represent": "features"}]
    bases += [{"represent": "tangent"} | ({"delays": copies, "lag": lag} if copies > 1 else {})]
    bases = [LINEAR | base for base in bases]
    templates: dict[str, Any] = {"encoder": "templates", "standardise": "train"}
    if options.preprocessing == "zero-shot":
        bases.append(templates)
    else:
        adapted = options.preprocessing
        bases += [base | {"centre": adapted} for base in bases]
        bases += [templates, templates | {"standardise": "none", "align": adapted}]
    found = [Setting(**base, shrinkage=much) for base in bases for much in SHRINKAGES]
    return [one for one in found if _entries(one, channels, times) <= MOST_ENTRIES]


def _entries(setting: Setting, channels: int, times: int) -> int:
    rows, columns = setting.preprocessing.shape(channels, times)
    return rows * columns if setting.encoder == "linear" else 0
