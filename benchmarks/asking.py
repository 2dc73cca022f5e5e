"""Labels that a session asks for, compared with labels of any windows:

    python -m benchmarks.asking DATA.npz... --out asking.csv [--draws 2] [--folds 4]

Groups of people are left out, one closed form of each representation is fitted to everybody else, with equal weights.
Of a person left out, half of the groups of windows (a column `group`, in a session) are scored, the others can be
labelled: no group is in both. Windows that can be labelled come in a random order, 240 at most. `any` labels each as it
comes; `asked` labels those that `Session.ask` finds worth it, and lets the others pass. When all have come, those that
passed come again, with half the threshold: somebody who wants more labels would lower it. Both end after five labels
for every class, and where nothing more is asked for the score stays.

A row of the CSV has the mean over people and draws after so many labels: `used`, how many there are by then, and the
balanced accuracy; `first` counts the labels that the threshold of a session asks for, before it is lowered. Threshold
and formula were found on emg_electrode_shift and emg_myodisco. That windows come again was added when other sets had
been seen, on which fewer labels were asked for than were to be compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

import autotransfer as at
from autotransfer.folds import leave_groups_out, scorable
from autotransfer.models.assembly import Part, assemble_mixture
from autotransfer.person.asking import RECENT, WORTH, expected_gain
from autotransfer.person.decoder import Decoder
from autotransfer.person.labels import Labels
from autotransfer.search.kinds import closed_forms
from autotransfer.search.labelled import groups_of
from autotransfer.settings import Setting
from autotransfer.training.metrics import balanced_accuracy_of

from .csv_rows import command, measure_datasets
from .markdown import markdown

Rows = NDArray[np.int64]
COLUMNS = ["dataset", "people", "windows", "first", "labels", "used", "score"]
MOST = 5  # labels for every class
WINDOWS = 240  # that can be labelled
PASSES = 5  # over windows that were not asked for, each with half the threshold before
MARKS = (1, 2, 3, 5)  # labels for every class, at which both are compared


def forms(recordings: at.Recordings) -> list[Setting]:
    """One closed form of each representation that a run has for these signals."""
    of_kind: dict[str, Setting] = {}
    for setting in closed_forms("zero-shot", recordings):
        if setting.encoder == "linear":
            of_kind.setdefault(setting.kind, setting)
    return list(of_kind.values())


class Person(NamedTuple):
    """Somebody left out, as the model of everybody else reads them."""

    name: str
    rows: Rows  # (n,) of the recordings
    x: Tensor  # (n, P, R): projected codes
    log_p: Tensor  # (n, C)
    y: Rows  # (n,)
    groups: Rows  # (n,): windows of a group overlap, or follow each other
    labels: Callable[[], Labels]  # of somebody who has given none


def people(recordings: at.Recordings, folds: int) -> Iterator[Person]:
    settings, splits = forms(recordings), leave_groups_out(recordings, folds)
    outcomes = iter(at.train(recordings, [at.Job(s, f) for f in splits for s in settings], "cpu", progress=False))
    subject, known = recordings.subject.numpy(), set(scorable(recordings))
    for fold in splits:
        states = [next(outcomes).state for _ in settings]
        parts = [Part(s, [state], [fold], 1 / len(settings)) for s, state in zip(settings, states, strict=True)]
        model = assemble_mixture(recordings, parts, scores={})
        decoder = Decoder(model)
        for person in known & set(subject[fold.test].tolist()):
            rows = np.flatnonzero(subject == person)
            codes, log_p = decoder.read(recordings.X[rows], decoder.follow())
            yield Person(
                str(recordings.subjects[person]), rows, decoder.project(codes), log_p, recordings.y.numpy()[rows],
                groups_of(recordings, rows), partial(decoder.labels, model),
            )  # fmt: skip


def halves(person: Person, draw: int) -> tuple[Rows, Rows] | None:
    """Windows that can be labelled, in a random order, and those that are scored; None where classes are missing."""
    random = np.random.default_rng(draw)
    groups = random.permutation(np.unique(person.groups))
    scored = np.isin(person.groups, groups[: len(groups) // 2])
    if any(len(np.unique(person.y[half])) < len(np.unique(person.y)) for half in (scored, ~scored)):
        return None
    return random.permutation(np.flatnonzero(~scored))[:WINDOWS], np.flatnonzero(scored)


def curve(person: Person, come: Rows, scored: Rows, *, asks: bool) -> tuple[list[float], int]:
    """Balanced accuracy after 0, 1, … labels, and how many of these came of the first pass."""
    labels, n_classes = person.labels(), person.log_p.shape[1]

    def score() -> float:
        predicted = labels.correct(person.x[scored], person.log_p[scored]).argmax(1).numpy()
        return balanced_accuracy_of(predicted, person.y[scored], n_classes)

    def worth(place: int, at_least: float) -> bool:
        row, seen = come[place], come[max(0, place + 1 - RECENT) : place + 1]
        return expected_gain(labels, person.x[row], person.log_p[row], person.x[seen], person.log_p[seen]) >= at_least

    scores, left, first = [score()], list(range(len(come))), 0
    for number in range(PASSES if asks else 1):
        for place in list(left):
            if not asks or worth(place, WORTH / 2**number):
                left.remove(place)
                labels.add(person.x[come[[place]]], torch.from_numpy(person.y[come[[place]]]))
                scores.append(score())
                first += number == 0
                if len(scores) > MOST * n_classes:
                    return scores, first
    return scores, first


def mean_curve(curves: Sequence[Sequence[float]], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """After at most 0 … `most` labels (most + 1,): how many there are, and the score."""
    places = [np.minimum(np.arange(most + 1), len(scores) - 1) for scores in curves]
    scores = [np.asarray(scores)[place] for scores, place in zip(curves, places, strict=True)]
    return np.mean(places, 0), np.mean(scores, 0)


def measured(recordings: at.Recordings, options: argparse.Namespace) -> Iterator[dict[Any, Any]]:
    curves: dict[str, list[tuple[list[float], int]]] = {"any": [], "asked": []}
    everybody = list(people(recordings, options.folds))
    for person in everybody:
        for draw in range(options.draws):
            if (split := halves(person, draw)) is not None:
                for windows in curves:
                    curves[windows].append(curve(person, *split, asks=windows == "asked"))
    for windows, drawn in curves.items():
        if drawn:
            scores, firsts = zip(*drawn, strict=True)
            first = round(float(np.mean(firsts)), 2)
            for labels, (used, score) in enumerate(zip(*mean_curve(scores, MOST * recordings.n_classes), strict=True)):
                values = (recordings.name, len(everybody), windows, first, labels, round(used, 3), round(score, 5))
                yield dict(zip(COLUMNS, values, strict=True))


def needed(curve: NDArray[np.float64], target: float) -> float:
    """Labels after which a score is reached, from numbers of labels and scores (2, n); NaN where it never is."""
    used, score = curve
    reached = np.flatnonzero(score >= target)
    return float(used[reached[0]]) if len(reached) else float("nan")


def table_of(rows: pd.DataFrame) -> str:
    """Labels that `asked` needs for what `any` scores with so many for every class, as a share."""
    lines, shares = [], []
    for dataset, measured_rows in rows.groupby("dataset"):
        by_windows = {name: part.sort_values("labels") for name, part in measured_rows.groupby("windows")}
        anybody, asked = (by_windows[name][["used", "score"]].to_numpy().T for name in ("any", "asked"))
        classes = (len(anybody[0]) - 1) // MOST
        targets = [anybody[1][mark * classes] for mark in MARKS]
        shares.append([needed(asked, target) / needed(anybody, target) for target in targets])
        first = by_windows["asked"]["first"].iloc[0]
        ends = [anybody[1][0], anybody[1][-1], asked[1][-1], asked[1][round(first)]]
        cells = [f"{share:.2f}" if share == share else "never" for share in shares[-1]]
        counts = [str(measured_rows["people"].iloc[0]), str(MOST * classes)]
        lines.append([str(dataset), *counts, *(f"{end:.3f}" for end in ends), f"{first:.0f}", *cells])
    worst = np.where(np.isnan(shares), np.inf, shares)  # a score that is never reached has no mean
    lines.append(["**median over sets**", *([""] * 7), *(f"{middle:.2f}" for middle in np.median(worst, 0))])
    heads = ["", "people", "labels", "none", "any windows", "asked", "as long as a session asks", "its labels"]
    heads += [f"share, as {mark} for each class" for mark in MARKS]
    return markdown(heads, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, "asking.csv", files="*")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--draws", type=int, default=2)
    print(table_of(measure_datasets(parser.parse_args(arguments), COLUMNS, measured)))


if __name__ == "__main__":
    main()
