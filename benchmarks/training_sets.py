"""Measure how much scores vary with the subjects of the training set.

    python -m benchmarks.training_sets DATA.npz... --out docs/results/training_sets.csv [--jobs 14]

A repetition draws a third of the subjects for testing. A linear model and trees are fitted to each half of the others
and scored on the same test subjects, one row of the CSV for each.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

import autotransfer as at
from autotransfer.folds import make_fold, scorable_subjects
from autotransfer.training.metrics import balanced_accuracy_of
from autotransfer.words import score

from .csv_rows import Rows, append_rows, build_parser, read_known_rows
from .engineered import Classify, combined, extra_trees
from .shallow import Array, discriminant, make_task

COLUMNS = ("dataset", "repetition", "half", "model", "subject", "score")
REPETITIONS = 10
MODELS: dict[str, Classify] = {"LDA": discriminant, "extra trees": extra_trees}


@lru_cache(1)
def load(source: str) -> tuple[at.Recordings, Array]:
    recordings = at.load(source)
    return recordings, combined(recordings)


def measure(source: str, repetition: int) -> Rows:
    torch.set_num_threads(1)
    recordings, values = load(source)
    order = np.random.default_rng(repetition).permutation(scorable_subjects(recordings)).tolist()
    n_tested, subject, y = len(order) // 3, recordings.subject.numpy(), recordings.y.numpy()
    tested, size, rows = order[:n_tested], (len(order) - n_tested) // 2, []
    for half in (0, 1):
        trained = order[n_tested + half * size : n_tested + (half + 1) * size]
        others = [k for k in range(recordings.n_subjects) if k not in {*tested, *trained}]
        fold = make_fold(recordings, others, tested)
        task = make_task(recordings, at.Fold(fold.train, test=fold.test), 0)
        for model, classify in MODELS.items():
            classes = classify(values, task).argmax(1)
            for k in tested:
                own = subject[fold.test] == k
                value = balanced_accuracy_of(classes[own], y[fold.test][own], recordings.n_classes)
                rows.append((recordings.name, repetition, half, model, str(recordings.subjects[k]), round(value, 5)))
    return rows


def describe(folder: Path) -> str:
    """Return the standard deviation between training sets in two sentences."""
    from .evidence import read_scores  # it needs pandas, and measuring does not

    table = read_scores(folder, "training_sets")
    means = table.groupby(["dataset", "repetition", "model", "half"])["score"].mean().unstack(["model", "half"])
    first, second = (means.xs(half, axis=1, level="half") for half in (0, 1))
    both = {name: first[name] - second[name] for name in MODELS}
    both["difference"] = both["extra trees"] - both["LDA"]
    spread = {name: (gap**2 / 2).groupby("dataset").mean() ** 0.5 for name, gap in both.items()}
    of_models = (spread["LDA"] + spread["extra trees"]) / 2
    return (
        f"On {len(of_models)} data sets a linear model and trees were fitted to disjoint halves of the training "
        f"subjects, {REPETITIONS} times, and scored on the same other subjects. The standard deviation of the mean "
        f"score of a data set between training sets is {score(of_models.mean())} in the mean "
        f"({score(of_models.min())} to {score(of_models.max())}), and that of the difference of the two models "
        f"{score(spread['difference'].mean())} ({score(spread['difference'].min())} to "
        f"{score(spread['difference'].max())}). No interval includes it. The training sets of a run are about three "
        "times as large, so a run probably varies less.\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser(__doc__, None)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    known = {row["dataset"] for row in read_known_rows(options.out)}
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for source in options.files:
            if Path(source).stem not in known:
                parts = pool.starmap(measure, [(source, repetition) for repetition in range(REPETITIONS)], 1)
                append_rows(options.out, [row for part in parts for row in part], COLUMNS)
                print(f"{source}: {sum(map(len, parts))} rows", flush=True)


if __name__ == "__main__":
    main()
