"""Store and summarize replays of subjects in online sessions.

`python -m benchmarks.default_runs DATA.npz... --cases docs/results` writes online.csv. Windows of every subject
are replayed by models of the other subjects in four orders: as recorded, shuffled, class after class, and all windows
of one class before the others. The other subjects also select the adaptation method (search/online_adaptation.py). A
row is the balanced accuracy of one subject in one order by one method:

    zero_shot     delivered model
    session       online session of the delivered model
    all_windows   transductive ensemble
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from autotransfer.runs.choice import HARM, ReplayResult
from autotransfer.words import score, signed

from .csv_rows import replace_rows
from .evidence import read_scores
from .markdown import markdown

ORDERS = {"recorded": "recorded", "balanced": "shuffled", "one-sided": "class after class",
          "one class first": "one class first"}  # fmt: skip
COLUMNS = ("dataset", "subject", "order", "method", "score")


def build_rows(dataset: str, replay: ReplayResult) -> Iterator[tuple[object, ...]]:
    tables = {"zero_shot": replay.zero_shot, "session": replay.adapted}
    for method, orders in tables.items():
        for order, scores in orders.items():
            for subject, value in scores.items():
                yield dataset, subject, order, method, value
    for order in replay.zero_shot:
        for subject, value in replay.all_windows.items():
            yield dataset, subject, order, "all_windows", value


def add_rows(out: Path, dataset: str, replay: ReplayResult) -> pd.DataFrame:
    """Replace the rows of a data set in the file, and return the whole table."""
    return replace_rows(out, pd.DataFrame(list(build_rows(dataset, replay)), columns=COLUMNS), "dataset")


def gains_table(folder: Path) -> str:
    """Return the gains of sessions in every order, and of all windows at once, for docs/online.md."""
    table = read_scores(folder, "online")
    wide = table.pivot_table(index=["dataset", "subject", "order"], columns="method", values="score")
    gains = wide[["session", "all_windows"]].sub(wide["zero_shot"], axis=0)
    columns = {name: gains["session"].xs(order, level="order") for order, name in ORDERS.items()}
    columns["all windows at once"] = gains["all_windows"].xs("recorded", level="order")
    means = {name: gain.groupby("dataset").mean() for name, gain in columns.items()}
    n_sets, n_subjects = table["dataset"].nunique(), len(columns["recorded"])
    losing = (gains["session"].dropna() < -HARM).mean()
    rows = [
        [f"mean over {n_subjects} subjects", *(signed(gain.mean()) for gain in columns.values())],
        [f"mean over {n_sets} sets", *(signed(mean.mean()) for mean in means.values())],
        ["lowest mean of a set", *(signed(mean.min()) for mean in means.values())],
    ]
    words = f"In {100 * losing:.1f} % of all subjects and orders the session scores more than {score(HARM)} below"
    return f"{markdown(['', *columns], rows)}\n{words} zero-shot.\n"
