"""Pretraining: networks with a head for each study, trained on all studies at once; folds and seeds are its members.

Every member is tested on people that it was not trained on, so that the card of a base says how well its networks do
with new people. Finished populations are kept in the folder: the same call continues after a kill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError, check_positive, shown
from ..files import write_atomically
from ..folds import divide, make_fold
from ..jobs import Job, Outcome, check_seed
from ..models.base import KEYS, PEOPLE, Base, load_base, save_base
from ..models.base_card import BaseCard
from ..recordings import Recordings
from ..runs.checkpoint import restore, save_checkpoint
from ..runs.executor import CHECKPOINT_EVERY, DTYPE
from ..runs.lock import Lock
from ..runs.options import epochs_for
from ..runs.provenance import fingerprint, versions
from ..runs.signals import asked_to_stop, raise_if_asked, signals_wait
from ..settings import Setting
from ..training.closed_form import population_of
from ..training.packing import pack, resolve_device
from ..training.progress import Progress
from ..training.train import check_jobs, run
from ..training.trainer import Trainer
from ..training.windows import release, windows_for
from .studies import Studies

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
    folder = Path(out)
    if (folder / "ledger.sqlite").exists() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{folder} is a run or a file; choose another --out, a folder for the base")
    recordings = studies.recordings
    jobs = _jobs(recordings, members, epochs, seed, setting)
    check_jobs(recordings, jobs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
    with Lock(folder):
        identity = f"{fingerprint(recordings)} {jobs[0].setting.key} {members} {seed}"
        known = _finished(folder, identity)
        if known is not None:
            return known
        start = time.monotonic()
        work = _Training(folder, recordings, identity, device)
        states, scores = work.train(jobs, progress)
        card = _card(studies, jobs[0].setting, len(states), scores, seconds=time.monotonic() - start, identity=identity)
        traces = studies.all_traces
        tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        people = {KEYS: torch.from_numpy(traces.keys.view(np.int64)), PEOPLE: torch.from_numpy(traces.people)}
        save_base(folder, card, tensors | people)
        work.tidy()
    return load_base(folder)


def _jobs(recordings: Recordings, members: int, epochs: int | None, seed: int, given: dict[str, Any]) -> list[Job]:
    values = SETTING | {name: value for name, value in given.items() if value is not None}
    if values["encoder"] != "shallow":
        raise UserError(f"encoder is {shown(values['encoder'])}; a base has networks of the kind 'shallow'")
    groups = divide(recordings.n_subjects, FOLDS)
    folds = [make_fold(recordings, (), group) for group in groups]
    rows = min(len(fold.train) for fold in folds)
    # A network needs steps, not epochs.
    values["max_epochs"] = epochs_for(rows, values["batch_size"], STEPS) if epochs is None else epochs
    setting = Setting(**values)
    check_positive(setting.training, "max_epochs")
    return [Job(setting, folds[number % len(folds)], seed + number // len(folds)) for number in range(members)]


def _finished(folder: Path, identity: str) -> Base | None:
    """The base that the same call has made before; another one is refused."""
    try:
        base = load_base(folder)
    except UserError:
        return None  # none yet, or a damaged one, which is made again
    if base.card.training.get("identity") != identity:
        raise UserError(f"{folder} holds a base of other studies or settings; choose another --out")
    return base


def _card(
    studies: Studies, setting: Setting, members: int, scores: dict[int, list[float]], *, seconds: float, identity: str
) -> BaseCard:
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
        name=" + ".join(studies.names), studies=facts, members=members, setting=setting.to_dict(),
        n_times=studies.n_times, channels=list(studies.channels), sfreq=studies.sfreq, people=first,
        ring=None if studies.ring is None else list(studies.ring),
        training={"folds": FOLDS, "seconds": round(seconds, 1), "identity": identity, "versions": versions()},
    )  # fmt: skip


States = list[dict[str, Tensor]]  # the weights of each member, by name
Scores = list[tuple[int, float]]  # a held-out person, and the score of a member on them


class _Training:
    """Populations of a base in its folder: those that have ended as files, the one in flight as a checkpoint."""

    def __init__(self, folder: Path, recordings: Recordings, identity: str, device: str) -> None:
        self.folder, self.recordings, self.identity = folder, recordings, identity
        self.device = resolve_device(device)

    def train(self, jobs: Sequence[Job], progress: bool | None) -> tuple[States, dict[int, list[float]]]:
        """Weights of every member, and by person the scores of the members that held them out."""
        packs = pack(self.recordings, jobs, "auto", device=self.device, dtype=DTYPE)
        total = sum(job.setting.max_epochs for job in jobs)
        states: States = []
        scores: dict[int, list[float]] = {}
        try:
            with Progress(total, len(jobs), shown=progress, label="pretraining") as bar:
                for number, places in enumerate(packs):
                    path = self.folder / f"population-{number}.safetensors"
                    ended = self._read(path)
                    if ended is None:
                        with signals_wait():
                            ended = self._population([jobs[place] for place in places], number, bar)
                        self._write(path, *ended)
                    states += ended[0]
                    for person, score in ended[1]:
                        scores.setdefault(person, []).append(score)
        finally:
            release(self.recordings)
        if not states:
            raise UserError(
                "every network of the base failed; give a smaller lr, or look at the recordings with inspect"
            )
        return states, scores

    def _population(self, jobs: list[Job], number: int, bar: Progress) -> tuple[States, Scores]:
        windows = windows_for(self.recordings, jobs[0], device=self.device, dtype=DTYPE)
        path = self.folder / f"population-{number}.checkpoint"
        by_key = {f"{self.identity} {job.key}": job for job in jobs}
        restored = restore(by_key, windows, path)
        population = population_of(jobs, windows)
        if restored is not None and len(restored[1]) == len(jobs):
            population = restored[0]
        keys = {id(job): f"{self.identity} {job.key}" for job in population.jobs}
        bar.begun(population)
        last = time.monotonic()

        def after_epoch(population: Trainer) -> None:
            nonlocal last
            bar.epoch(population)
            if population.jobs and (asked_to_stop() or time.monotonic() - last > CHECKPOINT_EVERY):
                save_checkpoint(path, population, [keys[id(job)] for job in population.jobs])
                last = time.monotonic()
            raise_if_asked()

        outcomes: list[Outcome] = []
        for outcome in run(population, after_epoch=after_epoch):
            outcomes.append(outcome)
            bar.finished(outcome)
        path.unlink(missing_ok=True)
        outcomes.sort(key=lambda outcome: list(by_key).index(f"{self.identity} {outcome.job.key}"))
        sound = [outcome for outcome in outcomes if outcome.failure is None]
        scores = [(int(who), score) for outcome in sound for who, score in outcome.test_scores.items()]
        return [outcome.state for outcome in sound], [(who, score) for who, score in scores if np.isfinite(score)]

    def _write(self, path: Path, states: States, scores: Scores) -> None:
        tensors = {f"{m}.{name}": t.contiguous() for m, state in enumerate(states) for name, t in state.items()}
        note = {"identity": self.identity, "members": len(states), "scores": scores}
        write_atomically(path, save(tensors, metadata={"pretraining": json.dumps(note)}))

    def _read(self, path: Path) -> tuple[States, Scores] | None:
        """A population that has ended in this folder, for the same studies and settings."""
        try:
            with safe_open(path, framework="pt") as file:
                note = json.loads((file.metadata() or {})["pretraining"])
                if note["identity"] != self.identity:
                    return None
                names = list(file.keys())
                states = [
                    {name.partition(".")[2]: file.get_tensor(name) for name in names if name.startswith(f"{member}.")}
                    for member in range(int(note["members"]))
                ]
            return states, [(int(who), float(score)) for who, score in note["scores"]]
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None

    def tidy(self) -> None:
        """Remove the files of populations, once the base is written."""
        for path in (*self.folder.glob("population-*.safetensors"), *self.folder.glob("population-*.checkpoint")):
            path.unlink(missing_ok=True)
