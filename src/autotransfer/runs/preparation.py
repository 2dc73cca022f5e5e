"""Options and recordings that go together: read, resolved and checked once, before anything is planned or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..folds import MANY_PEOPLE, USUAL_FOLDS, Fold, check_scorable, groups_of, in_units, leave_groups_out, turns
from ..model.any_module import latent_dim
from ..model.encoders import ENCODERS, Encoders, encoder_options, find_factory
from ..recordings import Recordings, load
from ..recordings.optional import need
from ..recordings.windows import check_rate
from ..settings import SUBJECT, Setting
from ..training import mistake_costs
from ..training.members import size_of
from ..training.nuisance import check_nuisance
from ..training.packing import resolve_device
from .options import RunOptions, epochs_for

if TYPE_CHECKING:
    from ..models.foundation import Bound


@dataclass(frozen=True)
class Preparation:
    """What a run needs; nothing that can be wrong with it is left to be found."""

    options: RunOptions  # resolved for the recordings
    recordings: Recordings  # whose `subject` is the unit that is held out
    encoders: Encoders | None = None
    base: Bound | None = None  # for the recordings

    @property
    def groups(self) -> list[list[int]]:
        """Who are held out together: positions in recordings.subjects."""
        return groups_of(self.recordings, self.options.n_folds)

    @property
    def folds(self) -> list[Fold]:
        return leave_groups_out(self.recordings, self.options.n_folds)

    @property
    def turns(self) -> int:
        """How many folds there are, those of sessions counted once."""
        return self.options.n_folds or turns(self.recordings)

    @property
    def device(self) -> torch.device:
        return resolve_device(self.options.device)

    def check_settings(self, settings: Sequence[Setting]) -> None:
        """Raise if windows are too short for a setting, or have another sampling rate, or if a user's encoder is not
        known, or cannot take them."""
        for setting in settings:
            check_rate(self.recordings.sfreq, setting.preprocessing.sfreq, 1e-6, "setting")
        sizes = {setting.encoder: (setting, size_of(self.recordings, setting)) for setting in reversed(settings)}
        for encoder, (setting, size) in sizes.items():
            if encoder not in ENCODERS:
                module = encoder_options(encoder, setting.network, self.encoders).module(size)
                latent_dim(module, torch.zeros(2, size.channels, size.times))

    def check_nuisance(self) -> None:
        """Raise unless it is in the data, and differs among the people who train in each fold."""
        if self.options.nuisance != SUBJECT:
            check_nuisance(self.recordings, self.options.nuisance, [fold.train for fold in self.folds])


def prepare(options: RunOptions, encoders: Encoders | None = None, recordings: Recordings | None = None) -> Preparation:
    """recordings: where they are in memory already; otherwise they are loaded from `options.source`."""
    check_packages(options)
    check_encoder(options, encoders)
    resolve_device(options.device)
    recordings = load(options.source, **options.cutting) if recordings is None else recordings
    recordings = in_units(recordings, options.hold_out)
    check_scorable(recordings)
    prepared = Preparation(resolved(options, recordings), recordings, encoders)
    prepared.check_settings(prepared.options.settings())
    prepared.check_nuisance()
    if options.base is None:
        return prepared
    from ..models.base import open_base  # with what reads models; most runs have no base

    return replace(prepared, base=open_base(options.base).bound_to(recordings))


def resolved(options: RunOptions, recordings: Recordings) -> RunOptions:
    """Options with folds and epochs set from the recordings, unless user or paper fixes them, and costs in the order of
    the classes."""
    metric = mistake_costs.for_classes(options.metric, recordings.classes)
    folds, n = options.folds, turns(recordings)
    if folds == "auto":
        many = n > MANY_PEOPLE and options.rule != "published" and options.grid != "paper"
        folds = USUAL_FOLDS if many else "all"
    if isinstance(folds, int) and folds >= n:
        folds = "all"
    epochs = options.epochs
    if epochs is None and options.grid != "paper" and not options.lists_settings:
        held_out = sum(map(len, groups_of(recordings, None if isinstance(folds, str) else folds)[:2]))
        training = len(recordings.y) * (recordings.n_subjects - held_out) // recordings.n_subjects
        epochs = epochs_for(training, options.plain.training.batch_size, options.max_steps)
    return replace(options, folds=folds, metric=metric, epochs=epochs)


def check_packages(options: RunOptions) -> None:
    """Raise if an optional package is missing, before any work is done."""
    if options.search == "tpe":
        need("optuna", "search tpe", "optuna")
        if (options.storage or "").startswith("postgresql"):
            need("psycopg", f"the storage {options.storage!r}", "psycopg[binary]")


def check_encoder(options: RunOptions, encoders: Encoders | None) -> None:
    for name in {setting.encoder for setting in options.settings()} - set(ENCODERS):
        find_factory(name, encoders)
