"""A run's scores as MOABB's evaluations give theirs, for its statistics and plots."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError
from ..runs.choice import read_choice
from ..runs.follower import RunFollower
from ..runs.results import Trained
from ..settings import SUBJECT

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
    seen = RunFollower(folder).look()
    if not seen.standing.complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    if seen.options.hold_out != SUBJECT:
        raise UserError(f"{folder} held out each {seen.options.hold_out}, and these columns are of people held out")
    data, choice = seen.data, read_choice(folder)
    trials = dict(zip(data.subjects, data.trials, strict=True))
    candidates = {candidate.name for candidate in choice.shortlist}
    rows: list[dict[str, Any]] = []

    def add(pipeline: str, subject: str, score: float, seconds: float, training: float) -> None:
        rows.append(
            {
                "score": score, "time": seconds, "samples": training, "samples_test": float(trials[subject]),
                "n_classes": float(len(data.classes)), "subject": subject, "session": "all",
                "channels": data.n_channels, "n_sessions": 1, "dataset": data.name, "pipeline": pipeline,
            }
        )  # fmt: skip

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
        samples = (
            float(np.mean([_training(done, data.n_trials, trials) for done in trainings])) if trainings else math.nan
        )
        add(DELIVERED, subject, score, sum(done.record.seconds for done in trainings), samples)
    for (name, subject), scored in by_candidate.items():
        scores, seconds = [score for _, score in scored], [done.record.seconds for done, _ in scored]
        samples = float(np.mean([_training(done, data.n_trials, trials) for done, _ in scored]))
        add(name, subject, float(np.mean(scores)), float(np.mean(seconds)), samples)
    return pd.DataFrame(rows, columns=COLUMNS)


def _training(training: Trained, n_trials: int, trials: dict[str, int]) -> int:
    """Trials that were trained on: those of nobody who was held out."""
    return n_trials - sum(trials[name] for name in training.held_out)
