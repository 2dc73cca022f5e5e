"""Summary: everything the report shows, as plain data. Nothing in this room trains or chooses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Summary:
    """A run, finished or not. Names of data sets, classes, channels and subjects are the user's: escape them."""

    name: str  # of the data set
    source: str  # what the user gave: a path or a name
    command: str  # the command line that reproduces the run
    complete: bool
    jobs_done: int
    jobs_total: int  # known so far; stage two is added when stage one has ended
    started: str  # ISO time
    seconds: float  # computing time
    device: str
    versions: dict[str, str]  # autotransfer, python, torch, numpy ...
    options: dict[str, Any]  # grid, search, epochs, seeds, seed, nested ...
    data: dict[str, Any]  # n_trials, n_channels, n_times, sfreq, channels, classes, subjects, trials (per subject)
    splits: list[dict[str, Any]]  # fold, validation_subject, test_subject, n_train, n_validation, n_test
    # One row per finished job: stage ("prepare", "search" or "folds"), setting (its name), method, mode, strength, ...,
    # fold, validation_subject, test_subject, seed, best_epoch, epochs, validation_score, test_score,
    # swapped_validation_score, swapped_test_score, seconds, failure. Baseline: method "none".
    results: pd.DataFrame
    # choice.json, or None while unknown: chosen, baseline (dicts of setting fields with "name"),
    # validation_q25 {setting name: value}, validation_mean, test_scores {"chosen"|"baseline": {subject: score}},
    # nested_test_scores {subject: score}, nested_choices {subject: setting name}, baseline_won (bool),
    # nested_full_test_scores / nested_full_choices (only with --nested full), shortlist [setting names]
    choice: dict[str, Any] | None = None
    # setting name -> one dict per fold: fold, train_loss, penalty, validation_loss, validation_score (lists)
    histories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # "chosen" / "baseline" -> C × C counts over all test subjects, rows true classes
    confusion: dict[str, list[list[int]]] = field(default_factory=dict)
    # "baseline" / "uncensored" (as chosen, without the censor) / "chosen" -> fold -> accuracy, chance, bits; read from
    # z of training subjects at the last epoch
    leakage: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    # "chosen" / "baseline" -> columns x, y, subject, class: z of one fold's training trials in two dimensions
    latent: dict[str, pd.DataFrame] = field(default_factory=dict)
