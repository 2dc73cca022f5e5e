"""Scores of all pipelines on subjects never seen, and the check of submissions.

    python -m benchmarks.leaderboard --check FILE.csv    says what is wrong with a submission, or that nothing is
    python -m benchmarks.leaderboard FILE.csv            checks a submission and prints where it would stand
    python -m benchmarks.leaderboard --write             updates docs/results/leaderboard.csv from the CSVs beside it

leaderboard.csv has the columns dataset, mode, pipeline, subject and score (balanced accuracy, averaged over seeds). A
submission has the further column trained_on: the names of all subjects, separated by ";", whose labels were used in
training, selection or weighting of the model that predicts the subject. The mode says which data of the subject a
pipeline uses.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

import pandas as pd

from autotransfer.csv_tables import csv_text
from autotransfer.errors import UserError
from autotransfer.files import write_atomically
from autotransfer.report.wording import score

from .confirmation import Confirmed
from .csv_rows import read_table
from .evidence import Scores, differences, scores_by, set_means_of, table_of
from .inference import ahead_on, over_people
from .markdown import markdown

FOLDER = Path(__file__).parent.parent / "docs" / "results"
HEADS = ["", "sets", "subjects", "mean over its sets", "minus AutoTransfer, same subjects", "sets ahead"]
SHIPPED = "AutoTransfer, today's defaults"
SHOWN = 7  # rows of a table on the page
COLUMNS = ["dataset", "mode", "pipeline", "subject", "score"]
TEXTS = dict.fromkeys((*COLUMNS[:4], "trained_on"), str)
MODES = {
    "zero-shot": "no data of the subject",
    "online": "earlier unlabeled windows of the subject",
    "transductive": "all unlabeled windows of the subject",
    **{f"labels-{n}": f"the first {n} labeled windows of each class of the subject" for n in (1, 2, 5, 10)},
}


def updated(folder: Path) -> pd.DataFrame:
    """Return the leaderboard with today's rows of field.csv and shipped.csv instead of those that it has of them."""
    board = read_table(folder / "leaderboard.csv", dtype=TEXTS)
    field = table_of(folder, "field").rename(columns={"set": "dataset", "person": "subject"})
    shipped = table_of(folder, "shipped").rename(columns={"data": "dataset"}).assign(baseline=SHIPPED)
    rows = pd.concat([field, shipped]).rename(columns={"adaptation": "mode", "baseline": "pipeline"})
    rows = rows.groupby(COLUMNS[:4])["score"].mean().round(5).reset_index()
    asked = board[(board["mode"] == "zero-shot") & (board["pipeline"] == "AutoTransfer")]
    rows = rows.merge(asked[["dataset", "subject"]])
    counts = rows.groupby(COLUMNS[:3])["subject"].transform("size")
    rows = rows[counts == rows["dataset"].map(asked["dataset"].value_counts())]
    kept = board[~board["pipeline"].isin(set(field["baseline"]) | {SHIPPED})]
    return pd.concat([kept, rows[COLUMNS]]).sort_values(COLUMNS[:4], kind="stable")


def check(submission: pd.DataFrame, board: pd.DataFrame) -> None:
    """Raise an error for the first mistake in a submission."""
    columns = [*COLUMNS, "trained_on"]
    missing = [name for name in columns if name not in submission]
    if missing:
        raise UserError(f"the submission has no column {missing[0]!r}; it needs {', '.join(columns)}")
    people = {str(dataset): set(subjects) for dataset, subjects in board.groupby("dataset")["subject"]}
    for dataset, mode, pipeline, subject, value, trained_on in submission[columns].itertuples(index=False):
        where = f"{pipeline!r} on {dataset!r}, subject {subject!r}"
        if dataset not in people:
            raise UserError(f"{where}: there is no such set; there are {', '.join(sorted(people))}")
        if mode not in MODES:
            raise UserError(f"{where}: mode is {mode!r}; give one of {', '.join(MODES)}")
        if subject not in people[dataset]:
            raise UserError(f"{where}: nobody of that name is in the set")
        if not 0 <= value <= 1:
            raise UserError(f"{where}: the score is {value:g}; balanced accuracies lie between 0 and 1")
        others = set(str(trained_on).split(";"))
        if subject in others:
            raise UserError(f"{where}: their own labels were trained on; leave each person out")
        if strangers := others - people[dataset]:
            raise UserError(f"{where}: trained on {min(strangers)!r}, who is not in the set")
    for (dataset, mode, pipeline), subjects in submission.groupby(["dataset", "mode", "pipeline"])["subject"]:
        where = f"{pipeline!r} on {dataset!r}, {mode}"
        if twice := subjects[subjects.duplicated()].tolist():
            raise UserError(f"{where}: {twice[0]!r} is there twice; average seeds first")
        asked = set(board[(board["dataset"] == dataset) & (board["mode"] == mode)]["subject"]) or people[str(dataset)]
        if absent := asked - set(subjects):
            raise UserError(f"{where}: {min(absent)!r} is missing; every person is left out once")


def standing(board: pd.DataFrame) -> str:
    """Return means by data set, the best first, in a block for each mode."""
    blocks = []
    for mode, rows in board.groupby("mode", sort=False):
        means = rows.groupby(["pipeline", "dataset"])["score"].mean().unstack("dataset")
        means.insert(0, "mean over sets", means.mean(axis=1))
        means.insert(0, "sets", rows.groupby("pipeline")["dataset"].nunique())
        order = means.sort_values(["sets", "mean over sets"], ascending=False)
        blocks.append(f"{mode}: uses {MODES[str(mode)]}\n{order.round(3).to_string(na_rep='–')}")
    return "\n\n".join(blocks)


def page(folder: Path) -> str:
    """Return the tables of docs/leaderboard.md: the best pipelines compared with AutoTransfer on the same subjects."""
    scores = scores_by(read_table(folder / "leaderboard.csv", dtype=TEXTS), "mode", "pipeline", "dataset", "subject")
    confirmed = set(Confirmed(folder).zero_shot["average"])
    blocks = []
    for mode in ("zero-shot", "transductive", "labels-5"):
        ours = scores[mode]["AutoTransfer"]
        for title, wanted in {"confirmation": confirmed, "development": set(ours) - confirmed}.items():
            rows = []
            for pipeline, by_set in scores[mode].items():
                measured = {dataset: people for dataset, people in by_set.items() if dataset in wanted}
                if measured:
                    rows.append(_standing_row(pipeline, measured, ours))
            rows.sort(key=lambda row: -row[0])
            table = markdown(HEADS, [cells for _, cells in rows[:SHOWN]])
            blocks.append(f"**{mode}**, sets of the {title}:\n\n{table}")
    return "\n".join(blocks)


def _standing_row(pipeline: str, scores: Scores, ours: Scores) -> tuple[float, list[str]]:
    cells = [
        pipeline,
        str(len(scores)),
        str(sum(map(len, scores.values()))),
        score(fmean(set_means_of(scores).values())),
    ]
    if pipeline == "AutoTransfer":
        return 0.0, [*cells, "–", "–"]
    gaps = differences(scores, ours)
    gap = over_people(gaps)
    return gap.value, [*cells, str(gap), ahead_on(gaps)]


def submitted(path: Path) -> pd.DataFrame:
    """Read a submission, with scores as numbers."""
    try:
        table = read_table(path, dtype=TEXTS)
    except (OSError, ValueError) as error:  # those of pandas and of Unicode are ValueErrors
        raise UserError(f"{path} cannot be read as a CSV: {error}") from error
    return table.assign(score=pd.to_numeric(table["score"], errors="coerce")) if "score" in table else table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("submission", nargs="?", type=Path, help="file to check and rank")
    parser.add_argument("--check", type=Path, metavar="FILE.csv", help="file to check only")
    parser.add_argument("--write", action="store_true", help="update leaderboard.csv")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    path = options.folder / "leaderboard.csv"
    if options.write:
        write_atomically(path, csv_text(updated(options.folder)))
        return 0
    board = read_table(path, dtype=TEXTS)
    try:
        if path := options.check or options.submission:
            submission = submitted(path)
            check(submission, board)
            if options.check:
                sets = submission["dataset"].nunique()
                print(f"{path}: nothing is wrong with its {len(submission)} scores on {sets} data sets")
                return 0
            board = pd.concat([board, submission[COLUMNS]])
            board = board[board["mode"].isin(submission["mode"]) & board["dataset"].isin(submission["dataset"])]
    except UserError as error:
        print(f"leaderboard: {error}", file=sys.stderr)
        return 2
    print(standing(board))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
