"""Summarize what online sessions gain (python -m benchmarks.online --out online.csv).

The CSV is written by `python -m benchmarks.first_answer DATA.npz... --online online.csv`. Every subject is replayed by
models that left them out, in four orders of all their windows: as recorded, shuffled, class after class, and all
windows of one class before the others. The other subjects decide what a session does (search/online_adaptation.py). A
row is the balanced accuracy of one subject in one order by one method:

    zero_shot     the delivered model, each window by itself
    session       an online session of the delivered model
    online        the ensemble for online sessions, whether or not the run delivers it
    all_windows   the same ensemble with all windows of the subject at once
    METHOD        each adaptation method

The summary states, over all sets, the gain of `session` in the order of recording as a share of that of all_windows,
the least mean gain of a set in any order, and the share of subjects and orders that lose more than HARM.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from autotransfer.runs.choice import HARM, ReplayResult

from .csv_rows import read_table, replace_rows

COLUMNS = ("dataset", "subject", "order", "method", "score")


def rows_of(dataset: str, played: ReplayResult) -> Iterator[tuple[object, ...]]:
    tables = {"zero_shot": played.zero_shot, "session": played.adapted, "online": played.online, **played.methods}
    for method, orders in tables.items():
        for order, scores in orders.items():
            for subject, score in scores.items():
                yield dataset, subject, order, method, score
    for order in played.zero_shot:
        for subject, score in played.all_windows.items():
            yield dataset, subject, order, "all_windows", score


def add_rows(out: Path, dataset: str, played: ReplayResult) -> pd.DataFrame:
    """Write the rows of a data set in place of those that the file has, and return the whole table."""
    return replace_rows(out, pd.DataFrame(list(rows_of(dataset, played)), columns=COLUMNS), "dataset")


def summary(table: pd.DataFrame) -> Iterator[str]:
    """Yield the three figures, and the means behind them."""
    wide = table.pivot_table(index=["dataset", "subject", "order"], columns="method", values="score").reset_index()
    wide = wide.reindex(columns=list(dict.fromkeys([*wide, "online", "all_windows"])))  # small sets may have neither
    for method in ("session", "online", "all_windows"):
        wide[method] = wide[method] - wide["zero_shot"]
    recorded = wide[wide["order"] == "recorded"]
    share = recorded["session"].mean() / recorded["all_windows"].mean()
    yield f"session: {recorded['session'].mean():+.4f} of {recorded['all_windows'].mean():+.4f} ({share:.0%}), recorded"
    yield from (f"session, {order}: {gain:+.4f}" for order, gain in wide.groupby("order")["session"].mean().items())
    means = wide.groupby(["dataset", "order"])[["session", "online", "all_windows"]].mean()
    least = ", ".join(map(str, list(means["session"].idxmin())))  # type: ignore[call-overload]  # of two levels
    yield f"least gain of a set: {means['session'].min():+.4f} ({least})"
    yield f"losing more than {HARM:g}: {(wide['session'] < -HARM).mean():.1%} of {len(wide)} people and orders"
    yield from means.round(4).to_string().splitlines()


def relative_to_transductive(table: pd.DataFrame, shipped: pd.DataFrame) -> str:
    """Compare the gain in the order of recording with that of transductive runs (benchmarks.shipped)."""
    means = shipped.groupby(["adaptation", "data"])["score"].mean()
    whole = (means["transductive"] - means["zero-shot"]).dropna()
    recorded = table[table["order"] == "recorded"].pivot_table(index="dataset", columns="method", values="score")
    gain = (recorded["session"] - recorded["zero_shot"]).reindex(whole.index).dropna()
    whole = whole[gain.index]
    share = gain.mean() / whole.mean()
    return f"beside transductive runs, {len(gain)} sets: {gain.mean():+.4f} of {whole.mean():+.4f} ({share:.0%})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("online.csv"), help="table of benchmarks.first_answer")
    parser.add_argument("--beside", type=Path, help="table of benchmarks.shipped, with transductive runs")
    options = parser.parse_args(arguments)
    table = read_table(options.out)
    print("\n".join(summary(table)))
    if options.beside is not None:
        print(relative_to_transductive(table, read_table(options.beside)))


if __name__ == "__main__":
    main()
