"""Collect a Summary from a run: scores from the ledger, leakage and a latent picture from the stored weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..folds import Fold
from ..jobs import Job
from ..recordings import Recordings
from ..runs.contents import read_choice
from ..runs.ledger import FINISHED, Entry
from ..runs.options import RunOptions
from ..runs.results import results_table
from ..runs.run import Run
from ..settings import Setting
from ..training.latent import encode_states
from ..training.leakage import leakage
from ..training.packing import resolve_device
from .summary import Summary

PROBED_FOLDS = 6  # leakage is read on this many folds, evenly spread
PROBED_TRIALS = 2000  # of a fold's training trials at most, the same for both models
DRAWN_TRIALS = 600


def collect(run: Run) -> Summary:
    """Everything the page shows. What is costly to read off the weights is kept in the ledger."""
    rec, ledger, options = run.recordings, run.ledger, run.options
    entries = ledger.entries()
    complete = bool(ledger.recall("complete", False)) and (run.folder / "choice.json").exists()
    choice = read_choice(run.folder) if complete else None
    done = [entry for entry in entries if entry.status in FINISHED]
    shown = [entry for entry in done if entry.stage in ("prepare", "search", "folds")]
    roles = _roles(choice, shown, options)
    extras = _weights_story(run, roles) if choice is not None else {"leakage": {}, "latent": {}}
    counts = np.bincount(rec.subject.numpy(), minlength=rec.n_subjects)
    return Summary(
        name=rec.name,
        source=options.source,
        command=ledger.recall("command") or f"autotransfer run {options.source} --out {run.folder}",
        complete=complete,
        jobs_done=len(done),
        jobs_total=len(entries),
        started=ledger.recall("started", ""),
        seconds=float(sum(entry.record["seconds"] for entry in done if entry.record)),
        device=str(resolve_device(options.device)),
        versions=ledger.recall("versions", {}),
        options=_told(options),
        data={
            "n_trials": rec.n_trials,
            "n_channels": rec.n_channels,
            "n_times": rec.n_times,
            "sfreq": rec.sfreq,
            "channels": list(rec.channels),
            "classes": [str(c) for c in rec.classes],
            "subjects": [str(s) for s in rec.subjects],
            "trials": counts.tolist(),
        },
        splits=_splits(run),
        results=results_table(shown, [str(s) for s in rec.subjects], options.name_of),
        choice=choice,
        histories=_histories(shown, choice, options),
        confusion={role: _confusion(roles[role]) for role in ("baseline", "chosen") if roles.get(role)},
        leakage=extras["leakage"],
        latent={role: pd.DataFrame(columns) for role, columns in extras["latent"].items()},
    )


def _told(options: RunOptions) -> dict[str, Any]:
    """Options as the reader should see them: what was used, and nothing that played no role."""
    told = options.to_dict() | {"epochs": options.max_epochs}
    unused = {"source"} | (set() if options.search == "tpe" else {"trials", "storage"})
    unused |= set() if options.shuffle_subjects else {"shuffle_subjects"}
    return {name: value for name, value in told.items() if value is not None and name not in unused}


def _roles(choice: dict[str, Any] | None, entries: Sequence[Entry], options: RunOptions) -> dict[str, list[Entry]]:
    """Fold entries of the baseline, of the chosen setting and, where it is a third one that was trained, of the chosen
    one without its censor: the baseline may prepare its windows otherwise."""
    if choice is None:
        return {}
    known: dict[Setting, list[Entry]] = {}
    for entry in entries:
        if entry.record:
            known.setdefault(Setting.from_json(entry.setting), []).append(entry)
    named = {options.name_of(setting): setting for setting in known}
    baseline, chosen = (named.get(choice[role]["name"]) for role in ("baseline", "chosen"))
    roles = {"baseline": baseline, "chosen": chosen}
    if chosen is not None and chosen.method is not None:
        twins = [replace(chosen, method=None, batches=batches) for batches in (chosen.batches, "shuffled")]
        folds = {entry.test for entry in known[chosen]}
        whole = (setting for setting in twins if folds <= {entry.test for entry in known.get(setting, [])})
        twin = next(whole, baseline)
        roles |= {"uncensored": twin} if twin != baseline else {}
    return {role: known.get(setting, []) if setting is not None else [] for role, setting in roles.items()}


def _splits(run: Run) -> list[dict[str, Any]]:
    seen: dict[tuple[int, int], Fold] = {}
    for entry in run.ledger.entries():
        if entry.stage in ("prepare", "search", "folds"):
            seen.setdefault((entry.test, entry.validation), run.job(entry).fold)
    return [
        {
            "fold": test,
            "validation_subject": str(fold.validation_subject),
            "test_subject": str(fold.test_subject),
            "n_train": len(fold.train),
            "n_validation": len(fold.validation),
            "n_test": len(fold.test),
        }
        for (test, _), fold in sorted(seen.items())
    ]


def _histories(
    entries: Sequence[Entry], choice: dict[str, Any] | None, options: RunOptions
) -> dict[str, list[dict[str, Any]]]:
    """Learning curves of the baseline and the chosen setting, or while there is no choice of the baseline."""
    names = {"baseline"} | ({choice["chosen"]["name"]} if choice else set())
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        name = options.name_of(Setting.from_json(entry.setting))
        if name in names and entry.record is not None:
            found.setdefault(name, []).append({"fold": entry.test, "seed": entry.seed} | entry.record["history"])
    return found


def _confusion(entries: Sequence[Entry]) -> list[list[int]]:
    """Summed over all test subjects."""
    found: list[list[int]] = np.sum([e.record["test_confusion"] for e in entries if e.record], 0).tolist()
    return found


def _weights_story(run: Run, roles: dict[str, list[Entry]]) -> dict[str, Any]:
    """Leakage and latent pictures, computed once per run; what an older version did not ask for is added."""
    known: dict[str, Any] = run.ledger.recall("weights story") or {"leakage": {}, "latent": {}}
    missing = {role: entries for role, entries in roles.items() if role not in known["leakage"]}
    for role, entries in missing.items():
        # A failed training has left no weights to read.
        first_seed = [entry for entry in entries if entry.seed == run.options.seed and entry.status == "done"]
        if not first_seed:
            continue
        spread = np.unique(np.linspace(0, len(first_seed) - 1, PROBED_FOLDS).astype(int))
        probed = [_codes(run, first_seed[place]) for place in spread]
        leaks = [(entry, _leaked(z, rec_rows, run.recordings)) for entry, z, rec_rows in probed]
        known["leakage"][role] = [{"fold": float(entry.test)} | leak for entry, leak in leaks if leak is not None]
        if role != "uncensored":
            known["latent"][role] = _picture(*probed[0][1:], run.recordings)
    if any(role in known["leakage"] for role in missing):
        run.ledger.remember(**{"weights story": known})
    return known


def _codes(run: Run, entry: Entry) -> tuple[Entry, Tensor, NDArray[np.int64]]:
    """z of the fold's training trials at the last epoch, at most PROBED_TRIALS of them."""
    job: Job = run.job(entry)
    rows = np.random.default_rng(0).permutation(job.fold.train)[:PROBED_TRIALS]
    tensors = run.weights(entry.key)
    state = {name.removeprefix("final."): t for name, t in tensors.items() if name.startswith("final.")}
    z, _ = encode_states(run.recordings, [job], [state], rows, encoders=run.encoders)
    return entry, z[0], rows


def _leaked(z: Tensor, rows: NDArray[np.int64], recordings: Recordings) -> dict[str, float] | None:
    """None where there is nobody to tell apart: a fold of three people trains on one."""
    subject = recordings.subject.numpy()[rows]
    enough = np.bincount(subject)[subject] >= 5  # a probe cannot be tested on fewer
    if len(np.unique(subject[enough])) < 2:
        return None
    found = leakage(z[torch.as_tensor(enough)], subject[enough])
    return {"accuracy": found.accuracy, "chance": found.chance, "bits": found.bits}


def _picture(z: Tensor, rows: NDArray[np.int64], recordings: Recordings) -> dict[str, list[Any]]:
    """Two principal components of the codes."""
    z = z[:DRAWN_TRIALS].double()
    rows = rows[:DRAWN_TRIALS]
    z = (z - z.mean(0)) / z.std(0).clamp(min=1e-9)
    _, _, directions = torch.linalg.svd(z, full_matrices=False)
    plane = (z @ directions[:2].T).numpy().round(3)
    return {
        "x": plane[:, 0].tolist(),
        "y": plane[:, 1].tolist(),
        "subject": [str(recordings.subjects[i]) for i in recordings.subject[rows].tolist()],
        "class": [str(recordings.classes[i]) for i in recordings.y[rows].tolist()],
    }
