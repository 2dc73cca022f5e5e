"""Score baselines of other libraries on leave-one-subject-out folds.

    python -m benchmarks.run_baselines DATA... --out baselines.csv

Every pipeline is scored with balanced accuracy on the test subject of each fold. Rows that the CSV already has are not
computed again, so an interrupted command can be repeated.
docs/results/confirmation/baselines.csv is the result of this command on the eight sets of the confirmation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.metrics import balanced_accuracy_score

import autotransfer as at

from . import shallow
from .csv_rows import COLUMNS, KnownRow, Rows, append_missing, build_parser

BASELINES: dict[str, Callable[[shallow.Task], Iterator[tuple[str, Any]]]] = {  # name, predictions (n_test,)
    "lda": shallow.lda,
    "log_power": shallow.log_power,
    "hudgins": shallow.hudgins,
    "log_euclidean": shallow.log_euclidean,
    "riemann": shallow.riemann,
    "riemann_templates": shallow.riemann_templates,
}


def evaluate(recordings: at.Recordings, baseline: str, *, skip: set[str]) -> Iterator[Rows]:
    """Yield the rows of each fold, without the subjects in `skip`.

    `seconds` of the first pipeline of a family include the work that its pipelines share.
    """
    truth = recordings.y.numpy()
    for fold in at.leave_one_subject_out(recordings):
        if str(fold.test_subject) in skip:
            continue
        rows, start = [], time.perf_counter()
        for name, predicted in BASELINES[baseline](shallow.make_task(recordings, fold, 0)):
            score = balanced_accuracy_score(truth[fold.test], predicted)
            seconds = time.perf_counter() - start
            rows.append((recordings.name, name, str(fold.test_subject), 0, round(score, 6), round(seconds, 2)))
            start = time.perf_counter()
        yield rows


def evaluate_missing(recordings: at.Recordings, options: argparse.Namespace, known: list[KnownRow]) -> Iterator[Rows]:
    for baseline in options.baselines:
        # the rows of a family and fold are written together, so its first pipeline stands for all
        yield from evaluate(recordings, baseline, skip={row["subject"] for row in known if row["pipeline"] == baseline})


def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, evaluate_missing, "dataset", "pipeline", "subject")


def main() -> None:
    parser = build_parser(__doc__, "baselines.csv")
    parser.add_argument("--baselines", nargs="+", choices=BASELINES, default=list(BASELINES))
    run(parser.parse_args())


if __name__ == "__main__":
    main()
