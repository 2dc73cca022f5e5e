"""Pretraining: networks with a head for each study, trained on all studies at once; folds and seeds are its members.

Every member is tested on people that it was not trained on, so that the card of a base says how well its networks do
with new people. Until it is finished, the folder has a ledger as a run has: the same call continues after a kill, and
an executor of a run trains the populations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UserError, check_positive, shown
from ..folds import divide
from ..jobs import Record, check_seed
from ..models.base import KEYS, PEOPLE, Base, load_base, save_base
from ..models.base_card import BaseCard
from ..preprocessing.transform import with_prefix
from ..recordings import Recordings
from ..runs.checks import entry_key
from ..runs.executor import Executor
from ..runs.ledger import UNVALIDATED, Entry, Ledger, backup_of
from ..runs.lock import Lock, remove_database
from ..runs.options import RunOptions
from ..runs.preparation import Preparation
from ..runs.provenance import fingerprint
from ..runs.run import Run, begin_ledger
from ..runs.sqlite_errors import DamagedLedger
from ..settings import Setting
from ..training.batches import epochs_for
from ..training.packing import resolve_device
from ..training.train import check_jobs
from ..versions import versions
from .studies import Studies

LEDGER = "pretraining.sqlite"
MEMBERS = 10
MOST_MEMBERS = 1000
FOLDS = 5  # groups of people who are left out in turn
STEPS = 5000  # of the optimiser, where epochs are not given
BATCH = 128
# As the networks of a run that are not the published one; people were brought to one scale by Studies.
SETTING: dict[str, Any] = {
    "encoder": "shallow", "standardise": "none", "schedule": "constant", "checkpoint": "averaged", "batch_size": BATCH,
    "channel_mask": 0.1,
}  # fmt: skip


def pretrain(
    studies: Studies,
    out: str | Path,
    *,
    members: int = MEMBERS,
    epochs: int | None = None,
    device: str = "auto",
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool | None = None,
    **setting: Any,
) -> Base:
    """Train a base on several studies and write it to a folder.

    Parameters
    ----------
    studies : Studies
    out : folder, new or of the same call that was interrupted, which then goes on
    members : networks; each leaves out one of five groups of people, on whom it is measured
    epochs : of every network; default: about 5,000 steps
    device, seed : as of `autotransfer run`
    executor : where networks are trained, such as a `cluster.Cluster`; None: in this process
    progress : whether a bar is shown; None: where standard error is a terminal
    **setting : keywords of a `Setting`, such as method="mmd", strength=0.1, nuisance="subject+study"

    Returns
    -------
    Base
    """
    resolve_device(device)
    check_seed(seed)
    if not isinstance(members, int) or not 1 <= members <= MOST_MEMBERS:
        raise UserError(f"members is {shown(members)}; it must be a whole number from 1 to {MOST_MEMBERS}")
    values = SETTING | {name: value for name, value in setting.items() if value is not None}
    if values["encoder"] != "shallow":
        raise UserError(f"encoder is {shown(values['encoder'])}; a base has networks of the kind 'shallow'")
    check_positive(Setting(**values | ({} if epochs is None else {"max_epochs": epochs})).training, "max_epochs")
    folder = Path(out)
    if (folder / "ledger.sqlite").exists() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{folder} is a run or a file; choose another --out, a folder for the base")
    if executor is not None and not studies.fit_into_memory:
        raise UserError(
            f"windows of all studies take {4 * prod(studies.shape) / 1e9:.3g} GB, and workers of a cluster hold them "
            "in memory; leave --cluster out, or give a shorter window or a lower sfreq"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
    with Lock(folder):
        recordings = studies.recordings if studies.fit_into_memory else studies.in_file(folder)
        entries = _entries(recordings, values, members, epochs, seed)
        identity = f"{fingerprint(recordings)} {entries[0].setting.key} {members} {seed}"
        if not _finished(folder, identity):
            options = RunOptions(source=recordings.name, folds=FOLDS, device=device)
            run = Run(folder, _ledger(folder, identity), options, Preparation(options, recordings))
            with closing(run.ledger):
                check_jobs(recordings, [run.job(entry) for entry in entries])
                run.executor = executor or run.executor
                run.add(entries)
                run.work(shown=progress, label="pretraining")
                _save(studies, run, identity)
        elif (folder / LEDGER).exists():  # it was killed while it wrote the base, whose page may be missing
            load_base(folder).save(folder)
        for path in (folder / LEDGER, backup_of(folder / LEDGER)):
            remove_database(path)
    return load_base(folder)


def _entries(
    recordings: Recordings, values: dict[str, Any], members: int, epochs: int | None, seed: int
) -> list[Entry]:
    groups = divide(recordings.n_subjects, FOLDS)
    if epochs is None:  # a network needs steps, not epochs
        windows = np.bincount(recordings.subject.numpy())
        rows = recordings.n_trials - max(int(windows[group].sum()) for group in groups)
        epochs = epochs_for(rows, values["batch_size"], STEPS)
    setting = Setting(**values | {"max_epochs": epochs})
    places = [(number % len(groups), seed + number // len(groups)) for number in range(members)]
    return [
        Entry(entry_key(setting, UNVALIDATED, test, seed), "folds", setting, UNVALIDATED, test, seed)
        for test, seed in places
    ]


def _ledger(folder: Path, identity: str) -> Ledger:
    """That of the same call, which was interrupted, or a new one; that of another call is refused."""
    path = folder / LEDGER
    if path.exists():
        with suppress(DamagedLedger), ExitStack() as opened:
            ledger = Ledger(path)
            opened.callback(ledger.close)
            ledger.check()
            if ledger.recall("identity", str) != identity:
                raise UserError(
                    f"{folder} holds a base of other studies or settings, which is not finished; choose another --out, "
                    "or remove it"
                )
            opened.pop_all()  # it stays open
            return ledger
        remove_database(path)
    return begin_ledger(path, {"identity": identity})


def _finished(folder: Path, identity: str) -> bool:
    """Whether the same call has made a base before; another one is refused."""
    try:
        base = load_base(folder)
    except UserError:
        return False  # none yet, or a damaged one, which is made again
    if base.card.training.get("identity") != identity:
        raise UserError(f"{folder} holds a base of other studies or settings; choose another --out")
    return True


def _save(studies: Studies, run: Run, identity: str) -> None:
    """Write the base that the finished trainings of a run make."""
    done = [entry for entry in run.ledger.entries() if entry.status == "done"]
    if not done:
        raise UserError("every network of the base failed; give a smaller lr, or look at the recordings with inspect")
    states = [with_prefix("best.", run.weights(entry.key)) for entry in done]
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    traces = studies.all_traces
    people = {KEYS: torch.from_numpy(traces.keys.view(np.int64)), PEOPLE: torch.from_numpy(traces.people)}
    records = [entry.record for entry in done if entry.record is not None]
    save_base(run.folder, _card(studies, done[0].setting, records, identity), tensors | people)


def _card(studies: Studies, setting: Setting, records: Sequence[Record], identity: str) -> BaseCard:
    scores: dict[int, list[float]] = {}
    for record in records:
        for person, score in record.test_scores.items():
            if np.isfinite(score):
                scores.setdefault(int(person), []).append(score)
    facts, first = [], 0
    for name, study in zip(studies.names, studies.studies, strict=True):
        people = range(first, first + study.n_subjects)
        known = [float(np.mean(scores[person])) for person in people if scores.get(person)]
        facts.append({
            "name": name, "people": study.n_subjects, "windows": study.n_trials,
            "classes": [str(label) for label in study.classes],
            "score": float(np.mean(known)) if known else None, "chance": 1 / study.n_classes,
        })  # fmt: skip
        first += study.n_subjects
    return BaseCard(
        name=" + ".join(studies.names), studies=facts, members=len(records), setting=setting.to_dict(),
        n_times=studies.n_times, channels=list(studies.channels), sfreq=studies.sfreq, people=first,
        ring=None if studies.ring is None else list(studies.ring),
        training={"folds": FOLDS, "identity": identity, "versions": versions()},
    )  # fmt: skip
