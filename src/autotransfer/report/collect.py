"""Collect a Summary from a run: scores from the ledger, and leakage from the stored weights."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..runs.choice import Choice, read_choice
from ..runs.ledger import FINISHED, Entry
from ..runs.results import trained
from ..runs.run import Run
from ..runs.study import command_of
from ..settings import Setting
from ..training.latent import encode_states
from ..training.leakage import leakage
from ..training.packing import resolve_device
from .summary import Leak, Summary

SHOWN = ("search", "folds")  # what is solved for sessions is no candidate
FEWEST = 5  # windows of a subject on which a probe is tested
PROBED_FOLDS = 6  # leakage is read on this many folds, evenly spread
PROBED_TRIALS = 2000  # of a fold's training trials at most, the same for both models
PROBED_COLUMNS = 6  # in addition to the subject
PROBED_PEOPLE = 8  # within whom a column is read


def collect(run: Run, *, weights: bool = True, until: float | None = None) -> Summary:
    """Collect everything that the page shows.

    weights: include leakage, which takes time and is kept in the ledger. until: time of the monotonic clock after which
    fewer folds are probed.
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
        command=command_of(run.folder),
        jobs_done=len(done),
        jobs_total=len(entries),
        started=ledger.recall("started", str) or "",
        seconds=sum(entry.record.seconds for entry in done if entry.record is not None),
        device=str(resolve_device(options.device)),
        versions=ledger.recall("versions", dict[str, str]) or {},
        options=options,
        data=data,
        folds=len({entry.test for entry in shown}),
        trainings=tuple(trained(shown, data.subjects, options.name_of, run.groups)),
        choice=choice,
        leakage={}
        if choice is None or not weights or not complete
        else _leakage(run, roles(choice, shown), shown, until),
    )


def roles(choice: Choice, entries: Sequence[Entry]) -> dict[str, Setting]:
    """Return the networks to compare: the paper's, the chosen one, and the chosen one without its penalty.

    The last is left out unless it was trained on the same folds; the paper's may preprocess windows differently. A
    model in closed form has no learned representation to probe.
    """
    paper, chosen = None if choice.paper_network is None else choice.paper_network.setting, choice.chosen.setting
    settings = {} if paper is None else {"paper_network": paper}
    settings |= {} if choice.paper_network_won else {"chosen": chosen}
    if chosen.penalty is not None:
        folds: dict[Setting, set[int]] = {}
        for entry in entries:
            if entry.record is not None:
                folds.setdefault(entry.setting, set()).add(entry.test)
        twins = (chosen.uncensored(batches) for batches in (chosen.training.batches, "shuffled"))
        twin = next((twin for twin in twins if folds.get(chosen, set()) <= folds.get(twin, set())), paper)
        settings |= {"uncensored": twin} if twin is not None and twin != paper else {}
    return {role: setting for role, setting in settings.items() if not setting.network.closed_form}


def _leakage(
    run: Run, probed: dict[str, Setting], entries: Sequence[Entry], until: float | None
) -> dict[str, list[Leak]]:
    """Probe the stored weights, once per run; nothing is added if the recordings are not available."""
    known = run.ledger.recall("leakage", dict[str, list[Leak]]) or {}
    missing = {role: setting for role, setting in probed.items() if role not in known}
    if missing:
        try:
            _ = run.recordings
        except UserError as error:
            warnings.warn(f"the report has no figure of leakage: {error}", stacklevel=3)
            return known
    found = dict(known)
    for role, setting in missing.items():
        # A failed training has left no weights to read.
        done = [e for e in entries if e.setting == setting and e.seed == run.options.seed and e.status == "done"]
        if not done:
            continue
        spread = np.unique(np.linspace(0, len(done) - 1, PROBED_FOLDS).astype(int))
        found[role] = []
        for entry in (done[place] for place in spread):
            if found[role] and until is not None and time.monotonic() > until:
                break
            z, rows = _codes(run, entry)
            subjects = run.recordings.subject.numpy()[rows]
            often = np.bincount(subjects)[subjects] >= FEWEST
            if len(np.unique(subjects[often])) < 2:  # a fold of three people trains on one
                continue
            leak = leakage(z.numpy()[often], subjects[often])
            where = ", ".join(str(run.recordings.subjects[person]) for person in run.groups[entry.test])
            found[role].append(Leak(where, leak.accuracy, leak.chance, leak.bits))
    if found != known:
        run.ledger.remember(leakage=found)
    return found


def _codes(run: Run, entry: Entry) -> tuple[Tensor, NDArray[np.int64]]:
    """Return z of at most PROBED_TRIALS training windows of the fold, at the last epoch, and their rows."""
    job = run.job(entry)
    rows = np.random.default_rng(0).permutation(job.fold.train)[:PROBED_TRIALS]
    tensors = run.weights(entry.key)
    state = {name.removeprefix("final."): t for name, t in tensors.items() if name.startswith("final.")}
    z, _ = encode_states(run.recordings, [job], [state], rows, encoders=run.encoders)
    return z[0], rows
