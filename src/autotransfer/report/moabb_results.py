"""Scores of a run in the format of MOABB's evaluations, for its statistics and plots."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from ..errors import UserError
from ..folds import SUBJECT
from ..runs.choice import read_choice
from ..runs.results import FinishedFit, read_fits

# Columns of moabb.analysis.Results.to_dataframe.
COLUMNS = [
    "score", "time", "samples", "samples_test", "n_classes", "subject", "session", "channels", "n_sessions", "dataset",
    "pipeline",
]  # fmt: skip
DELIVERED = "AutoTransfer"  # name of the pipeline that is the delivered model


def moabb_results(run: str | Path) -> pd.DataFrame:
    """Return the scores of a finished run in the columns of MOABB's results, one row for each subject and pipeline.

    The pipeline "AutoTransfer" is the delivered model with its nested scores. Other pipelines are candidates with mean
    scores over seeds. Sessions of a subject are scored together, so `session` is "all" and `n_sessions` is 1.

    Parameters
    ----------
    run : str or Path
        Folder of the run.

    Returns
    -------
    DataFrame
        `score` is the balanced accuracy, `time` the seconds of training (for "AutoTransfer" of all candidates),
        `samples` the number of training windows, and `samples_test` the number of windows of the subject.
    """
    folder = Path(run)
    finished = read_fits(folder)
    if not finished.is_complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    if finished.options.hold_out != SUBJECT:
        raise UserError(f"{folder} held out each {finished.options.hold_out}; use a run that holds out subjects")
    data, choice = finished.data, read_choice(folder)
    n_windows = dict(zip(data.subjects, data.windows_by_unit, strict=True))
    candidates = {candidate.name for candidate in choice.shortlist}
    rows: list[tuple[str, str, float, float, float]] = []

    def samples(fits: list[FinishedFit]) -> float:
        """Return the mean number of training windows."""
        counts = [data.n_windows - sum(n_windows[name] for name in fit.held_out) for fit in fits]
        return float(np.mean(counts)) if counts else math.nan

    by_candidate: dict[tuple[str, str], list[tuple[FinishedFit, float]]] = {}
    by_subject: dict[str, list[FinishedFit]] = {}
    for fit in finished.fits:
        if fit.name not in candidates or fit.failed:
            continue
        for subject, score in fit.scores.items():
            if math.isfinite(score):
                by_candidate.setdefault((fit.name, subject), []).append((fit, score))
                by_subject.setdefault(subject, []).append(fit)
    for subject, score in choice.estimate.items():
        fits = by_subject.get(subject, [])
        seconds = sum(fit.record.seconds for fit in fits)
        rows.append((DELIVERED, subject, score, seconds, samples(fits)))
    for (name, subject), pairs in by_candidate.items():
        fits = [fit for fit, _ in pairs]
        seconds = float(np.mean([fit.record.seconds for fit in fits]))
        rows.append((name, subject, float(np.mean([score for _, score in pairs])), seconds, samples(fits)))
    table = pd.DataFrame(rows, columns=["pipeline", "subject", "score", "time", "samples"])
    table["samples_test"] = [float(n_windows[subject]) for subject in table["subject"]]
    table = table.assign(n_classes=float(len(data.classes)), channels=data.n_channels, dataset=data.name)
    return table.assign(session="all", n_sessions=1)[COLUMNS]
