"""Scores of everybody on people never seen, and the check of what others would add:

    python -m benchmarks.leaderboard SUBMISSION.csv      checks it, and prints where it would stand
    python -m benchmarks.leaderboard --write             docs/results/leaderboard.csv from the CSVs beside it

leaderboard.csv has the columns dataset, mode, pipeline, subject and score (balanced accuracy, seeds averaged). A
submission has one more, trained_on: the names of all people, separated by ";", whose labels had any part in what
predicted the subject, be it in training, in choosing or in weighting. Modes say what of the subject was used.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from autotransfer.errors import UserError
from autotransfer.person.calibration import LABELS
from autotransfer.runs.csv_tables import csv_of, read_table
from autotransfer.runs.files import write_atomically

from . import played
from .averages import PEERS
from .evidence import Scores, read
from .markdown import NAMES

FOLDER = Path(__file__).parent.parent / "docs" / "results"
COLUMNS = ["dataset", "mode", "pipeline", "subject", "score"]
MODES = {
    "zero-shot": "nothing of the subject",
    "online": "the subject's unlabelled windows that came before",
    "transductive": "all unlabelled windows of the subject",
    **{
        f"labels-{number}": f"the subject's first labelled windows of each class, {number} of them" for number in LABELS
    },
}


def known(folder: Path) -> pd.DataFrame:
    """The leaderboard as the committed CSVs have it."""
    evidence = read(folder)
    found: list[list[object]] = []

    def add(mode: str, pipeline: str, scores: Scores) -> None:
        for dataset, own in scores.items():
            found.extend([dataset, mode, pipeline, subject, round(value, 5)] for subject, value in own.items())

    for mode, peers in PEERS.items():
        own = read(folder / "average" / mode).ours
        add(mode, "AutoTransfer", own.get("nested", {}))
        if mode == "zero-shot":
            add(mode, "EEGNet, as published", own.get("none", {}))
        for peer in peers:
            add(mode, NAMES[peer].removesuffix(" (transductive)"), evidence.peers.get(peer, {}))
    sets = played.played(folder)
    got = {dataset: played.delivered(own) for dataset, own in sets.items()}
    add("online", "AutoTransfer", played.by_set(sets, "adapted", "recorded"))
    for mode in MODES:
        if (labels := mode.removeprefix("labels-")) != mode:
            add(mode, "AutoTransfer", played.by_set(got, "calibrated", labels))
            add(mode, "own classifier", played.by_set(sets, "own", labels))
    return pd.DataFrame(found, columns=COLUMNS).sort_values(COLUMNS[:4], kind="stable")


def check(submission: pd.DataFrame, board: pd.DataFrame) -> None:
    """One line for the first thing that is wrong."""
    missing = [name for name in [*COLUMNS, "trained_on"] if name not in submission]
    if missing:
        raise UserError(f"the submission has no column {missing[0]!r}; it needs {', '.join([*COLUMNS, 'trained_on'])}")
    people = {str(dataset): set(own) for dataset, own in board.groupby("dataset")["subject"]}
    for dataset, mode, pipeline, subject, score, trained_on in submission[[*COLUMNS, "trained_on"]].itertuples(
        index=False
    ):
        where = f"{pipeline!r} on {dataset!r}, subject {subject!r}"
        if dataset not in people:
            raise UserError(f"{where}: there is no such set; there are {', '.join(sorted(people))}")
        if mode not in MODES:
            raise UserError(f"{where}: mode is {mode!r}; give one of {', '.join(MODES)}")
        if subject not in people[dataset]:
            raise UserError(f"{where}: nobody of that name is in the set")
        if not 0 <= score <= 1:
            raise UserError(f"{where}: the score is {score:g}; balanced accuracies lie between 0 and 1")
        others = set(str(trained_on).split(";"))
        if subject in others:
            raise UserError(f"{where}: their own labels were trained on; leave each person out")
        if strangers := others - people[dataset]:
            raise UserError(f"{where}: trained on {min(strangers)!r}, who is not in the set")
    for (dataset, mode, pipeline), own in submission.groupby(["dataset", "mode", "pipeline"]):
        where = f"{pipeline!r} on {dataset!r}, {mode}"
        if twice := own["subject"][own["subject"].duplicated()].tolist():
            raise UserError(f"{where}: {twice[0]!r} is there twice; average seeds first")
        asked = set(board[(board["dataset"] == dataset) & (board["mode"] == mode)]["subject"]) or people[str(dataset)]
        if absent := asked - set(own["subject"]):
            raise UserError(f"{where}: {min(absent)!r} is missing; every person is left out once")


def standing(board: pd.DataFrame) -> str:
    """Means by set, best first, a block for each mode."""
    blocks = []
    for mode, own in board.groupby("mode", sort=False):
        means = own.groupby(["pipeline", "dataset"])["score"].mean().unstack("dataset")
        means.insert(0, "mean over sets", means.mean(axis=1))
        means.insert(0, "sets", own.groupby("pipeline")["dataset"].nunique())
        order = means.sort_values(["sets", "mean over sets"], ascending=False)
        blocks.append(f"{mode}: uses {MODES[str(mode)]}\n{order.round(3).to_string(na_rep='–')}")
    return "\n\n".join(blocks)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("submission", nargs="?", type=Path)
    parser.add_argument("--write", action="store_true", help="make leaderboard.csv anew")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    path = options.folder / "leaderboard.csv"
    if options.write:
        write_atomically(path, csv_of(known(options.folder)))
        return 0
    texts = dict.fromkeys((*COLUMNS[:4], "trained_on"), str)
    board = read_table(path, dtype=texts)
    try:
        if options.submission is not None:
            submission = read_table(options.submission, dtype=texts)
            check(submission, board)
            board = pd.concat([board, submission[COLUMNS]])
            board = board[board["mode"].isin(submission["mode"]) & board["dataset"].isin(submission["dataset"])]
    except UserError as error:
        print(f"leaderboard: {error}", file=sys.stderr)
        return 2
    print(standing(board))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
