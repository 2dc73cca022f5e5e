"""What a penalty removes, and what that is worth, with true and with shuffled people:

    python -m benchmarks.leaking DATA... --out leaking.csv [--folds 2]

Every penalty, marginal and conditional, at the stronger of its useful strengths, and the same with people shuffled
within class; the network of `benchmarks.one_change`. One row of the CSV is a training: the mean score of its two
held-out people, and how well a probe that no training saw reads the person from the codes of the training people.
`python -m benchmarks.results` draws it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.censoring import CENSORS
from autotransfer.runs.options import RunOptions, resolved
from autotransfer.settings import Setting
from autotransfer.training.latent import encode
from autotransfer.training.leakage import leakage

from .csv_rows import command, replace_rows
from .one_change import METHODS, base

COLUMNS = ["data", "method", "mode", "people", "test_subject", "score", "leakage", "chance", "bits"]
READ = 2000  # trials at most that a probe reads: more make it slow, not different


def settings_of(plain: Setting) -> Iterator[tuple[str, str, str, Setting]]:
    """Method, mode, whose people, setting."""
    for batches in ("balanced", "people"):
        yield "none", batches, "true", plain.replace(batches=batches)
    for method, mode in METHODS:
        penalised = plain.replace(method=method, mode=mode, strength=CENSORS[method].useful[1], batches="auto")
        yield method, mode, "true", penalised
        yield method, mode, "shuffled", penalised.replace(shuffle_subjects=True)


def measured(source: str, options: argparse.Namespace) -> pd.DataFrame:
    recordings = at.load(source)
    epochs = options.epochs or resolved(RunOptions(source=recordings.name), recordings).max_epochs
    all_folds = at.leave_one_subject_out(recordings)
    folds = [all_folds[k] for k in np.linspace(0, len(all_folds) - 1, options.folds).round().astype(int)]
    tried = list(settings_of(base(epochs)))
    jobs = [at.Job(setting, fold) for *_, setting in tried for fold in folds]
    outcomes = at.train(recordings, jobs, options.device, progress=False)
    who, rows = recordings.subject.numpy(), []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        probes = []
        for outcome in outcomes:
            train = outcome.job.fold.train
            some = np.sort(np.random.default_rng(0).permutation(train)[:READ])
            z, _ = encode(recordings, [outcome], some, device=options.device)
            probes.append(pool.submit(leakage, z[0].cpu().numpy(), who[some]))
        for place, (outcome, probe) in enumerate(zip(outcomes, probes, strict=True)):
            method, mode, people, _ = tried[place // len(folds)]
            both, leak = [outcome.validation_score, outcome.test_score], probe.result()
            figures = (float(np.mean(both)), leak.accuracy, leak.chance, leak.bits)
            rows.append([recordings.name, method, mode, people, str(outcome.job.fold.test_subject),
                         *(round(value, 4) for value in figures)])  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


def main(arguments: list[str] | None = None) -> None:
    parser = command(__doc__, None, "epochs", "device")
    parser.set_defaults(device="cpu")
    parser.add_argument("--folds", type=int, default=2, help="evenly spread; each holds two people out")
    parser.add_argument("--processes", type=int, default=2, help="for the probes")
    options = parser.parse_args(arguments)
    for source in options.files:
        rows = measured(source, options)
        replace_rows(options.out, rows, "data")
        print(rows.groupby(["method", "mode", "people"])[["score", "leakage"]].mean().round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
