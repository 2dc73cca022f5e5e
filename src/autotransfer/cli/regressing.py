"""Commands where the target is continuous: run, and predict."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .voice import say, tell

if TYPE_CHECKING:
    import pandas as pd

    from ..models.regression import RegressionModel
    from ..recordings import Raw
    from ..runs.options import RunOptions


def run_regression(options: RunOptions, out: Path) -> None:
    """Solve, measure on people left out, write everything to a folder, and say the answer."""
    from ..recordings import load_targets
    from ..report.page import plotly_of
    from ..report.regression_page import write_run
    from ..report.result_words import regression_headline
    from ..runs.regression import check_free
    from ..search.regression import check_device, search

    plotly_of()  # before any work: the report is drawn when all is done
    check_device(options)
    check_free(out)
    targets = load_targets(options.source, options.target, **options.cutting)
    tell(targets.words())
    regression = search(targets, options, tell)
    path = write_run(out, regression)
    for line in regression_headline(regression.choice):
        say(line)
    say(f"report: {path.resolve()}")


def describe_regression(options: RunOptions) -> None:
    """What such a run would do."""
    from ..folds import groups_of
    from ..recordings import load_targets
    from ..search.regression import candidates, check_device
    from ..settings import Setting

    check_device(options)
    targets = load_targets(options.source, options.target, **options.cutting)
    recordings = targets.recordings
    resolved = options.for_data(recordings)
    say(targets.words())
    say(f"{len(groups_of(recordings, resolved.n_folds))} groups of people are left out in turn")
    names = [form.name_relative_to(Setting()) for form in candidates(resolved, recordings)]
    say(f"ridge regressions on: {'; '.join(names)}")


def predict_numbers(
    model: RegressionModel, raw: Raw, out: Path | None, scores: Path | None, coverage: float | None, *, quiet: bool
) -> None:
    """The command `predict` for a model of a continuous target."""
    from ..runs.number_predictions import number_predictions

    table, people, notes = number_predictions(model, raw, coverage)
    if scores is not None and people is None:
        raise UserError("the data have no target to score predictions with; leave --scores out")
    give_predictions(table, out, people, scores, notes, quiet=quiet)


def give_predictions(
    table: pd.DataFrame, out: Path | None, people: pd.DataFrame | None, scores: Path | None, notes: Iterable[str], *,
    quiet: bool,
) -> None:  # fmt: skip
    """Predictions as CSV to the file `out`, or to standard output; scores of `people` to a file where one is asked for;
    notes to standard error."""
    from ..files import write_atomically
    from ..runs.csv_tables import csv_of

    if out is None:
        print(csv_of(table), end="", flush=True)
    else:
        write_atomically(out, csv_of(table))
        say(f"{len(table)} predictions: {out}")
    written = []
    if scores is not None and people is not None:
        write_atomically(scores, csv_of(people))
        written = [f"scores of each person: {scores}"]
    if not quiet:
        for line in (*notes, *written):
            print(line, file=sys.stderr)
