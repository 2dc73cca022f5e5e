"""Foundation encoders: a class of braindecode with weights that others have pretrained, as a folder or a repository has
them in the hub's layout: config.json (what the class is made with), model.safetensors and README.md.

Weights are safetensors or refused, no code of a repository is run, and config.json names no code but layers of
torch.nn. Who was pretrained on is not known, so that nobody can be refused: a report says so.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ..errors import UserError, one_line, shown
from ..files import read_plain, write_atomically
from ..model.adapters import PREFIX as TUNED
from ..model.adapters import RANK
from ..model.braindecode_models import PREFIX, PRETRAINED, parse
from ..preprocessing.represent.base_layout import know_layout
from ..preprocessing.represent.foundation import (
    KINDS,
    MOST,
    Encoder,
    braindecode_models,
    build_encoder,
    build_pretrained,
    digest_of,
    features,
    know,
    opened,
    seed_of,
)
from ..recordings import Recordings
from ..recordings.layout import channel_map
from ..schema import parse_json
from .binding import read_weights
from .hub import CONFIG, HUB, Saved, local_folder
from .saving import MODEL

WEIGHTS, PAGE = MODEL.weights, MODEL.page
TRIED = 8  # windows that an encoder is tried on
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MOST_FEATURES = 3999  # with the level of a window: what closed forms take (see search/kinds.py)


class Bound(NamedTuple):
    """A base, or a foundation encoder, for some recordings."""

    source: Saved
    kinds: dict[str, str]  # the names that `represent` takes, by kind
    tuned: list[dict[str, Any]]  # keywords of a setting that learns on, and of its control

    @property
    def names(self) -> set[str]:
        """Everything that settings may name of it."""
        return {*self.kinds.values(), *(str(value) for keywords in self.tuned for value in keywords.values())}


@dataclass(frozen=True)
class FoundationEncoder:
    """An encoder as its folder has it.

    model: class of braindecode; options: what that is made with; module: with the pretrained weights; weights: as they
    were read
    """

    model: str
    options: dict[str, Any]
    module: nn.Module
    weights: dict[str, Tensor]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """In the hub's layout, for `open_foundation`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / WEIGHTS, save(self.weights))
        write_atomically(folder / CONFIG, json.dumps(self.options, indent=1))
        write_atomically(folder / PAGE, f"---\nlibrary_name: braindecode\ntags:\n- braindecode\n- {self.model}\n---\n")

    @property
    def channels(self) -> list[str]:
        """Names of its channels; empty where its config says none."""
        listed = self.options.get("chs_info") or []
        if not (isinstance(listed, list) and all(isinstance(channel, dict) for channel in listed)):
            raise UserError(f"chs_info of {self.model} is {shown(listed)}; it must be a list of channels with ch_name")
        names = [channel.get("ch_name") for channel in listed]
        if not all(isinstance(name, str) and name.strip() for name in names) or len({*names}) < len(names):
            raise UserError(
                f"chs_info of {self.model} has the names {shown(names)}; every channel must have a ch_name of its own"
            )
        return names

    def _sizes(self) -> tuple[float, int]:
        """Rate, and samples of a window."""
        rate, times, seconds = (self.options.get(name) for name in ("sfreq", "n_times", "input_window_seconds"))
        stated = [value for value in (rate, times, seconds) if value is not None]
        if not all(type(value) in (int, float) and 0 < value <= MOST for value in stated):
            raise UserError(f"sfreq, n_times and input_window_seconds of {self.model} are {shown(stated)}")
        if rate is None and times and seconds:
            rate = times / seconds
        if times is None and rate and seconds:
            times = round(rate * seconds)
        if not rate or not times:
            raise UserError(
                f"{CONFIG} of {self.model} does not say for which rate and window it is; give them: "
                f"{PREFIX}{self.model},{PRETRAINED}=…,sfreq=200,n_times=800"
            )
        return float(rate), int(times)

    def _channel_map(self, recordings: Recordings) -> NDArray[np.float64]:
        """(channels of the encoder, channels of the recordings). Warns of channels that are interpolated or 0; raises
        where the encoder has none of the recordings' channels."""
        names, name = self.channels, shown(recordings.name)
        if not names:
            count = self.options.get("n_chans")
            if count != recordings.n_channels:
                raise UserError(
                    f"{CONFIG} of {self.model} names no channels, and has {count} where {name} has "
                    f"{recordings.n_channels}; add chs_info with their names to a copy of it"
                )
            warnings.warn(f"{self.model} names no channels: those of {name} are taken in their order", stacklevel=5)
            return np.eye(recordings.n_channels)
        mixed = channel_map(recordings.channels, recordings.ring, names, None)
        if not mixed.any():
            raise UserError(
                f"{name} has no channel of the foundation encoder {self.model} ({', '.join(names[:8])}); name channels "
                "alike, or leave it out"
            )
        interpolated = int(((mixed > 0).sum(1) > 1).sum())
        absent = int((~mixed.any(1)).sum())
        if interpolated or absent:
            warnings.warn(
                f"of the {len(names)} channels of {self.model}, {interpolated} are interpolated and {absent} are 0, as "
                f"{name} does not have them",
                stacklevel=5,
            )
        return mixed

    def bound_to(self, recordings: Recordings) -> Bound:
        """For these recordings; raises where it cannot take their windows."""
        kinds = self.bind(recordings)
        return Bound(self, kinds, self.tuned(recordings, kinds))

    def bind(self, recordings: Recordings) -> dict[str, str]:
        """Register it for windows like these. Returns the names that `represent` takes, by kind."""
        rate, times = self._sizes()
        if recordings.sfreq is None:
            raise UserError(f"the foundation encoder {self.model} is for windows at {rate:g} Hz; state sfreq")
        channels = torch.from_numpy(self._channel_map(recordings)).to(torch.float32)
        rates = (float(recordings.sfreq), rate, times)
        config = {"model": self.model, "options": self.options}
        trained = Encoder(config, self.module, channels, rates)
        seed = seed_of(digest_of(trained.tensors()))
        untrained = Encoder(config, build_encoder(self.model, self.options, seed), channels, rates)
        dim = self._n_features(len(channels), times)
        names = {}
        for kind, encoder in zip(KINDS, (trained, untrained), strict=True):
            try:
                encoder.check()
            except ValueError as error:
                raise UserError(f"the foundation encoder {self.model} cannot be used ({error})") from None
            names[kind] = f"{kind}:{know(encoder)}:{dim}"
        self._check_finite(trained, recordings)
        return names

    def tuned(self, recordings: Recordings, kinds: Mapping[str, str], rank: int = RANK) -> list[dict[str, Any]]:
        """Keywords of settings whose networks start from it, and from the untrained one, and learn on by adapters.

        kinds: what `bind` has returned for these recordings
        """
        digests = {kind: name.split(":")[1] for kind, name in kinds.items()}
        encoder = opened(digests[KINDS[0]])
        layout = {"channels": encoder.channels, "rates": torch.tensor(encoder.rates, dtype=torch.float32)}
        represent = know_layout(digest_of(layout), **layout, n_times=recordings.n_times)
        return [
            {"encoder": f"{TUNED}{kind}:{digest}:{rank}", "standardise": "none", "represent": represent}
            for kind, digest in digests.items()
        ]

    def _check_finite(self, encoder: Encoder, recordings: Recordings) -> None:
        """Raise where it gives something else than numbers for some of the recordings' windows."""
        rows = torch.linspace(0, len(recordings.X) - 1, min(TRIED, len(recordings.X))).long()
        if not encoder.numbers(recordings.X[rows]).isfinite().all():
            raise UserError(
                f"the foundation encoder {self.model} gives nan or infinite features for windows of "
                f"{shown(recordings.name)}; its weights are damaged or not meant for them: give others, or leave it out"
            )

    @torch.no_grad()
    def _n_features(self, channels: int, times: int) -> int:
        """How many numbers it gives for a window of zeros."""
        try:
            dim = int(features(self.module, torch.zeros(2, channels, times)).shape[1])
        except Exception as error:  # anything can go wrong in somebody else's network
            raise UserError(
                f"the foundation encoder {self.model} cannot take windows of {channels} channels and {times} samples "
                f"({one_line(error)})"
            ) from None
        if not 1 <= dim <= MOST_FEATURES:
            raise UserError(f"the foundation encoder {self.model} has {dim} features; at most {MOST_FEATURES} are used")
        return dim


def is_pretrained_encoder(encoder: str) -> bool:
    """Whether --encoder names a foundation encoder, as --base does."""
    return encoder.startswith(HUB) or (encoder.startswith(PREFIX) and PRETRAINED in parse(encoder).options)


def open_foundation(text: str) -> FoundationEncoder:
    """The encoder of braindecode:MODEL,pretrained=FOLDER_OR_REPOSITORY,option=value, or of a folder or hf:USER/NAME
    whose README.md has the model among its tags; anything else is refused in one line."""
    model: str | None = None
    keywords: dict[str, Any] = {}
    source = text
    if text.startswith(PREFIX):
        model, keywords = parse(text)
        source = keywords.pop(PRETRAINED, "")
        if not source:
            raise UserError(
                f"the base {shown(text)} has no weights; give {PREFIX}{model},{PRETRAINED}=FOLDER or USER/NAME"
            )
        if not source.startswith(HUB) and not Path(source).is_dir():
            source = HUB + source
    place = local_folder(source)
    try:
        model, options, weights = _read(place, model)
    except UserError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"the foundation encoder in {place} cannot be read ({one_line(error)})") from None
    options |= keywords
    return FoundationEncoder(model, options, build_pretrained(model, options, weights), weights)


def _read(place: Path, model: str | None) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """Model, config.json and model.safetensors. Where the model is not given, README.md must have it among its tags:
    braindecode writes the name of the class there."""
    if not (place / WEIGHTS).exists():
        pickled = sorted(path.name for path in place.glob("*") if path.suffix in PICKLED)
        why = f"has {pickled[0]}, which could run code when it is opened" if pickled else f"has no {WEIGHTS}"
        raise UserError(f"{place} {why}; give a folder or repository with {WEIGHTS}")
    weights, config = read_weights(place / WEIGHTS), read_plain(place / CONFIG)
    page = read_plain(place / PAGE).decode(errors="replace") if (place / PAGE).exists() else ""
    options = parse_json(config.decode())
    if not isinstance(options, dict):
        raise ValueError(f"{CONFIG} is no JSON object")
    if model is None:
        known = braindecode_models("a foundation encoder")
        head = page.split("---")[1] if page.startswith("---") else ""
        named = [word for word in dict.fromkeys(re.findall(r"\w+", head)) if word in known]
        if len(named) != 1:
            fault = f"names {', '.join(named)}" if named else "names no model of braindecode"
            raise UserError(f"{PAGE} of {place} {fault} among its tags; give {PREFIX}MODEL,{PRETRAINED}={place}")
        (model,) = named
    return model, options, load(weights)
