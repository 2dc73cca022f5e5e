"""Averaged weights: the mean they claim to be, measured and kept, while training goes on as without them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.training.population import Population
from autotransfer.training.train import windows_for
from test_training import assert_same, many_jobs, ragged

RATE = 0.8


def population(jobs: list[at.Job], recordings: at.Recordings) -> Population:
    windows = windows_for(recordings, jobs[0], {}, device=torch.device("cpu"), dtype=torch.float64)
    return Population(recordings, jobs, windows, torch.float64)


def averaged(job: at.Job, rate: float = RATE) -> at.Job:
    return replace(job, setting=replace(job.setting, average=rate))


def watched(stack: Population, epochs: int) -> list[tuple[Tensor, Tensor]]:
    """Weights and running statistics of member 0 after each of its steps."""
    seen, step = [], stack._step

    def told(rows: Tensor, x: Tensor) -> None:
        taken = bool(stack.tick < stack.groups.steps[stack.groups.of_member[0]])
        step(rows, x)
        if taken:
            seen.append((stack.flat.values[0].clone(), stack.flat.stats[0].clone()))

    stack._step = told  # type: ignore[method-assign]
    for _ in range(epochs):
        stack.train_epoch()
        stack.evaluate()
    return seen


def test_it_is_the_exponential_mean_of_all_steps() -> None:
    recordings = ragged()
    job = averaged(many_jobs(recordings)[0])
    stack = population([job, many_jobs(recordings)[5]], recordings)
    seen = watched(stack, 3)
    assert len(seen) > 10
    for place, kept in enumerate((stack.average.values[0], stack.average.stats[0])):
        mean = torch.zeros_like(kept)
        for n, weights in enumerate(seen, 1):
            share = max(1 - RATE, 1 / n)
            mean = (1 - share) * mean + share * weights[place]
        torch.testing.assert_close(kept, mean)
        assert not torch.allclose(kept, seen[-1][place])


def test_training_goes_on_as_without_it() -> None:
    recordings = ragged()
    jobs = many_jobs(recordings)[:6]
    plain, own = population(jobs, recordings), population([averaged(job) for job in jobs], recordings)
    for stack in (plain, own):
        for _ in range(3):
            stack.train_epoch()
            stack.evaluate()
    assert torch.equal(plain.flat.values, own.flat.values)
    assert torch.equal(plain.flat.stats, own.flat.stats)
    assert not torch.allclose(plain.snapshots.history, own.snapshots.history, equal_nan=True)


def test_the_mean_is_what_is_measured_kept_and_delivered() -> None:
    recordings = ragged()
    job = averaged(many_jobs(recordings)[0])
    stack = population([job], recordings)
    means, losses = [], []
    for _ in range(3):
        stack.train_epoch()
        stack.evaluate()
        means.append(stack.average.values[0].clone())
        losses.append(stack.snapshots.history[0, stack.epoch - 1, 2:4].clone())
    for side in (0, 1):
        best = int(torch.stack(losses)[:, side].argmin())
        torch.testing.assert_close(stack.snapshots.values[0, side], means[best])
    outcome = stack.outcome(0, None)
    weight = outcome.final_state["encoder.temporal"]
    torch.testing.assert_close(weight.flatten(), means[-1][: weight.numel()])


def test_members_without_it_are_untouched_by_neighbours_with_it() -> None:
    recordings = ragged()
    jobs = many_jobs(recordings)[:8]
    mixed = [averaged(job) if place % 2 else job for place, job in enumerate(jobs)]
    together = at.train(recordings, mixed, device="cpu")
    for place in (2, 5):
        (alone,) = at.train(recordings, [mixed[place]], device="cpu")
        assert alone.population == 1
        assert_same(alone, together[place], 0)


def test_a_population_continues_where_it_was() -> None:
    recordings = ragged()
    jobs = [averaged(job) for job in many_jobs(recordings)[:4]]
    whole, first, second = (population(jobs, recordings) for _ in range(3))
    for _ in range(2):
        first.train_epoch()
        first.evaluate()
    second.load({name: tensor.clone() for name, tensor in first.state().items()}, 2, first.seconds)
    for stack, epochs in ((whole, 3), (second, 1)):
        for _ in range(epochs):
            stack.train_epoch()
            stack.evaluate()
    for name, tensor in whole.state().items():
        torch.testing.assert_close(tensor, second.state()[name], equal_nan=True, rtol=0, atol=0)


def test_members_may_leave() -> None:
    recordings = ragged()
    jobs = many_jobs(recordings)[:4]
    jobs = [
        averaged(replace(job, setting=replace(job.setting, max_epochs=1 + place))) for place, job in enumerate(jobs)
    ]
    together = at.train(recordings, jobs, device="cpu", dtype=torch.float64)
    (alone,) = at.train(recordings, [jobs[3]], device="cpu", dtype=torch.float64)
    assert_same(alone, together[3], 1e-9)


def test_wrong_rates_are_told() -> None:
    for rate in (-0.1, 1.0):
        with pytest.raises(UserError, match="average is"):
            at.Setting(average=rate)
    assert at.Setting(average=0.9).name_beside(at.Setting()) == "baseline with average 0.9"
