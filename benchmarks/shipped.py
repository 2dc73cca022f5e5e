"""Runs as they ship, on several data sets, and the simple models that every run scores:

    python -m benchmarks.shipped DATA.npz... --runs FOLDER --out shipped.csv [--adaptation zero-shot transductive]

Protocol. Each run has every option at its default but those that are given here (`--time`, `--seeds`, `--device`); the
CSV records the first two. A run whose folder exists is resumed, and a finished one is only read: the command goes on
where it was stopped. Every score is nested: of a person who had no part in finding the weights, nor in the decision to
stop. One row of the CSV is one person: `score` of the delivered model, `first` of the first answer (closed forms), each
simple model by name; and of the run, how many stages it has and the seconds until its first and last answer. The table
that is printed has, for each set, the mean over people and the difference to the best simple model of the set with its
95 % interval over people. Nothing is chosen by this command.

What time buys: the same sets on two cores with a limit (`--device cpu --time 24m`) and on a GPU with none (`--device
cuda --time none`), everything else at its default; `benchmarks.anytime` reads the scores of their answers. A limit is
taken to cost nothing where the difference, pooled over sets, is above −0.005.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from autotransfer.runs.recovery import reopen

from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import is_run
from autotransfer.search.planning import begin
from autotransfer.search.procedure import conduct

from .csv_rows import command, replace_rows
from .inference import mean_of
from .markdown import markdown

FIXED = ["data", "adaptation", "subject", "score", "first", "stages", "first_seconds", "seconds", "time", "seeds"]


def performed(folder: Path, options: RunOptions, tell: Any) -> Choice:
    """The run in this folder, begun or taken up again."""
    run = reopen(folder, None, tell) if is_run(folder) else begin(folder, options, tell=tell)
    with closing(run.ledger):
        if run.ledger.recall("complete", bool):
            return read_choice(folder)
        return conduct(run, tell, shown=False)


def rows_of(name: str, options: RunOptions, choice: Choice) -> Iterator[dict[str, Any]]:
    """One for each person."""
    first, last = choice.stages[0], choice.stages[-1]
    for subject, value in choice.estimate.items():
        yield {
            "data": name, "adaptation": choice.adaptation if options.adaptation == "auto" else options.adaptation,
            "subject": subject, "score": round(value, 4), "first": round(first.scores.get(subject, np.nan), 4),
            "stages": len(choice.stages), "first_seconds": round(first.seconds), "seconds": round(last.seconds),
            "time": options.time or "default", "seeds": options.seeds,
            **{peer: round(scores.get(subject, np.nan), 4) for peer, scores in choice.peers.items()},
        }  # fmt: skip


def as_shipped(table: pd.DataFrame) -> str:
    """The table of docs/results.md: for each set and adaptation means over people, and the difference to the simple
    model with the highest mean."""
    peers = [name for name in table.columns if name not in FIXED]
    table = table.assign(**{name: pd.to_numeric(table[name], errors="coerce") for name in peers})  # not all have all
    rows = []
    for (adaptation, data), people in table.groupby(["adaptation", "data"], sort=True):
        best = people[peers].mean().idxmax()
        means = [score(people[name].mean()) for name in (best, "first", "score")]
        seconds = (f"{people[name].iloc[0]:.0f} s" for name in ("first_seconds", "seconds"))
        gain = mean_of(people["score"] - people[best])
        rows.append([str(data), str(adaptation), str(len(people)), *means, str(gain), ", ".join(seconds)])
    heads = ["data set", "adaptation", "people", "best simple model of the run", "first answer", "last answer",
             "difference (95 % interval)", "after"]  # fmt: skip
    return markdown(heads, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, None, "device")
    parser.add_argument("--runs", type=Path, required=True, help="where the folders of runs are, or shall be")
    parser.add_argument("--adaptation", nargs="+", default=["zero-shot"], help="zero-shot, online, transductive")
    parser.add_argument("--time", help="as of `autotransfer run`")
    parser.add_argument("--seeds", type=int, help="as of `autotransfer run`")
    asked = parser.parse_args(arguments)
    given = {name: value for name, value in (("time", asked.time), ("seeds", asked.seeds)) if value is not None}
    for source in asked.files:
        for adaptation in asked.adaptation:
            name, fixed = Path(source).stem, given | {"device": asked.device, "adaptation": adaptation}
            options = RunOptions.of("recommended", source=source, **fixed)
            folder = asked.runs / f"{name}-{adaptation}"
            choice = performed(folder, options, lambda line, name=name: print(f"{name}: {line}", flush=True))
            rows = pd.DataFrame(list(rows_of(name, options, choice)))
            table = replace_rows(asked.out, rows, "data", "adaptation")
            print(choice.verdict, flush=True)
    print(as_shipped(table))


if __name__ == "__main__":
    main()
