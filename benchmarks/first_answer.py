"""What a default run has after its first stage, everybody played back:

    python -m benchmarks.first_answer DATA.npz... --runs FOLDER --out docs/results/first_answer.csv
        [--online docs/results/online.csv]

Protocol. Every option has its default but the time, which has no limit, so that the machine's speed does not decide how
many people a fold leaves out; the run is left when its first answer (closed forms) is written. Then everybody is played
back, however long it takes; the run of a user plays twelve, within a limit. Everything is nested: what is used on a
person was trained, weighted and chosen without them. Labelled windows and the windows that are scored share no group,
where the recordings have any.
One row of the CSV is the score of one person in one case:

    zero_shot           of all their windows
    PEER                a simple model of the run, of all their windows
    windows, session    of windows in the order of recording: each by itself, and as a session of the model answers
    all_windows         the same with all of their windows at once, where the run has an average for that
    before N, calibrated N, own N
                        with N labelled windows of each class, of the windows that are left: without the labels, with
                        them, and by the best classifier of the person's labels alone

--online adds the same playback in every order of the windows to a table of benchmarks.online. Nothing is chosen by this
command. The closed forms were developed on these sets: these are development figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

import autotransfer as at
from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, Playback, Scores, StageScore, read_choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.decision import decide
from autotransfer.search.online import find_online
from autotransfer.search.plan import Plan
from autotransfer.search.planning import begin
from autotransfer.search.playback import FEWEST, play_back
from autotransfer.search.procedure import conduct

from .csv_rows import command, measure_datasets
from .evidence import table_of
from .inference import mean_of
from .markdown import markdown
from .online import add_rows

COLUMNS = ["data", "case", "subject", "score"]
OURS = ("zero_shot", "windows", "session", "all_windows", "before", "calibrated", "own")  # first words of cases
COMPARED = {  # what a person gets, and what they would get otherwise
    "best simple model → zero-shot": ("zero_shot", "peer"),
    "windows by themselves → session": ("session", "windows"),
    "windows by themselves → all at once": ("all_windows", "windows"),
    "zero-shot → 5 labels": ("calibrated 5", "before 5"),
    "own classifier → 5 labels": ("calibrated 5", "own 5"),
}


class Answered(Exception):
    """The first answer is written."""


def first_answer(source: str, folder: Path) -> Choice:
    """Of a default run, which is then left; with the playback of everybody."""

    def leave(*_: object) -> None:
        raise Answered

    fixed = {"source": source, "adaptation": "zero-shot", "time": "none"}
    run = begin(folder, RunOptions.of("recommended", **fixed), tell=print)
    with closing(run.ledger):
        with suppress(Answered):
            conduct(run, print, shown=False, played=FEWEST, answered=leave)
        return replace(read_choice(folder), playback=everybody(run))


def everybody(run: Run) -> Playback | None:
    """All people, played back without a limit of time, with what has been answered so far."""
    plan, answers = run.ledger.recall("plan", Plan), run.ledger.recall("answers", list[StageScore])
    assert plan is not None, "of a run that has an answer"
    done = [plan.stages[answer.number] for answer in answers or []]
    candidates = list(dict.fromkeys(setting for stage in done for setting in stage.settings))
    _, _, nested = decide(run, candidates)
    assert nested is not None, "of an average"
    centred = list(dict.fromkeys(setting for stage in done for setting, _ in stage.online))
    online = find_online(run, candidates, centred)
    return play_back(run, candidates, nested, run.recordings.n_subjects, None, online)


def rows_of(choice: Choice) -> Iterator[tuple[str, str, float]]:
    """Case, person, score."""
    cases: dict[str, Scores] = {"zero_shot": choice.estimate, **choice.peers}
    if played := choice.playback:
        cases |= {"windows": played.zero_shot["recorded"], "session": played.adapted["recorded"]}
        cases |= {"all_windows": played.all_windows}
        for name, by_number in (("before", played.before), ("calibrated", played.calibrated), ("own", played.own)):
            cases |= {f"{name} {number}": scores for number, scores in by_number.items()}
    for case, scores in cases.items():
        for subject, value in scores.items():
            yield case, subject, round(value, 4)


def after_the_first_stage(folder: Path) -> str:
    """The table of docs/results.md, from first_answer.csv."""
    rows, gains = [], pd.DataFrame(columns=list(COMPARED), dtype=float)
    for data, cases in table_of(folder, "first_answer").groupby("data", sort=True):
        wide = cases.pivot(index="subject", columns="case", values="score")
        peers = wide.drop(columns=[case for case in wide if str(case).split()[0] in OURS])
        wide = wide.assign(peer=peers[peers.mean().idxmax()])
        cells = []
        for name, (ours, theirs) in COMPARED.items():
            both = wide.reindex(columns=[ours, theirs]).dropna()
            gains.loc[str(data), name] = (both[ours] - both[theirs]).mean()
            cells.append(f"{score(both[theirs].mean())} → {score(both[ours].mean())}" if len(both) else "–")
        rows.append([str(data), str(len(wide)), *cells])
    pooled, ahead = [], []
    for name in COMPARED:
        differences = gains[name].dropna().tolist()
        pooled.append(str(mean_of(differences)))
        ahead.append(f"{sum(value > 0 for value in differences)} of {len(differences)}")
    rows += [["**mean over sets** (95 % interval)", "", *pooled], ["ahead on", "", *ahead]]
    return markdown(["data set", "people", *COMPARED], rows)


def measured(recordings: at.Recordings, asked: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    source = next(file for file in asked.files if Path(file).stem == recordings.name)
    choice = first_answer(source, asked.runs / recordings.name)
    if asked.online is not None and choice.playback is not None:
        add_rows(asked.online, recordings.name, choice.playback)
    for row in rows_of(choice):
        yield recordings.name, *row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, None)
    parser.add_argument("--runs", type=Path, required=True, help="where the folders of runs shall be")
    parser.add_argument("--online", type=Path, help="table of benchmarks.online that the playback is added to")
    asked = parser.parse_args(arguments)
    measure_datasets(asked, COLUMNS, measured)
    print(after_the_first_stage(asked.out.parent))


if __name__ == "__main__":
    main()
