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

# Names and order of moabb.analysis.Results.to_dataframe.
COLUMNS = [
    "score", "time", "samples", "samples_test", "n_classes", "subject", "session", "channels", "n_sessions", "dataset",
    "pipeline",
]  # fmt: skip
DELIVERED = "AutoTransfer"  # pipeline of the delivered model


def moabb_results(run: str | Path) -> pd.DataFrame:
    """Return the scores of a finished run in the columns of MOABB's results, one row for each subject and pipeline.

    The pipeline "AutoTransfer" is the delivered model, with nested scores. Other pipelines are candidates, with mean
    scores over seeds. score: balanced accuracy; time: seconds of training, for "AutoTransfer" of all candidates;
    samples: training windows; samples_test: windows of the subject. Sessions of a subject are scored together, so
    session is "all" and n_sessions is 1.

    Parameters
    ----------
    run : str or Path
        Folder of the run.

    Returns
    -------
    DataFrame
        Scores.
    """
    folder = Path(run)
    seen = read_fits(folder)
    if not seen.complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    if seen.options.hold_out != SUBJECT:
        raise UserError(f"{folder} held out each {seen.options.hold_out}; use a run that holds out subjects")
    data, choice = seen.data, read_choice(folder)
    trials = dict(zip(data.subjects, data.windows_by_unit, strict=True))
    candidates = {candidate.name for candidate in choice.shortlist}
    rows: list[tuple[str, str, float, float, float]] = []

    def samples(fits: list[FinishedFit]) -> float:
        """Return the mean number of windows of subjects that were not held out."""
        counts = [data.n_windows - sum(trials[name] for name in done.held_out) for done in fits]
        return float(np.mean(counts)) if counts else math.nan

    by_candidate: dict[tuple[str, str], list[tuple[FinishedFit, float]]] = {}
    by_subject: dict[str, list[FinishedFit]] = {}
    for done in seen.fits:
        if done.name not in candidates or done.failed:
            continue
        for subject, score in done.scores.items():
            if math.isfinite(score):
                by_candidate.setdefault((done.name, subject), []).append((done, score))
                by_subject.setdefault(subject, []).append(done)
    for subject, score in choice.estimate.items():
        fits = by_subject.get(subject, [])
        seconds = sum(done.record.seconds for done in fits)
        rows.append((DELIVERED, subject, score, seconds, samples(fits)))
    for (name, subject), scored in by_candidate.items():
        fits = [done for done, _ in scored]
        seconds = float(np.mean([done.record.seconds for done in fits]))
        rows.append((name, subject, float(np.mean([score for _, score in scored])), seconds, samples(fits)))
    table = pd.DataFrame(rows, columns=["pipeline", "subject", "score", "time", "samples"])
    table["samples_test"] = [float(trials[subject]) for subject in table["subject"]]
    table = table.assign(n_classes=float(len(data.classes)), channels=data.n_channels, dataset=data.name)
    return table.assign(session="all", n_sessions=1)[COLUMNS]
