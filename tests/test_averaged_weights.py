"""Averaged weights are the mean over the last half of the steps, with their own batch statistics."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import autotransfer as at
from autotransfer.training.averaging import WeightAverage
from autotransfer.training.train import train_population
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows
from plain_eegnet import PlainEEGNet, copy_member, our_name
from tiny import people

CPU = torch.device("cpu")


def jobs_of(rec: at.Recordings, epochs: int = 5, checkpoint: str = "averaged", **more: object) -> list[at.Job]:
    setting = at.Setting(max_epochs=epochs, batch_size=16, checkpoint=checkpoint, schedule="constant", **more)
    return [at.Job(setting, fold) for fold in at.leave_one_subject_out(rec)]


def trainer_of(rec: at.Recordings, jobs: list[at.Job], dtype: torch.dtype = torch.float64) -> Trainer:
    return Trainer(jobs, prepare_windows(rec, jobs[0], device=CPU, dtype=dtype))


def test_the_weights_are_the_mean_over_the_last_half_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rec = people()
    population = trainer_of(rec, jobs_of(rec))
    seen: list[Tensor] = []
    follow = WeightAverage.update

    def noted(self: WeightAverage, values: Tensor, steps: Tensor, active: Tensor) -> None:
        seen.append(values.clone())
        follow(self, values, steps, active)

    monkeypatch.setattr(WeightAverage, "update", noted)
    outcomes = {outcome.job: outcome for outcome in train_population(population)}
    steps = len(seen)
    assert steps == 5 * 3, "five epochs of three batches"
    mean = torch.stack(seen[steps // 2 :]).mean(0)
    fresh = trainer_of(rec, jobs_of(rec))
    for member, outcome in enumerate(outcomes.values()):
        expected = fresh.flat.unflatten(mean[member], fresh.flat.stats[member])
        names = [column.name for column in fresh.flat.parameter_columns]
        for name in names:
            torch.testing.assert_close(outcome.state[name], expected[name], rtol=1e-9, atol=1e-12)


def test_batch_statistics_are_those_of_a_pass_with_the_averaged_weights() -> None:
    """As torch.optim.swa_utils.update_bn has them, but without dropout: cumulative means over the last epoch's rows."""
    rec = people()
    population = trainer_of(rec, jobs_of(rec))
    for _ in range(5):
        population.train_epoch()
        plan = population.groups.draw_rows(population.epoch)
    for member in range(len(population.jobs)):
        plain = PlainEEGNet(3, 24, population.net.kernel).double()
        copy_member(plain, population.net, member)
        norms = [layer for layer in plain.modules() if isinstance(layer, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # torch's cumulative mean
        plain.train()
        with torch.no_grad():
            for rows in plan:
                plain(population.prepared.gather(rows)[member])
        found = dict(population.net.named_buffers())
        for name, buffer in plain.named_buffers():
            if not name.endswith("num_batches_tracked"):
                torch.testing.assert_close(found[our_name(name)][member], buffer, rtol=1e-7, atol=1e-9)


def test_held_out_subjects_are_scored_at_the_epoch_that_the_other_selected() -> None:
    rec, differ = people(), 0
    for kind in ("best", "last", "averaged"):
        for outcome in at.train(rec, jobs_of(rec, epochs=12, checkpoint=kind, lr=0.01)):
            fold, cut = outcome.job.fold, len(outcome.job.fold.validation)
            for log_probs, rows, score in (
                (outcome.held_out_log_probs[cut:], fold.test, outcome.test_score),
                (outcome.held_out_log_probs[:cut], fold.validation, outcome.swapped.test_score),
            ):
                y, predicted = rec.y[rows], log_probs.argmax(1)
                recall = [(predicted[y == k] == k).double().mean() for k in y.unique()]
                assert score == pytest.approx(float(torch.stack(recall).mean()))
            differ += outcome.best_epoch != outcome.swapped.best_epoch
            torch.testing.assert_close(outcome.swapped.held_out_log_probs, outcome.held_out_log_probs.roll(-cut, 0))
            totals = outcome.held_out_log_probs.exp().sum(1)
            torch.testing.assert_close(totals, torch.ones_like(totals))
    assert differ > 0, "or it does not matter who picked"
