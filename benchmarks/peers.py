"""What others would do, on the same folds with the same metric: python -m benchmarks.peers FILE... --out peers.csv

Every pipeline is scored with balanced accuracy on the test subject of each leave-one-subject-out fold. Rows that the
CSV already has are not computed again, so an interrupted command is simply repeated. Needs `pip install
'autotransfer[bench]'`. docs/results/confirmation/peers.csv is this command on the eight sets of the confirmation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import balanced_accuracy_score

import autotransfer as at

from . import deep, shallow
from .peer_rows import COLUMNS, append, begin, known_rows


class Peer(NamedTuple):
    """A family of pipelines that share their work: (task, epochs, device) -> name and predictions (n_test,) of
    each."""

    predict: Callable[[shallow.Task, int, str], Iterator[tuple[str, Any]]]
    random: bool  # whether another seed gives another model


PEERS = {
    "lda": Peer(lambda task, *_: shallow.lda(task), False),
    "log_power": Peer(lambda task, *_: shallow.log_power(task), False),
    "hudgins": Peer(lambda task, *_: shallow.hudgins(task), False),
    "log_euclidean": Peer(lambda task, *_: shallow.log_euclidean(task), False),
    "riemann": Peer(lambda task, *_: shallow.riemann(task), False),
    "riemann_templates": Peer(lambda task, *_: shallow.riemann_templates(task), False),
    "eegnet": Peer(deep.eegnet, True),
    "dann_skada": Peer(deep.dann, True),
    "coral_skada": Peer(deep.coral, True),
}
SHALLOW = [name for name, peer in PEERS.items() if not peer.random]


def evaluate(
    recordings: at.Recordings,
    peer: str,
    seed: int,
    *,
    epochs: int,
    skip: set[str],
    folds: int | None = None,
    device: str = "cpu",
) -> Iterator[dict[str, Any]]:
    """A row per fold and pipeline. `seconds` counts what pipelines of a family share with the first of them.

    skip: subjects that are known already; folds: stop after this many.
    """
    truth = recordings.y.numpy()
    for fold in at.leave_one_subject_out(recordings)[:folds]:
        if str(fold.test_subject) in skip:
            continue
        start = time.perf_counter()
        for name, predicted in PEERS[peer].predict(shallow.task_of(recordings, fold, seed), epochs, device):
            score = balanced_accuracy_score(truth[fold.test], predicted)
            seconds = time.perf_counter() - start
            values = (recordings.name, name, str(fold.test_subject), seed, round(score, 6), round(seconds, 2))
            yield dict(zip(COLUMNS, values, strict=True))
            start = time.perf_counter()


def run(files: list[str], options: argparse.Namespace) -> None:
    """Append every fold's rows the moment they are there."""
    begin(options.out)
    for source in files:
        recordings = at.load(source)
        for peer in options.peers:
            for seed in range(options.seeds if PEERS[peer].random else 1):
                _run_one(recordings, peer, seed, options)


def _run_one(recordings: at.Recordings, peer: str, seed: int, options: argparse.Namespace) -> None:
    own = [r for r in known_rows(options.out) if r["dataset"] == recordings.name and int(r["seed"]) == seed]
    # The rows of a family and fold are written together, so that its first pipeline stands for all.
    skip = {r["subject"] for r in own if r["pipeline"] == peer}
    deadline = time.monotonic() + 60 * options.minutes
    waiting: list[dict[str, Any]] = []

    def flush() -> None:
        append(options.out, waiting)
        waiting.clear()

    how = {"epochs": options.epochs, "folds": options.folds, "device": options.device}
    for row in evaluate(recordings, peer, seed, skip=skip, **how):
        if waiting and waiting[-1]["subject"] != row["subject"]:
            flush()
            if time.monotonic() > deadline:
                print(f"{recordings.name}, {peer}: stopped after {options.minutes} minutes; repeat to continue")
                return
        waiting.append(row)
    flush()


def show(rows: list[dict[str, str]]) -> None:
    table = Table("data set", "pipeline", "subjects", "mean", "lower quartile", "minimum", "seconds a fold")
    for dataset, pipeline in dict.fromkeys((r["dataset"], r["pipeline"]) for r in rows):
        own = [r for r in rows if (r["dataset"], r["pipeline"]) == (dataset, pipeline)]
        by_subject: dict[str, list[float]] = {}
        for r in own:
            by_subject.setdefault(r["subject"], []).append(float(r["score"]))
        scores = [float(np.mean(values)) for values in by_subject.values()]
        told = (np.mean(scores), np.percentile(scores, 25), min(scores))
        seconds = np.mean([float(r["seconds"]) for r in own])
        table.add_row(dataset, pipeline, str(len(scores)), *(f"{value:.3f}" for value in told), f"{seconds:.1f}")
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help=".npz, or anything that autotransfer.load takes")
    parser.add_argument("--out", type=Path, default=Path("peers.csv"))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=SHALLOW, help=f"default: {' '.join(SHALLOW)}")
    parser.add_argument("--seeds", type=int, default=1, help="of the networks; the others are not random")
    parser.add_argument("--epochs", type=int, default=100, help="of the networks")
    parser.add_argument("--device", default="cpu", help="of the networks")
    parser.add_argument("--folds", type=int, help="only the first so many, to try")
    parser.add_argument("--minutes", type=float, default=1e6, help="for one peer, data set and seed")
    options = parser.parse_args()
    run(options.files, options)
    show(known_rows(options.out))


if __name__ == "__main__":
    main()
