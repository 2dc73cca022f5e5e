"""Commands where the target is continuous: run, resume, and predict."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .conducting import check_end, say_finished, stoppable
from .voice import say, tell

if TYPE_CHECKING:
    import pandas as pd

    from ..models.model import Model
    from ..recordings import Raw
    from ..runs.number_run import NumberRun
    from ..runs.options import RunOptions


def run_regression(options: RunOptions, out: Path) -> None:
    """Fit linear models, measure them on people left out, write everything to a folder, and print the result."""
    from ..runs.lock import Lock
    from ..runs.number_run import NumberRun
    from ..runs.run import check_unused
    from ..search.regression import check_device

    check_device(options)
    check_unused(out)
    recordings = options.load()
    tell(repr(recordings))
    run = NumberRun.begin(out, recordings, options)
    with Lock(out), closing(run.ledger):
        _carry_through(run)


def resume_regression(folder: Path, source: str | None) -> None:
    """Go on with an interrupted run. source: where the data are, if they have moved."""
    from ..runs.lock import Lock
    from ..runs.number_run import NumberRun, is_complete

    if is_complete(folder):
        say_finished(folder)
        return
    check_end()
    with Lock(folder):
        run = NumberRun.reopen(folder, source=source)
        with closing(run.ledger):
            _carry_through(run)


def _carry_through(run: NumberRun) -> None:
    from ..report.findings import regression_headline
    from ..report.regression_page import REPORT, write_run
    from ..search.regression import conduct_regression

    with stoppable(run.folder):
        regression = conduct_regression(run, tell, answered=partial(write_run, run.folder))
    say(*regression_headline(regression.choice))
    say(f"report: {(run.folder / REPORT).resolve()}")


def describe_regression(options: RunOptions) -> tuple[RunOptions, list[str]]:
    """Return the description of a run with a continuous target for its recordings, and what it would do."""
    from ..runs.options import resolved
    from ..search.regression import candidate_name, check_device, linear_candidates

    check_device(options)
    recordings = options.load()
    options = resolved(options, recordings)
    names = map(candidate_name, linear_candidates(options, recordings))
    return options, [repr(recordings), f"ridge regressions on: {'; '.join(names)}"]


def predict_numbers(
    model: Model, raw: Raw, out: Path | None, scores: Path | None, coverage: float | None, *, quiet: bool
) -> None:
    """The command `predict` for a model of a continuous target."""
    from ..runs.predictions import number_predictions

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
