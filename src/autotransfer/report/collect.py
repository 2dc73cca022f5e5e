"""Collect a Summary from a run: scores from the ledger, leakage and a latent picture from the stored weights."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..recordings import Recordings
from ..runs.choice import Choice, read_choice
from ..runs.data_facts import Data
from ..runs.ledger import FINISHED, Entry
from ..runs.options import RunOptions
from ..runs.results import trained
from ..runs.run import Run
from ..runs.study import command_of
from ..settings import Setting, nuisance_parts
from ..training.latent import encode_states
from ..training.leakage import leakage_within
from ..training.nuisance import columns_of, nuisance_groups
from ..training.packing import resolve_device
from .summary import Leak, Point, Split, Summary, WeightsStory

SHOWN = ("search", "folds")  # what is solved for sessions is no candidate
PROBED_FOLDS = 6  # leakage is read on this many folds, evenly spread
PROBED_TRIALS = 2000  # of a fold's training trials at most, the same for both models
DRAWN_TRIALS = 600
PROBED_COLUMNS = 6  # beside the subject
PROBED_PEOPLE = 8  # within whom a column is read


def collect(run: Run, *, weights: bool = True, until: float | None = None) -> Summary:
    """Everything the page shows.

    weights: include leakage and latent codes, which take time and are kept in the ledger. until: time of the monotonic
    clock after which fewer folds are probed.
    """
    data, ledger, options = run.data, run.ledger, run.options
    entries = ledger.entries()
    done = [entry for entry in entries if entry.status in FINISHED]
    shown = [entry for entry in entries if entry.stage in SHOWN]
    complete = bool(ledger.recall("complete", bool))
    choice = read_choice(run.folder) if (run.folder / "choice.json").exists() else None
    return Summary(
        name=data.name,
        source=options.source,
        command=command_of(_asked(run), run.folder),
        jobs_done=len(done),
        jobs_total=len(entries),
        started=ledger.recall("started", str) or "",
        seconds=sum(entry.record.seconds for entry in done if entry.record is not None),
        device=str(resolve_device(options.device)),
        versions=ledger.recall("versions", dict[str, str]) or {},
        options=options,
        data=data,
        splits=_splits(data, run.groups, shown),
        trainings=tuple(trained(shown, data.subjects, options.name_of, run.groups)),
        choice=choice,
        weights=WeightsStory()
        if choice is None or not weights or not complete
        else _weights_story(run, roles(choice, shown), shown, until),
    )


def _asked(run: Run) -> RunOptions:
    """Options as the user gave them, if the run has kept them; a time limit may have reduced them."""
    asked = run.ledger.recall("asked", dict[str, Any])
    return run.options if asked is None else replace(RunOptions.from_dict(asked), source=run.options.source)


def roles(choice: Choice, entries: Sequence[Entry]) -> dict[str, Setting]:
    """Settings of networks to compare: the baseline; the chosen one; and the chosen one without its penalty, if that
    is neither and was trained on the same folds, because the baseline may preprocess windows differently. A model in
    closed form has no learned representation to probe."""
    baseline, chosen = choice.baseline.setting, choice.chosen.setting
    settings = {"baseline": baseline} | ({} if choice.baseline_won else {"chosen": chosen})
    if chosen.penalty is not None:
        folds: dict[Setting, set[int]] = {}
        for entry in entries:
            if entry.record is not None:
                folds.setdefault(entry.setting, set()).add(entry.test)
        twins = (chosen.uncensored(batches) for batches in (chosen.training.batches, "shuffled"))
        twin = next((twin for twin in twins if folds.get(chosen, set()) <= folds.get(twin, set())), baseline)
        settings |= {"uncensored": twin} if twin != baseline else {}
    return {role: setting for role, setting in settings.items() if not setting.network.closed_form}


def _splits(data: Data, groups: Sequence[Sequence[int]], entries: Sequence[Entry]) -> tuple[Split, ...]:
    """All but the two held-out people, or groups of them, train."""
    pairs = {entry.test: entry.validation for entry in entries}
    names = [", ".join(data.subjects[person] for person in group) for group in groups]
    trials = [sum(data.trials[person] for person in group) for group in groups]
    return tuple(
        Split(
            test, names[test], names[other], data.n_trials - trials[test] - trials[other], trials[other], trials[test]
        )
        for test, other in sorted(pairs.items())
    )


def _weights_story(run: Run, probed: dict[str, Setting], entries: Sequence[Entry], until: float | None) -> WeightsStory:
    """Leakage and latent pictures, computed once per run; left out where the recordings are not available."""
    known = run.ledger.recall("weights story", WeightsStory) or WeightsStory()
    missing = {role: setting for role, setting in probed.items() if role not in known.leakage}
    if missing:
        try:
            _ = run.recordings
        except UserError as error:
            warnings.warn(f"the report has no figures of leakage and representation: {error}", stacklevel=3)
            return known
    story = WeightsStory(dict(known.leakage), dict(known.latent))
    for role, setting in missing.items():
        # A failed training has left no weights to read.
        done = [e for e in entries if e.setting == setting and e.seed == run.options.seed and e.status == "done"]
        if not done:
            continue
        spread = np.unique(np.linspace(0, len(done) - 1, PROBED_FOLDS).astype(int))
        story.leakage[role] = []
        for n, entry in enumerate(done[place] for place in spread):
            if n and until is not None and time.monotonic() > until:
                break
            z, rows = _codes(run, entry)
            story.leakage[role] += _leaks(run, entry, z, rows, every=n == 0)
            if n == 0 and role != "uncensored":
                story.latent[role] = _picture(z, rows, run.recordings)
    if story != known:
        run.ledger.remember(**{"weights story": story})
    return story


def _codes(run: Run, entry: Entry) -> tuple[Tensor, NDArray[np.int64]]:
    """z of the fold's training trials at the last epoch, at most PROBED_TRIALS of them, and their rows."""
    job = run.job(entry)
    rows = np.random.default_rng(0).permutation(job.fold.train)[:PROBED_TRIALS]
    tensors = run.weights(entry.key)
    state = {name.removeprefix("final."): t for name, t in tensors.items() if name.startswith("final.")}
    z, _ = encode_states(run.recordings, [job], [state], rows, encoders=run.encoders)
    return z[0], rows


def _leaks(run: Run, entry: Entry, z: Tensor, rows: NDArray[np.int64], *, every: bool) -> list[Leak]:
    """Leakage of the subject and of the run's nuisance; with `every`, of other columns too, which takes time.

    A column that varies within people is probed within each person, so that it cannot be inferred from who they are.
    One that does not, such as an age, is probed among all trials.
    """
    recordings, train = run.recordings, run.job(entry).fold.train
    asked = dict.fromkeys(["subject", *nuisance_parts(run.options.nuisance)])
    others = [name for name in columns_of(recordings) if name not in asked]
    who, everybody = recordings.subject.numpy()[rows], np.zeros(len(rows), dtype=np.int64)
    people = np.unique(who)
    few = np.isin(who, people[np.linspace(0, len(people) - 1, PROBED_PEOPLE).astype(int)])
    leaks = []
    for name in [*asked, *(others[:PROBED_COLUMNS] if every else [])]:
        labels = nuisance_groups(recordings, name, train)[rows]
        inside = None if name == "subject" else leakage_within(z[few], labels[few], who[few])
        leak = inside or leakage_within(z, labels, everybody)
        if leak is not None:  # a fold of three people trains on one, who can be told from nobody
            where = ", ".join(str(recordings.subjects[person]) for person in run.groups[entry.test])
            leaks.append(Leak(where, leak.accuracy, leak.chance, leak.bits, name, inside is not None))
    return leaks


def _picture(z: Tensor, rows: NDArray[np.int64], recordings: Recordings) -> list[Point]:
    """Two principal components of the codes."""
    z, rows = z[:DRAWN_TRIALS].double(), rows[:DRAWN_TRIALS]
    z = (z - z.mean(0)) / z.std(0).clamp(min=1e-9)
    _, _, directions = torch.linalg.svd(z, full_matrices=False)
    plane = (z @ directions[:2].T).numpy().round(3).tolist()
    people, classes = recordings.subject[rows].tolist(), recordings.y[rows].tolist()
    return [
        Point(x, y, str(recordings.subjects[who]), str(recordings.classes[what]))
        for (x, y), who, what in zip(plane, people, classes, strict=True)
    ]
