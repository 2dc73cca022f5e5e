"""python -m benchmarks.decisions DATA.npz ...: prediction sets and abstention on people left out, with models in closed
form. Everybody is held out, predicted with weights found without them, and judged with thresholds that the others
gave. Rows go to docs/results/decisions.csv as they are done; a set that is in it is not measured again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.decision import decide
from autotransfer.search.kinds import candidates_of

from .csv_rows import command, measure_datasets

OUT = "docs/results/decisions.csv"
COLUMNS = ["data", "people", "coverage_0.8", "coverage_0.9", "coverage_0.95", "worst_person_0.9",
           "classes_in_a_set_0.9", "accuracy", "unanswered_0.2", "accuracy_0.2", "gain_0.2"]  # fmt: skip
WITHIN = 0.03  # of the coverage that is asked for


def measured(recordings: at.Recordings, _: argparse.Namespace) -> Iterator[dict[Any, Any]]:
    """Means over people, and the person whose sets hold the true class least often; none where people are too few."""
    with TemporaryDirectory() as folder:
        options = RunOptions(source=recordings.name, adaptation="auto", folds="auto", device="cpu")
        run = Run.create(Path(folder) / "run", options, recordings=recordings)
        with closing(run.ledger):
            candidates = candidates_of(run.prepared).solved
            run.add(run.entry("folds", setting, *fold, 0) for setting in candidates for fold in run.folds())
            run.work(shown=False)
            answering = decide(run, candidates)[0].answering
    if answering is None:
        return

    def mean(by_person: dict[str, float]) -> float:
        return round(float(np.mean(list(by_person.values()))), 4)

    before, after = mean(answering.accuracy["0"]), mean(answering.accuracy["0.2"])
    yield {
        "data": recordings.name, "people": answering.thresholds.people,
        **{f"coverage_{level}": mean(covered) for level, covered in answering.coverage.items()},
        "worst_person_0.9": round(min(answering.coverage["0.9"].values()), 4),
        "classes_in_a_set_0.9": mean(answering.set_size["0.9"]),
        "accuracy": before, "unanswered_0.2": round(1 - mean(answering.answered["0.2"]), 4),
        "accuracy_0.2": after, "gain_0.2": round(after - before, 4),
    }  # fmt: skip


def summary(rows: pd.DataFrame) -> str:
    """The mean coverage over all sets, and those that are off."""
    coverage, gains = rows.set_index("data")["coverage_0.9"], rows["gain_0.2"]
    off = [f"{name} {value:.3f}" for name, value in coverage.items() if abs(value - 0.9) > WITHIN]
    return (
        f"90 % sets: {coverage.mean():.3f} over {len(rows)} sets; further than {WITHIN} from it: "
        f"{', '.join(off) or 'none'}\nwith a fifth unanswered, accuracy gains {gains.mean():+.3f} "
        f"({gains.min():+.3f} to {gains.max():+.3f})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    print(summary(measure_datasets(command(__doc__, OUT, files="*").parse_args(arguments), COLUMNS, measured)))


if __name__ == "__main__":
    main()
