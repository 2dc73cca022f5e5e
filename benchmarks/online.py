"""Summarize the gains of online sessions.

    python -m benchmarks.online --out online.csv [--runs default_runs.csv]

The CSV is written by `python -m benchmarks.first_stage DATA.npz... --online online.csv`. Windows of every subject
are rereplay by models of the other subjects in four orders: as recorded, shuffled, class after class, and all windows
of one class before the others. The other subjects also select the adaptation method (search/online_adaptation.py). A
row is the balanced accuracy of one subject in one order by one method:

    zero_shot     delivered model
    session       online session of the delivered model
    online        ensemble for online sessions, also if the run does not deliver it
    all_windows   transductive ensemble
    METHOD        each adaptation method

The summary states, over all sets, the gain of `session` in the order of recording as a share of the gain of
all_windows, the least mean gain of a set in any order, and the share of subjects and orders that lose more than HARM.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from autotransfer.runs.choice import HARM, ReplayResult

from .csv_rows import read_table, replace_rows

COLUMNS = ("dataset", "subject", "order", "method", "score")


def build_rows(dataset: str, replay: ReplayResult) -> Iterator[tuple[object, ...]]:
    tables = {"zero_shot": replay.zero_shot, "session": replay.adapted, "online": replay.online, **replay.methods}
    for method, orders in tables.items():
        for order, scores in orders.items():
            for subject, score in scores.items():
                yield dataset, subject, order, method, score
    for order in replay.zero_shot:
        for subject, score in replay.all_windows.items():
            yield dataset, subject, order, "all_windows", score


def add_rows(out: Path, dataset: str, replay: ReplayResult) -> pd.DataFrame:
    """Replace the rows of a data set in the file, and return the whole table."""
    return replace_rows(out, pd.DataFrame(list(build_rows(dataset, replay)), columns=COLUMNS), "dataset")


def summary(table: pd.DataFrame) -> Iterator[str]:
    """Yield the three results, and the means from which they are computed."""
    wide = table.pivot_table(index=["dataset", "subject", "order"], columns="method", values="score").reset_index()
    wide = wide.reindex(columns=list(dict.fromkeys([*wide, "online", "all_windows"])))  # small sets may lack both
    for method in ("session", "online", "all_windows"):
        wide[method] = wide[method] - wide["zero_shot"]
    recorded = wide[wide["order"] == "recorded"]
    share = recorded["session"].mean() / recorded["all_windows"].mean()
    yield f"session: {recorded['session'].mean():+.4f} of {recorded['all_windows'].mean():+.4f} ({share:.0%}), recorded"
    yield from (f"session, {order}: {gain:+.4f}" for order, gain in wide.groupby("order")["session"].mean().items())
    means = wide.groupby(["dataset", "order"])[["session", "online", "all_windows"]].mean()
    least = ", ".join(map(str, list(means["session"].idxmin())))  # type: ignore[call-overload]  # of two levels
    yield f"least gain of a set: {means['session'].min():+.4f} ({least})"
    yield f"losing more than {HARM:g}: {(wide['session'] < -HARM).mean():.1%} of {len(wide)} subjects and orders"
    yield from means.round(4).to_string().splitlines()


def compare_with_transductive(table: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Compare the gain in the order of recording with the gain of transductive runs."""
    means = runs.groupby(["adaptation", "data"])["score"].mean()
    transductive = (means["transductive"] - means["zero-shot"]).dropna()
    recorded = table[table["order"] == "recorded"].pivot_table(index="dataset", columns="method", values="score")
    gain = (recorded["session"] - recorded["zero_shot"]).reindex(transductive.index).dropna()
    transductive = transductive[gain.index]
    share = gain.mean() / transductive.mean()
    return f"versus transductive runs, {len(gain)} sets: {gain.mean():+.4f} of {transductive.mean():+.4f} ({share:.0%})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("online.csv"), help="table of benchmarks.first_stage")
    parser.add_argument("--runs", type=Path, help="table of benchmarks.default_runs, with transductive runs")
    options = parser.parse_args(arguments)
    table = read_table(options.out)
    print("\n".join(summary(table)))
    if options.runs is not None:
        print(compare_with_transductive(table, read_table(options.runs)))


if __name__ == "__main__":
    main()
