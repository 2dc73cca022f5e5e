"""Score baselines on the folds of default runs, with their own libraries and with the features of AutoTransfer.

    python -m benchmarks.field DATA.npz... --baselines lda riemann boosting [--jobs 14] [--device cuda]
        [--out docs/results/baselines/field.csv]

The protocol was fixed before the first run. Folds are the folds of a default run (single subjects up to 20 subjects,
otherwise ten groups), and baselines without model selection are also fitted on the validation group. Scores are
balanced accuracies of each subject with windows of two classes. Baselines have the constants of their libraries or of
their publications; no other constants were tried on these sets. Each baseline is scored zero-shot and, if it can use
unlabeled windows, transductive (z-scored, standardized, centered or aligned by subject). Random baselines have one seed
unless `--seeds` is given; the tables average seeds.

`average` is the mean of the probabilities of all generic baselines of the same command; classes without probabilities
count as certain.

A row of the CSV is one subject, baseline, adaptation and seed. Rows of a data set are written together and not computed
again. A baseline for another signal is skipped, unless it is the only one requested. With `--jobs`, folds are computed
in parallel processes, and networks by the first. In libraries.csv, baselines hold out single subjects.

Install `pip install '.[baselines]'`. LibEMG requires an older NumPy than aeon; install it with `pip install librosa
PyWavelets` and `pip install --no-deps libemg`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import scorable_subjects
from autotransfer.training.metrics import balanced_accuracy_of

from .csv_rows import Rows, append_rows, build_parser, read_known_rows
from .engineered import Predict
from .field_baselines import BASELINES, find_signals, make_folds
from .shallow import Array, Classes, make_task

COLUMNS = ("dataset", "baseline", "adaptation", "kind", "subject", "score", "seed", "family", "seconds")
OUT = "docs/results/baselines/field.csv"
AVERAGE = "average"


class Predicted(NamedTuple):
    """Predictions of a baseline for the test windows of a fold."""

    baseline: str
    adaptation: str
    family: str
    seed: int
    test: Classes  # (n,) positions of the windows
    probabilities: Array  # (n, K)
    seconds: float

    @property
    def kind(self) -> str:
        return "specialist" if self.family in BASELINES and BASELINES[self.family].signals else "generic"


class FieldJob(NamedTuple):
    source: str
    family: str
    seed: int
    fold: int | None  # None: all folds
    device: str


@lru_cache(2)
def load(source: str) -> at.Recordings:
    return at.load(source)


@lru_cache(4)
def prepare(source: str, family: str, seed: int, device: str) -> Predict:
    return BASELINES[family].prepare(load(source), seed, device)


def compute(job: FieldJob) -> list[Predicted]:
    """Return the predictions of a baseline; none if the recordings do not suit it."""
    torch.set_num_threads(1)
    recordings, start, found = load(job.source), time.perf_counter(), list[Predicted]()
    try:
        predict = prepare(*job[:3], job.device)
        for fold in make_folds(recordings)[slice(job.fold, None if job.fold is None else job.fold + 1)]:
            for baseline, adaptation, output in predict(make_task(recordings, fold, job.seed)):
                certain = np.asarray(output if output.ndim == 2 else np.eye(recordings.n_classes)[output])
                seconds = time.perf_counter() - start
                found.append(Predicted(baseline, adaptation, *job[1:3], fold.test, certain, seconds))
                start = time.perf_counter()
    except UserError as error:
        if not job.fold:
            print(f"{recordings.name}, {job.family}: skipped: {error}", flush=True)
    return found


def average(predictions: Iterable[Predicted]) -> Iterator[Predicted]:
    """Yield the mean of the probabilities of all generic baselines of one data set, by fold and adaptation."""
    groups: dict[tuple[str, bytes], list[Predicted]] = {}
    for one in predictions:
        if one.kind == "generic":
            groups.setdefault((one.adaptation, one.test.tobytes()), []).append(one)
    for (adaptation, _), group in groups.items():
        seeds = {
            name: [one.probabilities for one in group if one.baseline == name] for name in {g.baseline for g in group}
        }
        mean = np.mean([np.mean(values, 0) for values in seeds.values()], 0)
        yield Predicted("average of generic baselines", adaptation, AVERAGE, 0, group[0].test, mean, 0.0)


def score_rows(recordings: at.Recordings, predictions: Iterable[Predicted]) -> Iterator[list[object]]:
    """Yield a row for each subject whose windows have two classes."""
    y, subject, names = recordings.y.numpy(), recordings.subject.numpy(), recordings.subjects
    scored = set(scorable_subjects(recordings))
    for one in predictions:
        for k in sorted(scored & set(subject[one.test].tolist())):
            own = subject[one.test] == k
            score = balanced_accuracy_of(one.probabilities[own].argmax(1), y[one.test][own], recordings.n_classes)
            facts = recordings.name, one.baseline, one.adaptation, one.kind, str(names[k]), round(score, 5)
            yield [*facts, one.seed, one.family, round(one.seconds, 2)]


def choose_jobs(source: str, options: argparse.Namespace) -> list[FieldJob]:
    """Return the jobs of a data set that have no rows yet."""
    recordings = load(source)
    known = {(row["dataset"], row["family"], row["seed"]) for row in read_known_rows(options.out)}
    families = [family for family in options.baselines if family != AVERAGE]
    suitable = [f for f in families if not BASELINES[f].signals or find_signals(recordings) & {*BASELINES[f].signals}]
    jobs = []
    for family in suitable or (families if len(families) == 1 else ()):
        baseline = BASELINES[family]
        folds = [None] if baseline.trains_all or not options.jobs else range(len(make_folds(recordings)))
        for seed in range(options.seeds if baseline.random else 1):
            if (recordings.name, family, str(seed)) not in known:
                jobs += [FieldJob(source, family, seed, fold, options.device) for fold in folds]
    return jobs


def run(options: argparse.Namespace) -> None:
    jobs = {source: choose_jobs(source, options) for source in options.files}
    here = {source: [j for j in found if j.fold is None] for source, found in jobs.items()}
    with multiprocessing.get_context("spawn").Pool(options.jobs) if options.jobs else nullcontext() as pool:
        others = {
            source: [pool.apply_async(compute, (job,)) for job in found if job.fold is not None]
            for source, found in jobs.items() if pool is not None
        }  # fmt: skip
        for source in filter(jobs.get, jobs):
            predictions = [one for job in here[source] for one in compute(job)]
            predictions += [one for result in others.get(source, ()) for one in result.get()]
            means = list(average(predictions)) if AVERAGE in options.baselines else []
            rows = list(score_rows(load(source), [*predictions, *means]))
            append_rows(options.out, rows, COLUMNS)
            print(summarize(rows), flush=True)


def summarize(rows: Rows) -> str:
    """Return the mean over subjects and seeds of each baseline of a data set."""
    scores: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        scores.setdefault(tuple(row[:3]), []).append(row[5])
    return "\n".join(f"{np.mean(values):.3f} {', '.join(keys)}" for keys, values in scores.items())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser(__doc__, OUT, "seeds", "device")
    parser.set_defaults(device="cpu")
    parser.add_argument("--baselines", nargs="+", choices=[*BASELINES, AVERAGE], default=list(BASELINES))
    parser.add_argument("--jobs", type=int, default=0, help="parallel processes, each with one thread; default: none")
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
