"""Collection of a Summary: scores from the run database, and leakage from the saved weights."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import UserError
from ..runs.choice import read_choice
from ..runs.database import FINISHED, Entry
from ..runs.results import finished_fits
from ..runs.run import Run
from ..runs.study import command_of
from ..settings import Setting
from ..training.latent import encode_states
from ..training.leakage import leakage
from ..training.packing import resolve_device
from .summary import ProbeResult, Summary

REPORTED_STAGES = ("search", "folds")  # fits for online sessions are no candidates
FEWEST_WINDOWS = 5  # windows that a probed subject has at least
PROBED_FOLDS = 6  # number of folds, evenly spread, on which leakage is measured
PROBED_WINDOWS = 2000  # maximum of training windows per fold, the same for all networks


def collect(run: Run, *, weights: bool = True, until: float = math.inf) -> Summary:
    """Collect everything that the report shows.

    weights: whether to measure leakage, which takes time and is saved in the run database
    until: time of the monotonic clock after which fewer folds are probed
    """
    data, database, options = run.data, run.database, run.options
    entries = database.entries()
    done = [entry for entry in entries if entry.status in FINISHED]
    shown = [entry for entry in entries if entry.stage in REPORTED_STAGES]
    complete = bool(database.recall("complete", bool))
    choice = read_choice(run.folder) if (run.folder / "choice.json").exists() else None
    summary = Summary(
        name=data.name,
        source=options.source,
        command=command_of(run.folder),
        jobs_done=len(done),
        jobs_total=len(entries),
        started=database.recall("started", str) or "",
        seconds=sum(entry.record.seconds for entry in done if entry.record is not None),
        device=str(resolve_device(options.device)),
        versions=database.made_with(),
        options=options,
        data=data,
        folds=len({entry.test for entry in shown}),
        fits=tuple(finished_fits(shown, data.subjects, options.name_of, run.groups)),
        choice=choice,
    )
    if choice is None or not weights or not complete:
        return summary
    return replace(summary, leakage=_leakage(run, summary.networks, shown, until))


def _leakage(
    run: Run, networks: dict[str, Setting], entries: Sequence[Entry], until: float
) -> dict[str, list[ProbeResult]]:
    """Return the probes of the saved weights, measured once per run and only if the recordings are available."""
    known = run.database.recall("leakage", dict[str, list[ProbeResult]]) or {}
    found = dict(known)
    for role, setting in networks.items():
        # A failed fit has no weights.
        done = [e for e in entries if e.setting == setting and e.seed == run.options.seed and e.status == "done"]
        if role in known or not done:
            continue
        try:
            _ = run.recordings
        except UserError as error:
            warnings.warn(
                f"the report has no figure of leakage, because the recordings cannot be read: {error}", stacklevel=3
            )
            return known
        found[role] = []
        for place in np.unique(np.linspace(0, len(done) - 1, PROBED_FOLDS).astype(int)):
            if found[role] and time.monotonic() > until:
                break
            found[role] += _probe_subjects(run, done[place])
    if found != known:
        run.database.remember(leakage=found)
    return found


def _probe_subjects(run: Run, entry: Entry) -> list[ProbeResult]:
    """Return the leakage of a fit after its last epoch; nothing if fewer than two subjects have enough windows."""
    job, recordings = run.job(entry), run.recordings
    rows = np.random.default_rng(0).permutation(job.fold.train)[:PROBED_WINDOWS]
    tensors = run.weights(entry.key)
    state = {name.removeprefix("final."): t for name, t in tensors.items() if name.startswith("final.")}
    z, _ = encode_states(recordings, [job], [state], rows, encoders=run.encoders)
    subjects = recordings.subject.numpy()[rows]
    often = np.bincount(subjects)[subjects] >= FEWEST_WINDOWS
    if len(np.unique(subjects[often])) < 2:  # a fold of three subjects trains on one
        return []
    leak = leakage(z[0].numpy()[often], subjects[often])
    where = ", ".join(str(recordings.subjects[subject]) for subject in run.groups[entry.test])
    return [ProbeResult(where, leak.accuracy, leak.chance, leak.bits)]
