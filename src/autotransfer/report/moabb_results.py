"""A run's scores as MOABB's evaluations give theirs, for its statistics and plots."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError
from ..folds import SUBJECT
from ..runs.choice import read_choice
from ..runs.results import Trained, read_trainings

# Names and order as of moabb.analysis.Results.to_dataframe.
COLUMNS = [
    "score", "time", "samples", "samples_test", "n_classes", "subject", "session", "channels", "n_sessions", "dataset",
    "pipeline",
]  # fmt: skip
DELIVERED = "AutoTransfer"  # the pipeline that is what the run delivers


def moabb_results(run: str | Path) -> pd.DataFrame:
    """The scores of a finished run in the columns of MOABB's results, one row for each person and pipeline.

    run: its folder. The pipeline "AutoTransfer" is what the run delivers, decided for each person without them; the
    others are the candidates by name, their scores on test people being means over seeds. score: balanced accuracy;
    time: seconds of training, of all candidates for what is delivered, and of everybody who was held out together;
    samples: training trials; samples_test: trials of the person. Sessions of a person are scored together: session is
    "all", n_sessions 1.
    """
    folder = Path(run)
    seen = read_trainings(folder)
    if not seen.complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    if seen.options.hold_out != SUBJECT:
        raise UserError(f"{folder} held out each {seen.options.hold_out}, and these columns are of people held out")
    data, choice = seen.data, read_choice(folder)
    trials = dict(zip(data.subjects, data.trials, strict=True))
    candidates = {candidate.name for candidate in choice.shortlist}
    rows: list[tuple[str, str, float, float, float]] = []

    def samples(trainings: list[Trained]) -> float:
        """Trials that were trained on, in the mean: those of nobody who was held out."""
        counts = [data.n_trials - sum(trials[name] for name in done.held_out) for done in trainings]
        return float(np.mean(counts)) if counts else math.nan

    by_candidate: dict[tuple[str, str], list[tuple[Trained, float]]] = {}
    by_person: dict[str, list[Trained]] = {}
    for done in seen.trainings:
        if done.name not in candidates or done.failed:
            continue
        for subject, score in done.scores.items():
            if math.isfinite(score):
                by_candidate.setdefault((done.name, subject), []).append((done, score))
                by_person.setdefault(subject, []).append(done)
    for subject, score in choice.estimate.items():
        trainings = by_person.get(subject, [])
        seconds = sum(done.record.seconds for done in trainings)
        rows.append((DELIVERED, subject, score, seconds, samples(trainings)))
    for (name, subject), scored in by_candidate.items():
        trainings = [done for done, _ in scored]
        seconds = float(np.mean([done.record.seconds for done in trainings]))
        rows.append((name, subject, float(np.mean([score for _, score in scored])), seconds, samples(trainings)))
    table = pd.DataFrame(rows, columns=["pipeline", "subject", "score", "time", "samples"])
    table["samples_test"] = [float(trials[subject]) for subject in table["subject"]]
    same: dict[str, Any] = {
        "n_classes": float(len(data.classes)),
        "session": "all",
        "channels": data.n_channels,
        "n_sessions": 1,
    }
    return table.assign(**same, dataset=data.name)[COLUMNS]
