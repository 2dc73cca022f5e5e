"""Compare the scores of all pipelines on unseen subjects, and check submissions.

    python -m benchmarks.leaderboard --check FILE.csv    prints the first error of a submission, if it has one
    python -m benchmarks.leaderboard FILE.csv            checks a submission and prints its rank
    python -m benchmarks.leaderboard --write             updates leaderboard.csv from the other committed tables

leaderboard.csv has the columns dataset, mode, pipeline, subject and score (balanced accuracy, averaged over seeds). A
submission has the further column trained_on: the names of all subjects, separated by ";", whose labels were used in
training, selection or weighting of the model that predicts the subject. The mode states the data of the subject that
a pipeline uses.
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
from autotransfer.words import score

from .confirmation import read_confirmations
from .csv_rows import read_table
from .evidence import ENSEMBLE, Scores, data_sheets, differences, read_baseline_rows, read_scores, scores_by, set_means
from .inference import format_sets_ahead, mean_over_data
from .markdown import markdown

FOLDER = Path(__file__).parent.parent / "docs" / "results"
HEADS = ["", "sets", "subjects", "mean over its sets", "minus AutoTransfer, same subjects", "sets ahead"]
OURS, OWN, DEFAULT_RUNS = "AutoTransfer", "own classifier", "AutoTransfer, development runs"
PAPER = "EEGNet (paper)"  # of the runs of version 0.1.0
MAX_ROWS = 5  # rows of a table on the page
COLUMNS = ["dataset", "mode", "pipeline", "subject", "score"]
TEXTS = dict.fromkeys((*COLUMNS[:4], "trained_on"), str)
MODES = {
    "zero-shot": "no data of the subject",
    "online": "earlier unlabeled windows of the subject",
    "transductive": "all unlabeled windows of the subject",
    **{f"labels-{n}": f"the first {n} labeled windows of each class of the subject" for n in (1, 2, 5, 10)},
}


def update(folder: Path) -> pd.DataFrame:
    """Return the leaderboard, in which all rows except those of version 0.1.0 come from the committed tables."""
    board = read_table(folder / "leaderboard.csv", dtype=TEXTS)
    kept = board[board["pipeline"].isin([OURS, OWN, PAPER]) & board["dataset"].isin(_first_sets(board, folder))]
    runs = read_scores(folder, "default_runs").rename(columns={"data": "dataset"}).assign(baseline=DEFAULT_RUNS)
    second = read_confirmations(folder)[1]
    confirmed = read_scores(folder / second.name, "zero_shot").assign(adaptation="zero-shot")
    confirmed["baseline"] = confirmed["pipeline"].replace({ENSEMBLE: OURS})
    baselines = read_baseline_rows(folder)
    baselines = baselines[~baselines["source"].str.startswith("run ")]  # without baselines on the folds of runs
    rows = pd.concat([_second_labels(folder), runs, confirmed.drop(columns="pipeline"), baselines])
    rows = rows.rename(columns={"adaptation": "mode", "baseline": "pipeline"})
    rows = rows[rows["subject"] != ""].groupby(COLUMNS[:4])["score"].mean().round(5).reset_index()
    n_subjects = rows["dataset"].map(data_sheets(folder)["subjects"])
    counts = rows.groupby(COLUMNS[:3])["subject"].transform("size")
    rows = rows[(counts == n_subjects) | rows["mode"].str.startswith("labels")]
    return pd.concat([kept, rows[COLUMNS]]).sort_values(COLUMNS[:4], kind="stable")


def _first_sets(board: pd.DataFrame, folder: Path) -> set[str]:
    """Return the data sets on which version 0.1.0 was run."""
    return set(board["dataset"]) - set(read_confirmations(folder)[1].ours)


def _second_labels(folder: Path) -> pd.DataFrame:
    """Return the replays of the second confirmation as rows."""
    replay = read_scores(folder / read_confirmations(folder)[1].name, "replay")
    labels = replay[replay["method"].isin(["calibrated", "own"])]
    names = labels["method"].map({"calibrated": OURS, "own": OWN})
    labels = labels.assign(baseline=names, adaptation="labels-" + labels["case"])
    online = replay[(replay["method"] == "adapted") & (replay["case"] == "recorded")]
    return pd.concat([labels, online.assign(baseline=OURS, adaptation="online")])


def check(submission: pd.DataFrame, board: pd.DataFrame) -> None:
    """Raise an error for the first mistake in a submission."""
    columns = [*COLUMNS, "trained_on"]
    missing = [name for name in columns if name not in submission]
    if missing:
        raise UserError(f"the submission has no column {missing[0]!r}; it needs {', '.join(columns)}")
    subjects_of = {str(dataset): set(subjects) for dataset, subjects in board.groupby("dataset")["subject"]}
    for dataset, mode, pipeline, subject, value, trained_on in submission[columns].itertuples(index=False):
        where = f"{pipeline!r} on {dataset!r}, subject {subject!r}"
        if dataset not in subjects_of:
            raise UserError(f"{where}: the data set is unknown; choose from {', '.join(sorted(subjects_of))}")
        if mode not in MODES:
            raise UserError(f"{where}: mode is {mode!r}; choose from {', '.join(MODES)}")
        if subject not in subjects_of[dataset]:
            raise UserError(f"{where}: the data set has no such subject")
        if not 0 <= value <= 1:
            raise UserError(f"{where}: the score is {value:g}; a balanced accuracy lies between 0 and 1")
        training_subjects = set(str(trained_on).split(";"))
        if subject in training_subjects:
            raise UserError(f"{where}: the subject is in trained_on; hold each subject out")
        if unknown := training_subjects - subjects_of[dataset]:
            raise UserError(f"{where}: trained_on has {min(unknown)!r}, which is not in the data set")
    for (dataset, mode, pipeline), subjects in submission.groupby(["dataset", "mode", "pipeline"])["subject"]:
        where = f"{pipeline!r} on {dataset!r}, {mode}"
        if repeated := subjects[subjects.duplicated()].tolist():
            raise UserError(f"{where}: {repeated[0]!r} has two rows; average the seeds")
        known = board[(board["dataset"] == dataset) & (board["mode"] == mode)]
        required = set(known["subject"]) or subjects_of[str(dataset)]
        if absent := required - set(subjects):
            raise UserError(f"{where}: {min(absent)!r} is missing; score every subject once")


def format_ranks(board: pd.DataFrame, submission: pd.DataFrame) -> str:
    """Return the rank of each submitted pipeline among all pipelines with its data sets."""
    lines = []
    for (mode, pipeline), rows in submission.groupby(["mode", "pipeline"]):
        known = pd.concat([board[board["mode"] == mode], rows])
        means = known.pivot_table(index="pipeline", columns="dataset", values="score")[rows["dataset"].unique()]
        ranks = means.dropna().mean(axis=1).rank(ascending=False)
        lines.append(
            f"{mode}: {pipeline} has rank {ranks[str(pipeline)]:.0f} of {len(ranks)} on {means.shape[1]} data sets"
        )
    return "\n".join(lines)


def format_page(folder: Path) -> str:
    """Return the tables of docs/leaderboard.md: the best pipelines compared with AutoTransfer on the same subjects."""
    scores = scores_by(read_table(folder / "leaderboard.csv", dtype=TEXTS), "mode", "pipeline", "dataset", "subject")
    sheets, blocks = data_sheets(folder), []
    for mode in ("zero-shot", "transductive", "labels-5"):
        ours = scores[mode][OURS]
        for used in sorted(sheets["used"].unique()):
            sets = set(sheets.index[sheets["used"] == used]) & set(ours)
            if not sets:
                continue
            rows = []
            for pipeline, by_set in scores[mode].items():
                selected = {dataset: subjects for dataset, subjects in by_set.items() if dataset in sets}
                if selected:
                    rows.append(_standing_row(pipeline, selected, ours))
            rows.sort(key=lambda row: -row[0])
            table = markdown(HEADS, [cells for _, cells in rows[:MAX_ROWS]])
            blocks.append(f"**{mode}**, {used}:\n\n{table}")
    return "\n".join(blocks)


def _standing_row(pipeline: str, scores: Scores, ours: Scores) -> tuple[float, list[str]]:
    mean = score(fmean(set_means(scores).values()))
    cells = [pipeline, str(len(scores)), str(sum(map(len, scores.values()))), mean]
    if pipeline == OURS:
        return 0.0, [*cells, "–", "–"]
    gaps = differences(scores, ours)
    gap = mean_over_data(gaps)
    return gap.value, [*cells, str(gap), format_sets_ahead(gaps)]


def read_submission(path: Path) -> pd.DataFrame:
    """Read a submission, with scores as numbers."""
    try:
        table = read_table(path, dtype=TEXTS)
    except (OSError, ValueError) as error:  # errors of pandas and of Unicode are ValueErrors
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
        write_atomically(path, csv_text(update(options.folder)))
        return 0
    board = read_table(path, dtype=TEXTS)
    path = options.check or options.submission or parser.error("name a file, or use --write")
    try:
        submission = read_submission(path)
        check(submission, board)
    except UserError as error:
        print(f"leaderboard: {error}", file=sys.stderr)
        return 2
    print(f"{path}: the {len(submission)} scores on {submission['dataset'].nunique()} data sets are valid")
    if not options.check:
        print(format_ranks(board, submission))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
