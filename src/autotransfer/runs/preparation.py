"""Preparation of a run: its recordings are loaded, and options and recordings are checked, before jobs are planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..folds import Fold, check_scorable, groups_of, leave_groups_out, use_units
from ..model.any_module import latent_dim
from ..model.encoders import ENCODERS, Encoders, encoder_options, find_factory
from ..recordings import Recordings
from ..recordings.optional import need
from ..recordings.signal import check_rate
from ..settings import Setting
from ..training.members import size_of
from ..training.packing import resolve_device
from .options import RunOptions, resolve_options


@dataclass(frozen=True)
class Preparation:
    """Checked options, recordings and encoders of a run."""

    options: RunOptions  # options with folds and epochs for the recordings
    recordings: Recordings  # `subject` is the held-out unit
    encoders: Encoders | None = None

    @property
    def groups(self) -> list[list[int]]:
        """Return groups of subjects that are held out together, as indices into recordings.subjects."""
        return groups_of(self.recordings, self.options.n_folds)

    @property
    def folds(self) -> list[Fold]:
        return leave_groups_out(self.recordings, self.options.n_folds)

    def check_settings(self, settings: Sequence[Setting]) -> None:
        """Raise if a setting does not fit the windows: their length, sampling rate, or shape for a custom encoder."""
        for setting in settings:
            check_rate(self.recordings.sfreq, setting.preprocessing.sfreq, "setting")
        sizes = {setting.encoder: (setting, size_of(self.recordings, setting)) for setting in reversed(settings)}
        for encoder, (setting, size) in sizes.items():
            if encoder not in ENCODERS:
                module = encoder_options(encoder, setting.network, self.encoders).module(size)
                latent_dim(module, torch.zeros(2, size.channels, size.times))


def prepare(options: RunOptions, encoders: Encoders | None = None, recordings: Recordings | None = None) -> Preparation:
    """Return checked options and recordings. recordings: loaded from `options.source` if None."""
    check_packages(options)
    check_encoder(options, encoders)
    resolve_device(options.device)
    recordings = options.load() if recordings is None else recordings
    recordings = use_units(recordings.for_target(options.target), options.hold_out)
    check_scorable(recordings)
    prepared = Preparation(resolve_options(options, recordings), recordings, encoders)
    prepared.check_settings(prepared.options.settings())
    return prepared


def check_packages(options: RunOptions) -> None:
    """Raise if an optional package that the options require is missing."""
    if options.search == "tpe":
        need("optuna", "search tpe", "optuna")


def check_encoder(options: RunOptions, encoders: Encoders | None) -> None:
    for name in {setting.encoder for setting in options.settings()} - set(ENCODERS):
        find_factory(name, encoders)
