"""Options and recordings that go together: read, resolved and checked once, before anything is planned or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..folds import check_scorable, in_units, leave_groups_out
from ..model.any_module import latent_dim
from ..model.encoders import ENCODERS, Encoders, encoder_options, find_factory
from ..models.base import bound_base
from ..recordings import Recordings, load
from ..recordings.optional import need
from ..settings import SUBJECT, Setting
from ..training.members import size_of
from ..training.nuisance import check_nuisance
from ..training.packing import resolve_device
from .options import RunOptions


@dataclass(frozen=True)
class Preparation:
    """What a run needs; nothing that can be wrong with it is left to be found."""

    options: RunOptions  # resolved for the recordings
    recordings: Recordings  # whose `subject` is the unit that is held out
    encoders: Encoders | None = None

    def with_options(self, options: RunOptions) -> Preparation:
        """The same recordings with other folds or steps."""
        options = options.for_data(self.recordings)
        if options.nuisance != SUBJECT:  # must be in the data, and differ among the people who train
            folds = leave_groups_out(self.recordings, options.n_folds)
            check_nuisance(self.recordings, options.nuisance, [fold.train for fold in folds])
        return replace(self, options=options)


def prepare(options: RunOptions, encoders: Encoders | None = None, recordings: Recordings | None = None) -> Preparation:
    """recordings: where they are in memory already; otherwise they are loaded from `options.source`."""
    resolve_device(options.device)
    check_packages(options)
    check_encoder(options, encoders)
    recordings = load(options.source, **options.cutting) if recordings is None else recordings
    recordings = in_units(recordings, options.hold_out)
    check_scorable(recordings)
    prepared = Preparation(options, recordings, encoders).with_options(options)
    check_modules(prepared.options.settings(), encoders, recordings)
    if options.base is not None:
        bound_base(options.base, recordings)
    return prepared


def check_packages(options: RunOptions) -> None:
    """Raise if an optional package is missing, before any work is done."""
    if options.search == "tpe":
        need("optuna", "search tpe", "optuna")
        if (options.storage or "").startswith("postgresql"):
            need("psycopg", f"the storage {options.storage!r}", "psycopg[binary]")


def check_encoder(options: RunOptions, encoders: Encoders | None) -> None:
    for name in {setting.encoder for setting in options.settings()} - set(ENCODERS):
        find_factory(name, encoders)


def check_modules(settings: Sequence[Setting], encoders: Encoders | None, recordings: Recordings) -> None:
    """Raise if a user's encoder is not known, or cannot take these windows."""
    foreign = {setting.encoder: setting for setting in reversed(settings) if setting.encoder not in ENCODERS}
    for setting in foreign.values():
        size = size_of(recordings, setting)
        module = encoder_options(setting.encoder, setting.network, encoders).module(size)
        latent_dim(module, torch.zeros(2, size.channels, size.times))
