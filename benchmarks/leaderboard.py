"""Scores of everybody on people never seen, and the check of what others would add:

    python -m benchmarks.leaderboard --check FILE.csv    says what is wrong with it, or that nothing is
    python -m benchmarks.leaderboard FILE.csv            the same, and prints where it would stand
    python -m benchmarks.leaderboard --write             docs/results/leaderboard.csv from the CSVs beside it

leaderboard.csv has the columns dataset, mode, pipeline, subject and score (balanced accuracy, seeds averaged). A
submission has one more, trained_on: the names of all people, separated by ";", whose labels had any part in what
predicted the subject, be it in training, in choosing or in weighting. Modes say what of the subject was used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pandas as pd

from autotransfer.errors import UserError
from autotransfer.files import write_atomically
from autotransfer.person.calibration import LABELS
from autotransfer.report.wording import score
from autotransfer.runs.csv_tables import csv_of

from . import played
from .averages import PEERS
from .confirmation import ALL_WINDOWS_PEERS, SIMPLE, ZERO_SHOT_PEERS, Confirmed
from .csv_rows import read_table
from .evidence import Scores, differences, read, scores_by, set_means_of, table_of
from .inference import over_people
from .markdown import NAMES, markdown

FOLDER = Path(__file__).parent.parent / "docs" / "results"
HEADS = ["", "sets", "people", "mean over its sets", "minus AutoTransfer, same people", "ahead of it on"]
COLUMNS = ["dataset", "mode", "pipeline", "subject", "score"]
TEXTS = dict.fromkeys((*COLUMNS[:4], "trained_on"), str)
MODES = {
    "zero-shot": "nothing of the subject",
    "online": "the subject's unlabelled windows that came before",
    "transductive": "all unlabelled windows of the subject",
    **{f"labels-{n}": f"the subject's first labelled windows of each class, {n} of them" for n in LABELS},
}


def known(folder: Path) -> pd.DataFrame:
    """The leaderboard as the committed CSVs have it."""
    evidence = read(folder)
    rows: list[list[object]] = []

    def add(mode: str, pipeline: str, scores: Scores) -> None:
        for dataset, people in scores.items():
            rows.extend([dataset, mode, pipeline, subject, round(value, 5)] for subject, value in people.items())

    for mode, peers in PEERS.items():
        ours = read(folder / "average" / mode).ours
        add(mode, "AutoTransfer", ours["nested"])
        if mode == "zero-shot":
            add(mode, "EEGNet, as published", ours["none"])
        for peer in peers:
            add(mode, NAMES[peer].removesuffix(" (transductive)"), evidence.peers.get(peer, {}))
    sets = played.played(folder)
    got = {dataset: played.delivered(scores) for dataset, scores in sets.items()}
    add("online", "AutoTransfer", played.by_set(sets, "adapted", "recorded"))
    for mode in MODES:
        if (labels := mode.removeprefix("labels-")) != mode:
            add(mode, "AutoTransfer", played.by_set(got, "calibrated", labels))
            add(mode, "own classifier", played.by_set(sets, "own", labels))
    _add_confirmed(Confirmed(folder), add)
    asked = {(row[0], row[3]) for row in rows if row[1:3] == ["zero-shot", "AutoTransfer"]}
    _add_everybody(table_of(folder, "field").rename(columns={"set": "dataset", "person": "subject"}), asked, add)
    shipped = table_of(folder, "shipped").rename(columns={"data": "dataset"})
    _add_everybody(shipped.assign(peer="AutoTransfer, today's defaults"), asked, add)
    return pd.DataFrame(rows, columns=COLUMNS).sort_values(COLUMNS[:4], kind="stable")


def _add_confirmed(confirmed: Confirmed, add: Callable[[str, str, Scores], None]) -> None:
    """The eight sets of the confirmation."""
    add("zero-shot", "AutoTransfer", confirmed.zero_shot["average"])
    add("zero-shot", "EEGNet, as published", confirmed.zero_shot["plain network"])
    add("transductive", "AutoTransfer", confirmed.all_windows["average"])
    add("online", "AutoTransfer", confirmed.followed("recorded")[1])
    # Closed forms of the run have folds of groups; leave-one-person-out peers take their place once they are there.
    for name in SIMPLE if "lda" not in confirmed.peers else ():
        add("zero-shot", f"{name}, of a run", confirmed.zero_shot[name])
    for mode, names in {"zero-shot": ZERO_SHOT_PEERS, "transductive": ALL_WINDOWS_PEERS}.items():
        for name in names:
            add(mode, NAMES[name].removesuffix(" (transductive)"), confirmed.peers.get(name, {}))
    for number in LABELS:
        _, calibrated, personal = confirmed.labels(number)
        add(f"labels-{number}", "AutoTransfer", calibrated)
        add(f"labels-{number}", "own classifier", personal)


def _add_everybody(
    table: pd.DataFrame, asked: set[tuple[object, object]], add: Callable[[str, str, Scores], None]
) -> None:
    """Peers on the sets where they have everybody who is asked for, as (set, subject)."""
    for (mode, peer), rows in table.groupby(["adaptation", "peer"]):
        for dataset, scores in scores_by(rows, "dataset", "subject").items():
            people = {subject for name, subject in asked if name == dataset}
            if people and people <= set(scores):
                known_of = {subject: value for subject, value in scores.items() if subject in people}
                add(str(mode), str(peer), {dataset: known_of})


def check(submission: pd.DataFrame, board: pd.DataFrame) -> None:
    """One line for the first thing that is wrong."""
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
    """Means by set, best first, a block for each mode."""
    blocks = []
    for mode, rows in board.groupby("mode", sort=False):
        means = rows.groupby(["pipeline", "dataset"])["score"].mean().unstack("dataset")
        means.insert(0, "mean over sets", means.mean(axis=1))
        means.insert(0, "sets", rows.groupby("pipeline")["dataset"].nunique())
        order = means.sort_values(["sets", "mean over sets"], ascending=False)
        blocks.append(f"{mode}: uses {MODES[str(mode)]}\n{order.round(3).to_string(na_rep='–')}")
    return "\n\n".join(blocks)


def page(folder: Path) -> str:
    """The part of docs/leaderboard.md: everybody compared with AutoTransfer on the same people, the best first."""
    scores = scores_by(read_table(folder / "leaderboard.csv", dtype=TEXTS), "mode", "pipeline", "dataset", "subject")
    confirmed = set(Confirmed(folder).zero_shot["average"])
    blocks = []
    for mode in ("zero-shot", "online", "transductive", "labels-5"):
        ours = scores[mode]["AutoTransfer"]
        kinds = {"sets of the confirmation": confirmed, "sets of development": set(ours) - confirmed}
        for title, wanted in kinds.items():
            rows = []
            for pipeline, by_set in scores[mode].items():
                measured = {dataset: people for dataset, people in by_set.items() if dataset in wanted}
                if measured:
                    rows.append(_standing_row(pipeline, measured, ours))
            if rows:
                rows.sort(key=lambda row: -row[0])
                table = markdown(HEADS, [cells for _, cells in rows])
                blocks.append(f"**{mode}**, {title}; uses {MODES[mode]}:\n\n{table}")
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
    ahead = [dataset for dataset, people in gaps.items() if fmean(people.values()) > 0]
    gap = over_people(gaps)
    return gap.value, [*cells, str(gap), ", ".join(ahead) or "none"]


def submitted(path: Path) -> pd.DataFrame:
    """What a file holds, with scores as numbers; one line where it cannot be read."""
    try:
        table = read_table(path, dtype=TEXTS)
    except (OSError, ValueError) as error:  # those of pandas and of Unicode are ValueErrors
        raise UserError(f"{path} cannot be read as a CSV: {error}") from error
    return table.assign(score=pd.to_numeric(table["score"], errors="coerce")) if "score" in table else table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("submission", nargs="?", type=Path, help="is checked and ranked")
    parser.add_argument("--check", type=Path, metavar="FILE.csv", help="is checked, and no more")
    parser.add_argument("--write", action="store_true", help="make leaderboard.csv anew")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    path = options.folder / "leaderboard.csv"
    if options.write:
        write_atomically(path, csv_of(known(options.folder)))
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
