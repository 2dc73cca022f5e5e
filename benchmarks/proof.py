"""The whole procedure on one data set after another: python -m benchmarks.proof DATA... --out FOLDER

FOLDER gets a run per set, named after it (with "-shuffled" for the control), and four tables over all runs that have
ended: results.csv (every training), scores.csv (test score by subject of the baseline, of each method's best setting
by validation, and of AutoTransfer's choice as published and nested, seeds averaged; then as ensembles), leakage.csv
(of the chosen setting and the baseline) and playback.csv (everybody played back window by window, and calibrated).
`python -m benchmarks.results` makes a page of them.

Killed, the same command continues where it was.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from autotransfer.errors import UserError
from autotransfer.report.collect import collect
from autotransfer.report.comparison import contenders
from autotransfer.runs.choice import Playback
from autotransfer.runs.lock import Lock
from autotransfer.runs.options import RunOptions, resolved
from autotransfer.runs.results import Trained, trained
from autotransfer.runs.run import Run
from autotransfer.search.procedure import conduct
from autotransfer.settings import Setting

from .csv_rows import command, known_rows, replace_rows

# of RunOptions
ASKED = ("grid", "epochs", "seeds", "adaptation", "lr", "batch_size", "rule")


def run_of(source: str, options: argparse.Namespace) -> Run:
    """The set's run: a new one, or the one that was begun with the same options."""
    name = Path(source).stem if Path(source).exists() else source.replace(":", "-")
    folder = options.out / (f"{name}-shuffled" if options.shuffled else name)
    asked = {key: getattr(options, key) for key in ASKED} | {"shuffle_subjects": options.shuffled}
    if not (folder / "ledger.sqlite").exists():
        return Run.create(folder, RunOptions(source=source, device=options.device, **asked))
    run = Run.open(folder)
    stored = run.options.to_dict()
    wanted = resolved(RunOptions(source=source, **asked), run.recordings).to_dict()
    for key in asked:
        if stored[key] != wanted[key]:
            run.ledger.close()
            raise UserError(f"{folder} was begun with {key} {stored[key]!r}, not {wanted[key]!r}; choose another --out")
    return run


def prove(source: str, options: argparse.Namespace) -> None:
    """Whatever of the set's run is not yet done, then its part of the tables."""
    run = run_of(source, options)
    with closing(run.ledger), Lock(run.folder):
        known = {(row["dataset"], row["control"]) for row in known_rows(options.out / "scores.csv")}
        if (run.recordings.name, str(options.shuffled)) in known:
            return
        print(f"{run.folder.name}: {run.recordings!r}", flush=True)
        if not run.ledger.recall("complete", bool):
            conduct(run, lambda line: print(f"{run.folder.name}: {line}", flush=True), shown=True,
                    played=run.recordings.n_subjects)  # fmt: skip
        for name, table in tables_of(run, leakage=options.leakage).items():
            if len(table):
                replace_rows(options.out / f"{name}.csv", table.round(6), "dataset", "control")


def tables_of(run: Run, *, leakage: bool = True) -> dict[str, pd.DataFrame]:
    """By name, those of a finished run, each with the data set and whether it is the control. Scores come last: a set
    that has them is done."""
    summary = collect(run, weights=leakage)
    choice = summary.choice
    assert choice is not None
    trainings = trained(run.ledger.entries(), run.recordings.subjects, run.options.name_of)
    picks = {"nested": choice.nested_choices}
    scores = [
        {"pipeline": row.key, "setting": row.setting or picks.get(row.key, {}).get(subject, ""), "subject": subject,
         "score": score}
        for row in contenders(summary)
        for subject, score in row.scores.items()
    ]  # fmt: skip
    more = {
        "nested_uncensored": choice.nested_uncensored_test_scores,
        **{f"{role}_ensemble": people for role, people in choice.delivered_test_scores.items()},
    }
    if choice.average is not None:
        more |= {f"without_{kind}": people for kind, people in choice.average.without_kind.items()}
    scores += [
        {"pipeline": key, "setting": "", "subject": subject, "score": score}
        for key, people in more.items()
        for subject, score in people.items()
    ]
    leaks = [{"role": role, **asdict(leak)} for role, by_fold in summary.weights.leakage.items() for leak in by_fold]
    results = [result_row(run.options, training, baseline=choice.baseline.setting) for training in trainings]
    tables = {
        "results": pd.DataFrame(results),
        "leakage": pd.DataFrame(leaks, columns=["role", "test_subject", "accuracy", "chance", "bits"]),
        "playback": pd.DataFrame(played_rows(choice.playback), columns=["what", "case", "subject", "score"]),
        "scores": pd.DataFrame(scores),
    }
    for table in tables.values():
        table.insert(0, "dataset", run.recordings.name)
        table.insert(1, "control", run.options.shuffle_subjects)
    return tables


def played_rows(playback: Playback | None) -> list[dict[str, object]]:
    """What everybody scores by what is done for them (`zero_shot`, `adapted`, …) in which order, or with how many
    labels of each class."""
    if playback is None:
        return []
    played = {what: getattr(playback, what) for what in ("zero_shot", "adapted", "before", "calibrated", "own")}
    return [
        {"what": what, "case": case, "subject": subject, "score": score}
        for what, cases in (played | playback.ways).items()
        for case, people in cases.items()
        for subject, score in people.items()
    ]


def result_row(options: RunOptions, training: Trained, *, baseline: Setting) -> dict[str, object]:
    """A training as a row of results.csv. `uncensored` and `shuffled` name the setting's twins: the same without its
    penalty, and with shuffled subjects."""
    setting, record, swapped = training.setting, training.record, training.record.swapped
    uncensored = shuffled = setting
    if setting.penalty is not None:
        uncensored = setting.uncensored(setting.training.batches)
        shuffled = setting.replace(shuffle_subjects=True)
    return {
        "stage": training.stage, "setting": training.name, "baseline": setting == baseline,
        "method": setting.method or "none", "checkpoint": setting.training.checkpoint,
        "uncensored": options.name_of(uncensored),
        "shuffled": options.name_of(shuffled), "validation_subject": training.validation_subject,
        "test_subject": training.test_subject, "seed": training.seed, "best_epoch": record.best_epoch,
        "epochs": record.epochs,
        "validation_score": record.validation_score, "test_score": record.test_score,
        "swapped_best_epoch": None if swapped is None else swapped.best_epoch,
        "swapped_validation_score": None if swapped is None else swapped.validation_score,
        "swapped_test_score": None if swapped is None else swapped.test_score,
        "seconds": record.seconds, "failure": record.failure or "",
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = command(__doc__, None, "seeds", "epochs", "device")
    parser.set_defaults(seeds=3)
    parser.add_argument("--grid", default="quick")
    parser.add_argument("--adaptation", "--preprocessing", help="zero-shot, online or transductive")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--shuffled", action="store_true", help="the control: subjects shuffled within class")
    parser.add_argument("--no-leakage", dest="leakage", action="store_false", help="probing weights takes a while")
    parser.add_argument("--rule", default="average", help="average or published")
    options = parser.parse_args(arguments)
    try:
        for source in options.files:
            prove(source, options)
    except UserError as error:
        print(f"proof: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
