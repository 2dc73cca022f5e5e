"""python -m benchmarks.learning_curve DATA.npz ...: the gain that `plan-study` expects from half the people of a study,
and the gain that the other half brought. Halves are drawn at random; the truth is the mean over everybody of what
training on all others gains over training on as many as half the study has. Rows go to
docs/results/learning_curve.csv as they are done; a set that is in it is not measured again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.search.study_size import FEWEST, Pilot, expected_gain, spread

from .csv_rows import command, measure_datasets

OUT = "docs/results/learning_curve.csv"
COLUMNS = ["data", "people", "half", "trained_on", "then", "score", "score_then", "gain", "expected", "low", "high",
           "inside"]  # fmt: skip
HALVES = 4  # that are drawn of each set


def measured(recordings: at.Recordings, _: argparse.Namespace) -> Iterator[dict[Any, Any]]:
    """A row for each half; none where half the people are too few."""
    study = Pilot(recordings)
    people, half = len(study.people), len(study.people) // 2
    if half < FEWEST:
        return
    fewer, everybody = study.scores(study.tested(), [(half - 1, None), (people - 1, None)]).mean(0)
    for draw in range(HALVES):
        pilot = sorted(np.random.default_rng(draw).permutation(study.people)[:half].tolist())
        sizes = spread(2, half - 1)
        scores = study.scores(pilot, [(n, None) for n in sizes], among=pilot)
        gain, low, high = expected_gain(sizes, scores, half - 1, people - 1)
        inside = int(low <= everybody - fewer <= high)
        figures = (fewer, everybody, everybody - fewer, gain, low, high)
        counts = (recordings.name, people, draw, half - 1, people - 1)
        yield dict(zip(COLUMNS, (*counts, *(round(figure, 4) for figure in figures), inside), strict=True))


def summary(rows: pd.DataFrame) -> str:
    """How far expectations were off, and how often the interval held the truth."""
    gains, errors = rows["gain"], rows["expected"] - rows["gain"]
    return (
        f"{rows['data'].nunique()} sets, {len(rows)} halves: gains {gains.mean():+.3f} in the mean, "
        f"expected {rows['expected'].mean():+.3f}; off by {errors.abs().mean():.3f} (no gain at all: "
        f"{gains.abs().mean():.3f})\n90 % intervals that held the truth: {rows['inside'].mean():.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    print(summary(measure_datasets(command(__doc__, OUT, files="*").parse_args(arguments), COLUMNS, measured)))


if __name__ == "__main__":
    main()
