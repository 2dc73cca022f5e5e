"""What a person who keeps using a model gets: python -m benchmarks.online DATA.npz... --runs FOLDER --out online.csv

Protocol, fixed before it was run. Each set has one run with the usual options (zero-shot candidates, and the closed
forms that sessions use). Everybody is played back, or as many as --people says, evenly spread: each by
trainings that left them out, with weights found without them, in four orders of their first 240 windows or so (as many
of each class): recorded, drawn at random, class after class, and all windows of one class before the others. What a
session does is decided for each person by the others (search/following.py). One row of the CSV is the balanced accuracy
of one person in one order by one method:

    zero_shot     the model as delivered, every window by itself
    session       what a session of the delivered model does, where the others decide
    online        the average for sessions, by the rule that the others choose, whether or not it is delivered
    all_windows   the same with all windows of the person at once
    METHOD        each adaptation method in the codes

`loses` says whether the session clearly scores less than zero_shot: a paired bootstrap of the person's own windows.

Judged by the rows, over all sets: the pooled gain of `session` in the recorded order, as a share of that of
all_windows; the least mean gain of a set in any order; the share of people and orders in which somebody clearly loses.
A summary of these is printed. Rows of sets that are in the CSV already are kept; a run that is there is not done again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd

from autotransfer.files import write_atomically
from autotransfer.runs.choice import Playback, StageScore
from autotransfer.runs.csv_tables import csv_of
from autotransfer.runs.options import RunOptions
from autotransfer.runs.recovery import reopen
from autotransfer.runs.run import Run, is_run
from autotransfer.search.decision import decide
from autotransfer.search.online import find_online
from autotransfer.search.plan import Plan
from autotransfer.search.planning import begin
from autotransfer.search.playback import FEWEST, play_back
from autotransfer.search.procedure import conduct

from .csv_rows import command, read_table

COLUMNS = ("dataset", "subject", "order", "method", "score", "loses")


def playback_of(source: Path, folder: Path, options: argparse.Namespace) -> Playback | None:
    """Everybody with what a run with the usual options has trained; the run's own playback has a limit of time."""
    given = {"networks": options.networks, "device": options.device, "time": options.time, "seeds": options.seeds}
    asked = RunOptions.of("recommended", source=str(source), adaptation="zero-shot", **given)
    run = reopen(folder, None, print) if is_run(folder) else begin(folder, asked, tell=print)
    with closing(run.ledger):
        if not run.ledger.recall("complete", bool):
            conduct(run, print, shown=False, played=FEWEST)
        return everybody(run, options.people)


def everybody(run: Run, people: int) -> Playback | None:
    """So many people, played back without a limit of time, with what has been answered so far."""
    plan, answers = run.ledger.recall("plan", Plan), run.ledger.recall("answers", list[StageScore])
    assert plan is not None, "of a run that has an answer"
    done = [plan.stages[answer.number] for answer in answers or []]
    candidates = list(dict.fromkeys(setting for stage in done for setting in stage.settings))
    _, _, nested = decide(run, candidates)
    assert nested is not None, "of an average"
    centred = list(dict.fromkeys(setting for stage in done for setting, _ in stage.online))
    online = find_online(run, candidates, centred)
    return play_back(run, candidates, nested, people, None, online)


def rows_of(dataset: str, played: Playback) -> Iterator[tuple[object, ...]]:
    tables = {"zero_shot": played.zero_shot, "session": played.adapted, "online": played.online, **played.ways}
    for method, orders in tables.items():
        for order, scores in orders.items():
            for subject, score in scores.items():
                loses = method == "session" and subject in played.losing.get(order, ())
                yield dataset, subject, order, method, score, loses
    for order in played.zero_shot:
        for subject, score in played.all_windows.items():
            yield dataset, subject, order, "all_windows", score, False


def add_rows(out: Path, dataset: str, played: Playback) -> pd.DataFrame:
    """The table in this file, with the rows of a set in place of those that it had."""
    rows = pd.DataFrame(list(rows_of(dataset, played)), columns=COLUMNS)
    if out.exists():
        table = read_table(out, dtype={"subject": str, "dataset": str})
        rows = pd.concat([table[table["dataset"] != dataset], rows], ignore_index=True)
    write_atomically(out, csv_of(rows))
    return rows


def summary(table: pd.DataFrame) -> Iterator[str]:
    """The three figures that the protocol asks for, and the means behind them."""
    wide = table.pivot_table(index=["dataset", "subject", "order"], columns="method", values="score").reset_index()
    for method in ("session", "online", "all_windows"):
        wide[method] = wide[method] - wide["zero_shot"]
    recorded = wide[wide["order"] == "recorded"]
    share = recorded["session"].mean() / recorded["all_windows"].mean()
    yield f"session: {recorded['session'].mean():+.4f} of {recorded['all_windows'].mean():+.4f} ({share:.0%}), recorded"
    yield from (f"session, {order}: {gain:+.4f}" for order, gain in wide.groupby("order")["session"].mean().items())
    means = wide.groupby(["dataset", "order"])[["session", "online", "all_windows"]].mean()
    least = ", ".join(map(str, list(means["session"].idxmin())))  # type: ignore[call-overload]  # of two levels
    yield f"least gain of a set: {means['session'].min():+.4f} ({least})"
    session = table[table["method"] == "session"]
    yield f"clearly losing: {session['loses'].mean():.1%} of {len(session)} people and orders"
    yield from means.round(4).to_string().splitlines()


def relative_to_transductive(table: pd.DataFrame, shipped: pd.DataFrame) -> str:
    """The gain in the recorded order, and that of runs whose candidates all use all windows (benchmarks.shipped)."""
    means = shipped.groupby(["adaptation", "data"])["score"].mean()
    whole = (means["transductive"] - means["zero-shot"]).dropna()
    recorded = table[table["order"] == "recorded"].pivot_table(index="dataset", columns="method", values="score")
    gain = (recorded["session"] - recorded["zero_shot"]).reindex(whole.index).dropna()
    whole = whole[gain.index]
    share = gain.mean() / whole.mean()
    return f"beside transductive runs, {len(gain)} sets: {gain.mean():+.4f} of {whole.mean():+.4f} ({share:.0%})"


def main() -> None:
    parser = command(__doc__, "online.csv", "device", files="*")
    parser.add_argument("--beside", type=Path, help="table of benchmarks.shipped, with transductive runs")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--networks", default=None, help="of RunOptions: all, main, one or none")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--time", default=None, help="of each run")
    options = parser.parse_args()
    table = read_table(options.out, dtype={"subject": str, "dataset": str}) if options.out.exists() else None
    for source in map(Path, options.files):
        if table is not None and source.stem in set(table["dataset"]):
            continue
        played = playback_of(source, options.runs / source.stem, options)
        if played is None:
            print(f"{source.stem}: nobody could be played back")
            continue
        table = add_rows(options.out, source.stem, played)
        print(f"{source.stem}: a session does {played.session}")
    if table is not None:
        print("\n".join(summary(table)))
        if options.beside is not None:
            print(relative_to_transductive(table, read_table(options.beside)))


if __name__ == "__main__":
    main()
