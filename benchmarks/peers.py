"""What others would do, on the same folds with the same metric: python -m benchmarks.peers DATA... --out peers.csv

Every pipeline is scored with balanced accuracy on the test subject of each leave-one-subject-out fold. Rows that the
CSV already has are not computed again, so an interrupted command is simply repeated. Networks need `pip install
'.[bench]'`, but for dann and coral (benchmarks/stacked_peers.py). docs/results/confirmation/peers.csv is this command
on the eight sets of the confirmation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sklearn.metrics import balanced_accuracy_score

import autotransfer as at
from autotransfer.gpu import using_kernels

from . import deep, shallow, stacked_peers
from .csv_rows import COLUMNS, Known, Rows, append_missing, command


class Peer(NamedTuple):
    """A family of pipelines that share their work. predict: a task, and where it is random also the number of epochs
    and the device, to the name and predictions (n_test,) of each pipeline."""

    predict: Callable[..., Iterator[tuple[str, Any]]]
    random: bool = False  # whether another seed gives another model


PEERS = {
    "lda": Peer(shallow.lda),
    "log_power": Peer(shallow.log_power),
    "hudgins": Peer(shallow.hudgins),
    "log_euclidean": Peer(shallow.log_euclidean),
    "riemann": Peer(shallow.riemann),
    "riemann_templates": Peer(shallow.riemann_templates),
    "eegnet": Peer(deep.eegnet, random=True),
    "dann_skada": Peer(deep.dann, random=True),
    "coral_skada": Peer(deep.coral, random=True),
}
SHALLOW = [name for name, peer in PEERS.items() if not peer.random]


def evaluate(
    recordings: at.Recordings, peer: str, seed: int, *, epochs: int | None, skip: set[str], device: str = "cpu"
) -> Iterator[Rows]:
    """The rows of one fold after the other. `seconds` counts what pipelines of a family share with the first of them.

    skip: subjects that are known already.
    """
    truth = recordings.y.numpy()
    more = (epochs or deep.EPOCHS, device) if PEERS[peer].random else ()
    for fold in at.leave_one_subject_out(recordings):
        if str(fold.test_subject) in skip:
            continue
        rows, start = [], time.perf_counter()
        for name, predicted in PEERS[peer].predict(shallow.task_of(recordings, fold, seed), *more):
            score = balanced_accuracy_score(truth[fold.test], predicted)
            seconds = time.perf_counter() - start
            rows.append((recordings.name, name, str(fold.test_subject), seed, round(score, 6), round(seconds, 2)))
            start = time.perf_counter()
        yield rows


def measured(recordings: at.Recordings, options: argparse.Namespace, known: list[Known]) -> Iterator[Rows]:
    for peer in options.peers:
        # The rows of a family and fold are written together, so that its first pipeline stands for all.
        done = {(row["subject"], int(row["seed"])) for row in known if row["pipeline"] == peer}
        how = {"epochs": options.epochs, "device": options.device}
        if peer in stacked_peers.METHODS:
            yield from stacked_peers.evaluate(recordings, peer, seeds=options.seeds, skip=done, **how)
            continue
        for seed in range(options.seeds if PEERS[peer].random else 1):
            yield from evaluate(recordings, peer, seed, skip={who for who, of_seed in done if of_seed == seed}, **how)


@using_kernels(wanted=True)
def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, measured, "dataset", "pipeline", "subject")


def main() -> None:
    parser = command(__doc__, "peers.csv", "seeds", "device")
    every = (*PEERS, *stacked_peers.METHODS)
    parser.add_argument("--peers", nargs="+", choices=every, default=SHALLOW, help=f"default: {' '.join(SHALLOW)}")
    parser.add_argument("--epochs", type=int, help=f"of networks; default: {deep.EPOCHS}, of dann and coral as a run")
    parser.set_defaults(device="cpu")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
