"""A base: networks that were trained on several studies, as a folder that other studies start from.

BASE holds base.json (the card), base.safetensors (weights and, of every person, a few fingerprints of samples) and a
README.md. The three are opened like any stranger's file: sizes, shapes and digests are checked, nothing is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from ..errors import UserError, one_line, shown
from ..files import read_plain
from ..model.shallow import Shallow, ShallowOptions
from ..model.start import know_start
from ..preprocessing.represent.base_layout import know_layout
from ..preprocessing.represent.foundation import digest_of, seed_of
from ..preprocessing.represent.pretrained import know
from ..preprocessing.transform import with_prefix
from ..recordings import Recordings
from ..recordings.copies import Traces, traces
from ..recordings.layout import channel_map
from ..settings import Setting
from ..training.members import Members
from .base_card import BaseCard
from .binding import check_digest, read_weights
from .card import DIGEST
from .foundation import Bound
from .hub import local_folder, push_to_hub
from .model_page import base_page
from .saving import BASE, UNREADABLE, as_json, read_folder, write_folder

KEYS, PEOPLE = "people.keys", "people.numbers"  # of Traces, among the tensors
KINDS = ("base", "random_base")


class Base:
    """Networks of several studies: members of one setting, each with a classifier over the classes of all studies.

    Attributes
    ----------
    card : BaseCard
    members : Members
    traces : Traces, by which people are recognised
    digest : str, of all of it
    """

    def __init__(self, card: BaseCard, tensors: Mapping[str, Tensor], digest: str) -> None:
        self.card, self.digest = card, digest
        self.setting = Setting.from_dict(card.setting)
        if self.setting.encoder != "shallow":
            raise UserError(f"a base has shallow networks, not {shown(self.setting.encoder)}")
        weights = {name: tensor for name, tensor in tensors.items() if name not in (KEYS, PEOPLE)}
        for name, tensor in weights.items():  # before members are made: a card may promise millions
            if tensor.dim() < 1 or len(tensor) != card.members:
                raise ValueError(f"the tensor {shown(name)} of a base is not of {card.members} members")
            if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise ValueError(f"the tensor {shown(name)} of a base is not of finite numbers")
        if not weights:
            raise ValueError("a base has no weights")
        self.members = Members(self.setting, card.size, range(card.members))
        self.members.load_stacked(weights)
        keys, people = (tensors[name].numpy() for name in (KEYS, PEOPLE))
        if keys.ndim != 1 or keys.shape != people.shape or keys.dtype != np.int64 or people.dtype != np.int64:
            raise ValueError("the people of a base are not two lists of numbers")
        if len(people) and not (people.min() >= 0 and people.max() < card.people):
            raise ValueError(f"a base of {card.people} people names the person {people.max()}")
        self.traces = Traces(np.sort(keys.view(np.uint64)), people[np.argsort(keys.view(np.uint64), kind="stable")])

    def tensors(self) -> dict[str, Tensor]:
        """What `save_base` writes."""
        keys = torch.from_numpy(self.traces.keys.view(np.int64).copy())
        return self.members.tensors() | {KEYS: keys, PEOPLE: torch.from_numpy(self.traces.people.copy())}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it to a folder, which `load_base` reads."""
        save_base(Path(folder), self.card, self.tensors())

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload it to Hugging Face's hub: see `models.hub.push_to_hub`."""
        return push_to_hub(self, repository, **options)

    def check_new(self, recordings: Recordings) -> None:
        """Raise where people of these recordings are among those of the base: they would not be new to it."""
        pairs = self.traces.shared(traces(recordings.X, recordings.subject.numpy()))
        if pairs:
            who = sorted({str(recordings.subjects[person]) for _, person in pairs})
            listed = ", ".join(map(shown, who[:5])) + (f" and {len(who) - 5} more" if len(who) > 5 else "")
            raise UserError(
                f"{len(who)} of {recordings.n_subjects} people are in the base {shown(self.card.name)} already "
                f"({listed} by their samples); give a base without them, or leave --base out"
            )

    def check_like(self, recordings: Recordings) -> None:
        """Raise where windows of these recordings cannot be converted to the layout of the base."""
        if (self.card.sfreq is None) != (recordings.sfreq is None):
            rate = "" if self.card.sfreq is None else f" of {self.card.sfreq:g} Hz"
            raise UserError(f"the base is for windows{rate or ' of unknown rate'}; state sfreq, or leave --base out")
        if not self._channel_map(recordings).any():
            raise UserError(
                f"{shown(recordings.name)} has no channel of the base ({', '.join(self.card.channels[:8])}); name "
                "channels alike, or leave --base out"
            )

    def _channel_map(self, recordings: Recordings) -> Any:
        ring = None if self.card.ring is None else tuple(self.card.ring)
        return channel_map(recordings.channels, recordings.ring, self.card.channels, ring)

    def bound_to(self, recordings: Recordings) -> Bound:
        """For these recordings; raises where they are unlike those of the base, or people are among its own."""
        self.check_like(recordings)
        self.check_new(recordings)
        start = self.start(recordings)
        return Bound(self, self.bind(recordings), [start, start | {"start": None}])

    def bind(self, recordings: Recordings) -> dict[str, str]:
        """Register it for windows like these. Returns the names that `represent` takes, by kind: 'base' and
        'random_base'."""
        layout, names = self._layout(recordings), {}
        for kind, tensors in zip(KINDS, (self.frozen(), self.untrained()), strict=True):
            weights = layout | tensors
            names[kind] = f"{kind}:{digest_of(weights)}:{self.card.n_classes}"
            know(names[kind], weights)
        return names

    def start(self, recordings: Recordings) -> dict[str, Any]:
        """Register its encoders, and its layout for windows like these. Returns the keywords of a setting whose network
        starts from them; without `start` they are those of the same network from scratch."""
        layout = self._layout(recordings)
        options = self.setting.network
        assert isinstance(options, ShallowOptions), "the only networks of a base"
        tensors = with_prefix("encoder.", self.members.tensors())
        encoders = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        return {
            "encoder": "shallow", "standardise": "none", "power_filters": options.power_filters,
            "temporal_kernel": options.kernel(self.card.sfreq), "dropout": options.dropout,
            "represent": know_layout(digest_of(layout), **layout, n_times=recordings.n_times),
            "start": know_start(digest_of(encoders), encoders),
        }  # fmt: skip

    def _layout(self, recordings: Recordings) -> dict[str, Tensor]:
        """How windows of these recordings become windows of the base: channels and rates, as `Pretrained` has them."""
        self.check_like(recordings)
        mixed = torch.from_numpy(self._channel_map(recordings)).to(torch.float32)
        rates = torch.tensor([recordings.sfreq or 1.0, self.card.sfreq or 1.0, self.card.n_times], dtype=torch.float32)
        return {"channels": mixed, "rates": rates}

    def frozen(self) -> dict[str, Tensor]:
        """The members with every normalisation folded into the filters and the classifier next to it."""
        return _folded(self.members)

    def untrained(self) -> dict[str, Tensor]:
        """The same of untrained members: random filters, each scaled to give a white signal the power 1, and random
        mixtures of their log powers."""
        seeds = [seed_of(f"{self.digest} {number}") for number in range(self.card.members)]
        fresh = Members(self.setting, self.card.size, seeds)
        net = fresh.net
        assert isinstance(net, Shallow), "checked above"
        with torch.no_grad():
            gain = net.spatial.square().sum(-1) * net.temporal.square().sum(-1)
            net.norm.running_var.copy_(gain)
        return _folded(fresh)


@torch.no_grad()
def _folded(members: Members) -> dict[str, Tensor]:
    net = members.net
    assert isinstance(net, Shallow), "the only networks of a base"
    scale, shift = net.norm.folded()
    power_scale, power_shift = net.power_norm.folded()
    weight = members.classifier.weight.double()
    weight = weight.view(*weight.shape[:2], net.filters, net.stretches)  # (P, classes, filters, stretches)
    bias = members.classifier.bias.double() + (weight * power_shift[:, None, :, None]).sum((-2, -1))
    folded = {
        "spatial": net.spatial,
        "temporal": net.temporal.double() * scale[..., None],
        "shift": shift,
        "weight": weight * power_scale[:, None, :, None],
        "bias": bias,
    }
    # Spatial filters are parameters as they are: what is made of windows would otherwise keep all that led to it.
    return {name: tensor.detach().to(torch.float32).contiguous() for name, tensor in folded.items()}


def save_base(folder: Path, card: BaseCard, tensors: dict[str, Tensor]) -> None:
    """Write a base to a folder, which `load_base` reads."""
    write_folder(folder, BASE, as_json(card), tensors, base_page(card))


def load_base(folder: str | os.PathLike[str]) -> Base:
    """The base in a folder, or in a repository of Hugging Face's hub, hf:USER/NAME; anything that is no base is refused
    in one line."""
    place = local_folder(folder)
    if not os.path.isdir(place):
        raise UserError(
            f"there is no folder {shown(str(place))}; make a base with: autotransfer pretrain A B --out BASE"
        )
    try:
        return read_folder(place, BASE, _load)
    except UserError as error:
        raise UserError(f"the base in {place} cannot be used ({error})") from None
    except FileNotFoundError as error:
        raise UserError(f"there is no base in {place} ({Path(error.filename).name} is missing)") from None
    except UNREADABLE as error:
        raise UserError(
            f"the base in {place} cannot be read ({one_line(error)}); make it again with pretrain"
        ) from None


def _load(path: Path) -> Base:
    """From the path of its weights."""
    values = json.loads(read_plain(path.with_name(BASE.card)).decode())
    if not isinstance(values, dict):
        raise ValueError(f"{BASE.card} is no JSON object")
    card = BaseCard(**{name: value for name, value in values.items() if name != DIGEST})
    weights = read_weights(path)
    check_digest(values, weights, card=BASE.card, file=path.name)
    return Base(card, load(weights), values[DIGEST]["card"])
