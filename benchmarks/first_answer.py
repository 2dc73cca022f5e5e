"""Score what a default run has after its first stage, with every subject replayed.

    python -m benchmarks.first_answer DATA.npz... --runs FOLDER --out docs/results/first_answer.csv
        [--online docs/results/online.csv]

Each run has default options and no limit of time, and is left when its first interim result (linear models) is written.
All scores are nested: models, weights and decisions come from the other subjects. Labeled and scored windows share no
group, if the recordings have groups. A row of the CSV is the score of one subject in one case:

    zero_shot           all their windows
    BASELINE            a baseline of the run, all their windows
    windows, session    windows in the order of recording, each by itself and in an online session
    all_windows         all windows at once, if the run has an ensemble for that
    before N, calibrated N, own N
                        windows after N labeled ones of each class: without the labels, calibrated with them, and by a
                        classifier of these labels alone

--online adds the replay in every order of the windows to a table of benchmarks.online.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pandas as pd

import autotransfer as at
from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, Scores, read_choice
from autotransfer.runs.options import build_options
from autotransfer.search.plan import begin
from autotransfer.search.procedure import perform_plan

from .csv_rows import command, measure_datasets
from .evidence import table_of
from .inference import mean_of
from .markdown import markdown
from .online import add_rows

COLUMNS = ["data", "case", "subject", "score"]
OURS = ("zero_shot", "windows", "session", "all_windows", "before", "calibrated", "own")  # first words of cases
COMPARED = {  # case, and the case that it is compared with
    "best baseline → zero-shot": ("zero_shot", "baseline"),
    "zero-shot → online session": ("session", "windows"),
    "zero-shot → all windows at once": ("all_windows", "windows"),
    "zero-shot → calibrated with five labels": ("calibrated 5", "before 5"),
    "own classifier → calibrated with five labels": ("calibrated 5", "own 5"),
}


class Answered(Exception):
    """Raised when the first interim result is written."""


def first_answer(source: str, folder: Path) -> Choice:
    """Return the choice of a default run after its first stage, with the replay of all subjects."""

    def leave(*_: object) -> None:
        raise Answered

    fixed = {"source": source, "adaptation": "zero-shot", "time": "none"}
    run = begin(folder, build_options(fixed), tell=print)
    with closing(run.database):
        with suppress(Answered):
            perform_plan(run, print, shown=False, on_result=leave)
        return read_choice(folder)


def rows_of(choice: Choice) -> Iterator[tuple[str, str, float]]:
    """Yield case, subject and score."""
    cases: dict[str, Scores] = {"zero_shot": choice.estimate, **choice.baselines}
    if played := choice.replay:
        cases |= {"windows": played.zero_shot["recorded"], "session": played.adapted["recorded"]}
        cases |= {"all_windows": played.all_windows}
        tables = {"before": played.before_calibration, "calibrated": played.calibrated, "own": played.personal}
        for name, by_number in tables.items():
            cases |= {f"{name} {number}": scores for number, scores in by_number.items()}
    for case, scores in cases.items():
        for subject, value in scores.items():
            yield case, subject, round(value, 4)


def after_the_first_stage(folder: Path) -> str:
    """Return the table of docs/results.md from first_answer.csv, with data sets as the unit."""
    wide = []
    for data, cases in table_of(folder, "first_answer").groupby("data", sort=True):
        scores = cases.pivot(index="subject", columns="case", values="score")
        baselines = scores.drop(columns=[case for case in scores if str(case).split()[0] in OURS])
        wide.append(scores.assign(data=data, baseline=baselines[baselines.mean().idxmax()]))
    table, rows = pd.concat(wide), []
    for name, (ours, other) in COMPARED.items():
        means = table.reindex(columns=["data", ours, other]).dropna().groupby("data").mean()
        if not len(means):  # small sets have no ensemble for sessions
            rows.append([name, "–", "–", "–"])
            continue
        gain = means[ours] - means[other]
        both = f"{score(means[other].mean())} → {score(means[ours].mean())}"
        rows.append([name, both, str(mean_of(gain)), f"{(gain > 0).sum()} of {len(gain)}"])
    return markdown(["", "mean over sets", "difference (95 % interval)", "sets ahead"], rows)


def measured(recordings: at.Recordings, asked: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    source = next(file for file in asked.files if Path(file).stem == recordings.name)
    choice = first_answer(source, asked.runs / recordings.name)
    if asked.online is not None and choice.replay is not None:
        add_rows(asked.online, recordings.name, choice.replay)
    for row in rows_of(choice):
        yield recordings.name, *row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, None)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--online", type=Path, help="table of benchmarks.online to which the replay is added")
    asked = parser.parse_args(arguments)
    measure_datasets(asked, COLUMNS, measured)
    print(after_the_first_stage(asked.out.parent))


if __name__ == "__main__":
    main()
