"""The whole procedure on one data set after another: python -m benchmarks.proof DATA... --out FOLDER

FOLDER gets a run per set, named after it (with "-shuffled" for the control), and three tables over all runs that have
ended: results.csv (every training), scores.csv (test score by subject of the baseline, of each method's best setting
by validation, and of AutoTransfer's choice as published and nested, seeds averaged; then as ensembles) and leakage.csv
(of the chosen setting and the baseline). `python -m benchmarks.results` makes a page of them.

Killed or stopped by --minutes, the same command continues where it was; it then exits with status 3.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import closing
from pathlib import Path

import pandas as pd

from autotransfer.errors import UserError
from autotransfer.report.collect import collect
from autotransfer.report.comparison import contenders
from autotransfer.report.outcomes import settled
from autotransfer.runs.files import Lock, write_atomically
from autotransfer.runs.here import Here
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.procedure import conduct

TABLES = ("results", "scores", "leakage")
# of RunOptions
ASKED = ("grid", "epochs", "seeds", "standardise", "align", "prepare", "lr", "batch_size", "patience", "nested")
STOPPED = 3
# of results.csv; a setting's name says the rest
COLUMNS = [
    "stage", "setting", "baseline", "method", "validation_subject", "test_subject", "seed", "best_epoch", "epochs",
    "validation_score", "test_score", "swapped_best_epoch", "swapped_validation_score", "swapped_test_score", "seconds",
    "failure",
]  # fmt: skip


class TimeIsUp(Exception):
    """Raised after an epoch: what was not yet written is trained again, a few seconds' worth."""


class Until(Here):
    """Training in this process, for so long."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline  # of time.monotonic()

    def after_epoch(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeIsUp


def run_of(source: str, options: argparse.Namespace) -> Run:
    """The set's run: a new one, or the one that was begun with the same options."""
    name = Path(source).stem if Path(source).exists() else source.replace(":", "-")
    folder = options.out / (f"{name}-shuffled" if options.shuffled else name)
    asked = {key: getattr(options, key) for key in ASKED} | {"shuffle_subjects": options.shuffled}
    if not (folder / "ledger.sqlite").exists():
        return Run.create(folder, RunOptions(source=source, device=options.device, **asked))
    run = Run.open(folder)
    stored, wanted = run.options.to_dict(), run.would_store(RunOptions(source=source, **asked)).to_dict()
    for key in asked:
        if stored[key] != wanted[key]:
            run.ledger.close()
            raise UserError(f"{folder} was begun with {key} {stored[key]!r}, not {wanted[key]!r}; choose another --out")
    return run


def prove(source: str, options: argparse.Namespace, place: Until) -> None:
    """Whatever of the set's run is not yet done, then its part of the tables."""
    run = run_of(source, options)
    with closing(run.ledger), Lock(run.folder):
        if all((run.folder / f"proof-{table}.csv").exists() for table in TABLES):
            return
        print(f"{run.folder.name}: {run.recordings!r}", flush=True)
        if not run.ledger.recall("complete", False):
            run.place = place
            conduct(run, lambda line: print(f"{run.folder.name}: {line}", flush=True), shown=True)
        place.after_epoch()
        for name, table in zip(TABLES, tables_of(run), strict=True):
            write_atomically(run.folder / f"proof-{name}.csv", table.to_csv(index=False, float_format="%.6g"))


def tables_of(run: Run) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Results, scores and leakage of a finished run, each with the data set and whether it is the control."""
    summary = settled(collect(run))
    results = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    choice = summary.choice or {}
    results["baseline"] = results["setting"] == choice.get("baseline", {}).get("name")
    picks = {"nested": choice.get("nested_choices", {}), "nested_full": choice.get("nested_full_choices", {})}
    scores = [
        {"pipeline": row.key, "setting": row.setting or picks[row.key][subject], "subject": subject, "score": score}
        for row in contenders(summary)
        for subject, score in row.scores.items()
    ]
    more = {role: choice.get(f"{role}_test_scores", {}) for role in ("nested_uncensored", "nested_careful")}
    more |= {f"{role}_ensemble": own for role, own in choice.get("delivered_test_scores", {}).items()}
    scores += [
        {"pipeline": key, "setting": "", "subject": subject, "score": score}
        for key, own in more.items()
        for subject, score in own.items()
    ]
    leaks = [{"role": role, **found} for role, own in summary.leakage.items() for found in own]
    parts = (
        results[COLUMNS],
        pd.DataFrame(scores),
        pd.DataFrame(leaks, columns=["role", "fold", "accuracy", "chance", "bits"]),
    )
    for part in parts:
        part.insert(0, "dataset", run.recordings.name)
        part.insert(1, "control", run.options.shuffle_subjects)
    return parts


def gather(out: Path) -> None:
    """The tables of all runs that have ended, put together."""
    for name in TABLES:
        parts = [pd.read_csv(path, keep_default_na=False) for path in sorted(out.glob(f"*/proof-{name}.csv"))]
        if parts:
            write_atomically(out / f"{name}.csv", pd.concat(parts).to_csv(index=False))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="DATA")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grid", default="quick")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="default: 2,500 steps' worth")
    parser.add_argument("--standardise", help="for all settings; default: each setting's own")
    parser.add_argument("--align")
    parser.add_argument("--prepare", help="zero-shot, adaptive or transductive: find first how windows are prepared")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--patience", type=int)
    parser.add_argument("--nested", default="fast", help="fast or full")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shuffled", action="store_true", help="the control: subjects shuffled within class")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    options = parser.parse_args(arguments)

    place = Until(time.monotonic() + 60 * options.minutes)
    try:
        for source in options.data:
            prove(source, options, place)
            gather(options.out)
    except TimeIsUp:
        print(f"stopped after {options.minutes:g} minutes; the same command continues", flush=True)
        return STOPPED
    except UserError as error:
        print(f"proof: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
