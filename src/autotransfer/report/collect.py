"""Collection of the `Summary` of a run: scores from the run database, and leakage measured from saved weights."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..runs.choice import read_choice
from ..runs.data_facts import Data
from ..runs.database import FINISHED, Entry, RunDatabase
from ..runs.options import RunOptions
from ..runs.results import finished_fits
from ..runs.run import Run, check_is_run
from ..runs.study import repeat_command
from ..settings import Setting
from ..training.latent import encode_states
from ..training.leakage import leakage
from ..training.packing import resolve_device
from .summary import ProbeResult, Summary

REPORTED_STAGES = ("search", "folds")  # without fits for online sessions, which are not candidates
MIN_WINDOWS = 5  # minimum number of windows of a subject for measuring leakage
PROBED_FOLDS = 6  # number of folds on which leakage is measured
PROBED_WINDOWS = 2000  # maximum number of training windows per fold for measuring leakage


def collect(run: Run, *, weights: bool = True, until: float = math.inf) -> Summary:
    """Collect the content of the report.

    weights: whether to measure leakage from saved weights; the result is stored in the run database
    until: time of the monotonic clock at which measuring leakage stops
    """
    data, database, options = run.data, run.database, run.options
    entries = database.entries()
    finished = [entry for entry in entries if entry.status in FINISHED]
    reported = [entry for entry in entries if entry.stage in REPORTED_STAGES]
    complete = bool(database.load_fact("complete", bool))
    choice = read_choice(run.folder) if (run.folder / "choice.json").exists() else None
    summary = Summary(
        name=data.name,
        source=options.source,
        command=repeat_command(run.folder),
        jobs_done=len(finished),
        jobs_total=len(entries),
        started=database.load_fact("started", str) or "",
        seconds=sum(entry.record.seconds for entry in finished if entry.record is not None),
        device=str(resolve_device(options.device)),
        versions=database.fit_versions(),
        options=options,
        data=data,
        folds=len({entry.test for entry in reported}),
        fits=tuple(finished_fits(reported, data.subjects, options.name_of, run.groups)),
        choice=choice,
    )
    if choice is None or not weights or not complete:
        return summary
    return replace(summary, leakage=_probe_networks(run, summary.networks, reported, until))


def read_summary(folder: Path) -> Summary:
    """Return options, data and result of a run without its fits. Recordings and encoders are not needed."""
    check_is_run(folder)
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        options, data = database.require_fact("options", RunOptions), database.require_fact("data", Data)
        counts, started = database.counts(), database.load_fact("started", str) or ""
        versions = database.fit_versions()
    return Summary(
        name=data.name, source=options.source, command=repeat_command(folder), seconds=math.nan, started=started,
        jobs_done=sum(counts.get(status, 0) for status in FINISHED), jobs_total=sum(counts.values()),
        device=options.device, versions=versions, options=options, data=data,
        choice=read_choice(folder) if (folder / "choice.json").exists() else None,
    )  # fmt: skip


def _probe_networks(
    run: Run, networks: dict[str, Setting], entries: Sequence[Entry], until: float
) -> dict[str, list[ProbeResult]]:
    """Return the leakage of networks by role, stored in the run database or measured if recordings are available."""
    saved = run.database.load_fact("leakage", dict[str, list[ProbeResult]]) or {}
    probes = dict(saved)
    for role, setting in networks.items():
        # Failed fits have no weights.
        fits = [e for e in entries if e.setting == setting and e.seed == run.options.seed and e.status == "done"]
        if role in saved or not fits:
            continue
        try:
            _ = run.recordings
        except UserError as error:
            warnings.warn(
                f"the report has no figure of leakage, because the recordings cannot be read: {error}", stacklevel=3
            )
            return saved
        probes[role] = []
        for i in np.unique(np.linspace(0, len(fits) - 1, PROBED_FOLDS).astype(int)):
            if probes[role] and time.monotonic() > until:
                break
            probes[role] += _probe_fit(run, fits[i])
    if probes != saved:
        run.database.store_facts(leakage=probes)
    return probes


def _probe_fit(run: Run, entry: Entry) -> list[ProbeResult]:
    """Return the leakage of a fit after its last epoch; empty if fewer than two subjects have enough windows."""
    job, recordings = run.job(entry), run.recordings
    rows = np.random.default_rng(0).permutation(job.fold.train)[:PROBED_WINDOWS]
    tensors = run.weights(entry.key)
    state = {name.removeprefix("final."): t for name, t in tensors.items() if name.startswith("final.")}
    z, _ = encode_states(recordings, [job], [state], rows, encoders=run.encoders)
    subjects = recordings.subject.numpy()[rows]
    has_enough = np.bincount(subjects)[subjects] >= MIN_WINDOWS
    if len(np.unique(subjects[has_enough])) < 2:  # with three subjects, a fold trains on one subject
        return []
    measured = leakage(z[0].numpy()[has_enough], subjects[has_enough])
    test_subjects = ", ".join(str(recordings.subjects[subject]) for subject in run.groups[entry.test])
    return [ProbeResult(test_subjects, measured.accuracy, measured.chance, measured.bits)]
