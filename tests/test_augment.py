"""Augmentations against plain NumPy, what they leave unchanged, and the moments of changed windows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS, TrainingBatch
from autotransfer.augment.mixup import Mixup, find_partners
from autotransfer.errors import UserError
from autotransfer.model.moments import window_moments
from autotransfer.search.candidates import find_signal
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import Windows, prepare_windows
from tiny import people, tiny

pytestmark = pytest.mark.usefixtures("brief_results")

CPU = torch.device("cpu")
every = pytest.mark.parametrize("name", list(AUGMENTATIONS))


def windows(groups: int = 2, rows: int = 48, channels: int = 3, times: int = 21, seed: int = 0) -> Tensor:
    """Channel-major in memory, as they are in a fit step."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(groups, channels, rows, times, generator=draw, dtype=torch.float64).transpose(1, 2)


def keys(groups: int = 2, rows: int = 48, seed: int = 0) -> Tensor:
    draw = np.random.default_rng(seed).integers(-(2**31), 2**31, (groups, rows))
    return torch.from_numpy(draw.astype(np.int32))


def labels(x: Tensor, classes: int = 3, subjects: int = 4, seed: int = 0, signals: int | None = None) -> TrainingBatch:
    draw = np.random.default_rng(seed)
    y, s = (torch.from_numpy(draw.integers(0, n, x.shape[:2])) for n in (classes, subjects))
    return TrainingBatch(y, s, x.shape[2] if signals is None else signals)


# ---- each against its oracle -----------------------------------------------------------------------------------------


def test_mixup_adds_a_share_of_another_subject_of_the_class() -> None:
    x, key = windows(), keys()
    batch = labels(x)
    found = Mixup(0.4)(x, key, batch)
    shares = []
    for g in range(2):
        for i in range(48):
            own, new = x[g, i], found[g, i]
            fits = []
            for j in range(48):
                if i != j:
                    step = x[g, j] - own
                    share = float(((new - own) * step).sum() / step.square().sum())
                    if torch.allclose(own + share * step, new, rtol=0, atol=1e-12):
                        fits.append((j, share))
            ((j, share),) = fits
            assert batch.y[g, i] == batch.y[g, j]
            assert batch.s[g, i] != batch.s[g, j]
            shares.append(share)
    assert 0 <= min(shares) < 0.02
    assert 0.38 < max(shares) < 0.4
    assert np.mean(shares) == pytest.approx(0.2, abs=0.04)


def test_every_partner_is_as_likely() -> None:
    """Over many draws; row 0 may take 3, 4, 5 and 7."""
    draws = 4000
    y, s = torch.tensor([0, 0, 1, 0, 0, 0, 1, 0]), torch.tensor([0, 0, 1, 1, 1, 2, 2, 3])
    batch = TrainingBatch(y.expand(draws, 8), s.expand(draws, 8), 1)
    partner, found = find_partners(keys(draws, 8), batch)
    assert found.all()
    counts = torch.bincount(partner[:, 0], minlength=8)
    assert counts[[0, 1, 2, 6]].sum() == 0
    assert (counts[[3, 4, 5, 7]] - draws / 4).abs().max() < 4 * (draws * 0.25 * 0.75) ** 0.5


# ---- what all of them do ---------------------------------------------------------------------------------------------


@every
def test_appended_levels_stay_constant(name: str) -> None:
    """Appended means and deviations are constant over time, and stay so; they are mixed and silenced as signals are."""
    shapes, scale = windows(), windows(channels=6, times=1, seed=1)
    x = torch.cat([shapes, scale.expand(2, 48, 6, 21)], 2)
    batch = labels(x, signals=3)
    found = AUGMENTATIONS[name]()(x, keys(), batch)
    assert not torch.equal(found[:, :, :3], shapes)
    levels = found[:, :, 3:]
    torch.testing.assert_close(levels, levels[..., :1].expand_as(levels))
    if name not in ("mixup", "channel_mask"):
        assert torch.equal(levels, x[:, :, 3:])


def test_signals_are_counted_through_the_transforms() -> None:
    def of(**values: Any) -> int:
        return at.Setting(**values).preprocessing.n_signal_channels(4, 30)

    assert of() == of(standardize="train") == 4
    assert of(standardize="train", append_scale=True) == 4
    assert of(standardize="train", delays=3, append_scale=True) == 12
    assert of(represent="features") == of(represent="tangent", standardize="train", append_scale=True) == 0


def trainer_of(rec: at.Recordings, setting: at.Setting, tables: int | None = None) -> Trainer:
    """tables: windows that are tabulated for filters of this length, whatever the setting says."""
    jobs = [at.Job(setting, fold) for fold in at.leave_one_subject_out(rec)[:2]]
    if tables is None:
        found = prepare_windows(rec, jobs[0], device=CPU, dtype=torch.float64)
    else:
        found = Windows(rec, setting.preprocessing, tables, device=CPU, dtype=torch.float64)
    return Trainer(jobs, found)


@every
@pytest.mark.parametrize("standardize", ["trial", "train"])  # tables of all windows, and of each fold's
def test_moments_are_those_of_the_changed_windows(name: str, standardize: str) -> None:
    """Even where tables exist: the encoder's statistics are of the windows that it sees."""
    rec = people(per=12)
    setting = at.Setting(**{name: fields(AUGMENTATIONS[name])[0].default}, standardize=standardize, batch_size=16)
    kernel = setting.network.moments_kernel(rec.sfreq)
    assert kernel
    plain, tabulated = trainer_of(rec, setting), trainer_of(rec, setting, kernel)
    assert plain.prepared.group_sums is None
    assert plain.prepared.windows.sums is None
    seen: list[tuple[Tensor, Any]] = []
    tabulated.net.register_forward_pre_hook(lambda net, x, rest: seen.append((x[0], rest["moments"])), with_kwargs=True)
    for trainer in (plain, tabulated):
        trainer.train_epoch()
    torch.testing.assert_close(tabulated.flat.values, plain.flat.values, rtol=0, atol=1e-12)
    torch.testing.assert_close(tabulated.flat.stats, plain.flat.stats, rtol=0, atol=1e-12)
    x, given = seen[0]
    assert given is None
    assert x.transpose(1, 2).is_contiguous(), "the encoder would have to copy it"
    rows = tabulated.groups.draw_rows(1)[0]
    stale = tabulated.prepared.moments(x, rows)
    right = window_moments(x, kernel)
    untouched = tabulated.prepared.moments(before := tabulated.prepared.gather(rows), rows)
    torch.testing.assert_close(untouched, window_moments(before, kernel))
    assert not torch.allclose(stale.covariance, right.covariance, rtol=1e-3), "this table would have done"


@every
def test_evaluation_sees_windows_as_they_are(name: str) -> None:
    rec = tiny()
    setting = at.Setting(
        **{name: fields(AUGMENTATIONS[name])[0].default}, batch_size=16, checkpoint="last", max_epochs=1
    )
    trainer = trainer_of(rec, setting)
    trainer.train_epoch()

    def refuse(*given: object) -> Tensor:
        raise AssertionError("augmented")

    trainer.augmentation = (refuse,)  # type: ignore[assignment]
    trainer.evaluate()
    with pytest.raises(AssertionError, match="augmented"):
        trainer.train_epoch()


def test_mixup_sees_the_labels_that_training_sees() -> None:
    """In the control subjects are shuffled, for mixup too; held-out subjects are never mixed in."""
    rec = tiny()
    common: dict[str, Any] = {"mixup": 0.5, "batch_size": 16, "method": "mmd"}
    seen: list[TrainingBatch] = []

    def note(x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        seen.append(batch)
        return x

    for shuffled in (False, True):
        trainer = trainer_of(rec, at.Setting(**common, shuffle_subjects=shuffled))
        trainer.augmentation = (note,)  # type: ignore[assignment]
        seen.clear()
        trainer.train_epoch()
        rows = trainer.groups.draw_rows(1)[0]
        assert torch.equal(seen[0].y, rec.y[rows])
        for g, job in enumerate(trainer.jobs):
            ids = np.unique(rec.subject[job.fold.train].numpy())
            same = bool((torch.from_numpy(ids)[seen[0].s[g]] == rec.subject[rows[g]]).all())
            assert same is not shuffled


# ---- as a setting, in grids and runs ---------------------------------------------------------------------------------


def test_without_signals_there_is_nothing_to_change() -> None:
    for other in ({}, {"encoder": "linear"}):
        with pytest.raises(UserError):
            at.Setting(amplitude=0.1, represent="features", **other)
    assert at.Setting(mixup=0.1, represent="features").mixup == 0.1


@pytest.mark.parametrize(
    ("channels", "name", "sfreq", "kind"),
    [
        (["Fz", "C3", "PO8", "EOG"], "p300", 128, "eeg"),
        (["myo1", "myo2"], "gestures", 200, "emg"),
        (["MLII", "V1"], "beats", 180, "ecg"),
        (["BVP", "EDA", "TEMP", "ACCx"], "stress", 16, "wearable"),
        (["a", "b"], "emg_3dc", 500, "emg"),
        (["a", "b"], "memgraph", 500, "other"),
        (["C3", "b"], "x", 500, "other"),  # half is not most
        (["a", "b"], "x", 20, "wearable"),
        (["a", "b"], "x", None, "other"),
    ],
)
def test_what_is_worth_trying_follows_from_what_is_measured(
    channels: list[str], name: str, sfreq: float | None, kind: str
) -> None:
    X = np.random.default_rng(0).standard_normal((12, len(channels), 8))
    who = np.repeat([0, 1, 2], 4)
    assert find_signal(at.Recordings(X, np.tile([0, 1], 6), who, sfreq=sfreq, channels=channels, name=name)) == kind


@every
@pytest.mark.parametrize("value", [0, -0.1, 5.0, float("nan"), float("inf"), "much", True, [0.5]])
def test_values_that_make_no_sense_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"^{name} is "):
        at.Setting(**{name: value})
