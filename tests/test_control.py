"""Statistics on data with a known subject shift: does each method do what it says, and for the reason it says?

Every method lowers leakage by at least a third of its excess over chance while the task stays; with shuffled subjects
the same training removes less than a third of that; a flipped sign raises leakage.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.censoring import CENSORS
from autotransfer.jobs import Outcome
from autotransfer.training.train import train_population
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows

pytestmark = pytest.mark.slow

# Where each works on these data and, with shuffled subjects, does nothing: a conditional comparison has more groups and
# needs less, and batches with as many subjects as fit let a marginal one act more strongly.
STRENGTH = {
    "marginal": {"adversary": 0.3, "mige": 0.05, "mmd": 10.0, "pairwise_mmd": 3.0, "began": 3.0},
    "conditional": {"adversary": 0.3, "mige": 0.3, "mmd": 3.0, "pairwise_mmd": 1.0, "began": 3.0},
    "complementary": {"adversary": 0.3, "mige": 0.1, "mmd": 3.0, "pairwise_mmd": 1.0, "began": 1.0},
}  # fmt: skip
COMMON = {"max_epochs": 100, "batch_size": 128, "lr": 3e-3, "critic_lr": 3e-2}
SEEDS = 3


def trained(recordings: at.Recordings, setting: at.Setting, *, is_flipped: bool = False) -> list[Outcome]:
    """Train with each seed as at.train does. is_flipped: with the sign of the penalty flipped."""
    fold = at.leave_one_subject_out(recordings)[0]
    jobs = [at.Job(setting, fold, seed) for seed in range(SEEDS)]
    population = Trainer(jobs, prepare_windows(recordings, jobs[0], device=torch.device("cpu"), dtype=torch.float32))
    if is_flipped:
        population.options = replace(population.options, strength=-population.options.strength)
    return list(train_population(population))


class Problem:
    """Recordings with a subject shift, and what the uncensored network leaks of it."""

    def __init__(self) -> None:
        self.recordings = at.synthetic(windows_per_class=48, subject_shift=0.5)
        self.plain = trained(self.recordings, at.Setting(**COMMON))
        self.half = at.EEGNet(self.recordings.n_channels, self.recordings.n_times).latent_dim // 2

    def leakage(self, outcomes: list[Outcome], part: slice = slice(None)) -> float:
        """Return the median excess of the probe over chance on a part of z of training subjects in the last epoch."""
        found = []
        for outcome in outcomes:
            rows = outcome.job.fold.train
            z, _ = at.encode(self.recordings, [outcome], rows, final=True)
            found.append(at.leakage(z[0][:, part], self.recordings.subject[rows]).excess)
        return float(np.median(found))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


@pytest.mark.parametrize("mode", ["marginal", "conditional"])
@pytest.mark.parametrize("method", CENSORS)
def test_true_subjects_lower_leakage_shuffled_do_not_flipped_raises(problem: Problem, method: str, mode: str) -> None:
    setting = at.Setting(method=method, mode=mode, strength=STRENGTH[mode][method], **COMMON)
    found = {
        "true": trained(problem.recordings, setting),
        "shuffled": trained(problem.recordings, replace(setting, shuffle_subjects=True)),
        "flipped": trained(problem.recordings, setting, is_flipped=True),
    }
    leakage = {condition: problem.leakage(outcomes) for condition, outcomes in found.items()}
    score, plain_score = (np.median([o.validation_score for o in own]) for own in (found["true"], problem.plain))
    plain = problem.leakage(problem.plain)
    print(f"{setting.name}: baseline {plain:.3f} {leakage}, task {plain_score:.3f} -> {score:.3f}")
    removed = plain - leakage["true"]
    assert removed >= plain / 3
    assert plain - leakage["shuffled"] < removed / 3
    assert leakage["flipped"] > plain
    assert score >= 0.9 * plain_score


@pytest.mark.parametrize("method", CENSORS)
def test_complementary_mode_moves_the_subject_to_the_second_half(problem: Problem, method: str) -> None:
    setting = at.Setting(method=method, mode="complementary", strength=STRENGTH["complementary"][method], **COMMON)
    found = trained(problem.recordings, setting)
    first, second = slice(0, problem.half), slice(problem.half, None)
    changes = [problem.leakage(found, part) - problem.leakage(problem.plain, part) for part in (first, second)]
    print(f"{setting.name}: {changes}")
    # Both halves read the same filters. What the second asks of them reaches the first, and BEGAN, the weakest of all,
    # does no more than hold it back.
    most = 0.1 if method == "began" else 0.0
    assert changes[0] < most
    assert changes[1] > 0.15 + max(changes[0], 0)
