"""The control that catches self-deception: leakage under true, shuffled and sign-flipped censoring.

Leakage is read from z of training-subject trials, eval mode, last epoch, by a fresh probe; median of seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

import autotransfer as at
from autotransfer.jobs import Outcome
from autotransfer.training.train import run
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows


def trained(recordings: at.Recordings, jobs: Sequence[at.Job], *, flipped: bool, device: str = "cpu") -> list[Outcome]:
    """Like at.train, with the sign of every penalty flipped on request: nothing a user can ask for."""
    windows = prepare_windows(recordings, jobs[0], device=torch.device(device), dtype=torch.float32)
    population = Trainer(jobs, windows)
    if flipped:
        population.options = replace(population.options, strength=-population.options.strength)
    place = {id(job): number for number, job in enumerate(jobs)}
    found = {place[id(outcome.job)]: outcome for outcome in run(population)}
    return [found[number] for number in range(len(jobs))]


def leak(recordings: at.Recordings, outcome: Outcome, part: slice = slice(None)) -> float:
    """Excess of the probe over chance, as a share of what is possible, on a part of z."""
    rows = outcome.job.fold.train
    z, _ = at.encode(recordings, [outcome], rows, final=True)
    return at.leakage(z[0][:, part], recordings.subject[rows]).excess


def conditions(
    recordings: at.Recordings, settings: Sequence[at.Setting], *, seeds: int = 3, device: str = "cpu"
) -> dict[str, dict[str, list[Outcome]]]:
    """condition -> setting name -> outcomes by seed."""
    fold = at.leave_one_subject_out(recordings)[0]
    plans = {
        "true": (list(settings), False),
        "shuffled": ([replace(s, shuffle_subjects=True) for s in settings], False),
        "flipped": (list(settings), True),
    }
    found = {}
    for condition, (own, flipped) in plans.items():
        jobs = [at.Job(setting, fold, seed) for setting in own for seed in range(seeds)]
        outcomes = trained(recordings, jobs, flipped=flipped, device=device)
        names = [s.name.removesuffix(" shuffled") for s in own]
        found[condition] = {name: outcomes[i * seeds : (i + 1) * seeds] for i, name in enumerate(names)}
    return found


def uncensored(recordings: at.Recordings, like: at.Setting, *, seeds: int = 3) -> list[Outcome]:
    """The baseline trained as long and as fast as a censored setting."""
    fold = at.leave_one_subject_out(recordings)[0]
    plain = replace(like, method=None, batches="auto")
    return trained(recordings, [at.Job(plain, fold, seed) for seed in range(seeds)], flipped=False)


def median(values: Sequence[float]) -> float:
    return float(np.median(values))
