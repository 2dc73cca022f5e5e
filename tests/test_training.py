"""A member of a stack equals itself alone."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import Fold, make_fold
from autotransfer.jobs import Outcome
from autotransfer.training.metrics import class_weights
from autotransfer.training.packing import pack
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows
from plain_eegnet import PlainEEGNet, copy_member, our_name


def ragged(n_subjects: int = 7, seed: int = 0, n_classes: int = 3) -> at.Recordings:
    """Subjects with very different numbers of windows, and one who lacks a class."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(14, 40, n_subjects)
    subject = np.repeat(np.arange(n_subjects), sizes)
    y = generator.integers(0, n_classes, len(subject))
    y[(subject == 2) & (y == 1)] = 0
    X = generator.standard_normal((len(subject), 3, 40))
    X[:, 0] += y[:, None] * np.sin(np.arange(40) / 3)
    return at.Recordings(X, y, subject, sfreq=32)


def unlearnable() -> at.Recordings:
    """Labels that nothing can be learned from but by heart, so that the lowest validation loss is an early one."""
    recordings = ragged()
    y = np.random.default_rng(1).permutation(recordings.y.numpy())
    return at.Recordings(recordings.X, y, recordings.subject, sfreq=32)


def assert_same(a: Outcome, b: Outcome, tolerance: float) -> None:
    assert a.best_epoch == b.best_epoch
    assert a.validation_score == pytest.approx(b.validation_score, abs=tolerance)
    assert a.test_score == pytest.approx(b.test_score, abs=tolerance)
    for name, values in a.history.items():
        np.testing.assert_allclose(values, b.history[name], atol=tolerance, rtol=0, err_msg=name)
    for states in ((a.state, b.state), (a.final_state, b.final_state)):
        assert states[0].keys() == states[1].keys()
        for name, tensor in states[0].items():
            if tolerance == 0:
                assert torch.equal(tensor, states[1][name]), name
            else:
                torch.testing.assert_close(tensor, states[1][name], atol=tolerance, rtol=0)


def many_jobs(recordings: at.Recordings, epochs: int = 3) -> list[at.Job]:
    """32 members on unequal folds with several seeds, plain and censored ones mixed."""
    settings = [
        at.Setting(max_epochs=epochs, batch_size=16),
        at.Setting(max_epochs=epochs, batch_size=16, lr=3e-3, dropout=0.5, weight_decay=0.1),
        at.Setting(method="mmd", mode="conditional", strength=0.5, max_epochs=epochs, batch_size=16),
        at.Setting(method="adversary", mode="marginal", strength=0.3, max_epochs=epochs, batch_size=16),
    ]
    folds = at.leave_one_subject_out(recordings)
    jobs = [at.Job(s, f, seed) for seed in (0, 1) for s in settings for f in folds]
    return jobs[3 : 3 + 32]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [pytest.param(torch.float64, 1e-9, marks=pytest.mark.slow), (torch.float32, 0)]
)
def test_a_member_of_32_equals_itself_alone(dtype: torch.dtype, tolerance: float) -> None:
    recordings = ragged()
    jobs = many_jobs(recordings)
    assert len({len(job.fold.train) // 16 for job in jobs}) > 1, "the folds must have unequal numbers of batches"
    together = at.train(recordings, jobs, device="cpu", dtype=dtype)
    assert all(outcome.population == 32 for outcome in together)
    for position in (0, 5, 13, 20, 31) if dtype == torch.float32 else (5, 20):
        (alone,) = at.train(recordings, [jobs[position]], device="cpu", dtype=dtype)
        assert alone.population == 1
        assert_same(alone, together[position], tolerance)


def replace_setting(job: at.Job, **changes: object) -> at.Job:
    return at.Job(replace(job.setting, **changes), job.fold, job.seed)


@pytest.mark.parametrize(
    ("channels", "times", "batch"),
    [(4, 64, 32), *(pytest.param(*own, marks=pytest.mark.slow) for own in ((3, 100, 23), (8, 128, 128)))],
)
def test_a_member_alone_equals_one_of_two_of_three_and_of_five(channels: int, times: int, batch: int) -> None:
    """With the filters of a usual rate, of 64 samples: products with a vector round by how many there are."""
    recordings = at.synthetic(n_subjects=4, windows_per_class=6, n_channels=channels, n_times=times, sfreq=128.0)
    (fold, *_) = at.leave_one_subject_out(recordings)
    settings = [at.Setting(max_epochs=1, batch_size=batch, **penalty) for penalty in (
        {}, {"method": "adversary", "mode": "marginal", "strength": 1.0})]  # fmt: skip
    for setting in settings:
        (alone,) = at.train(recordings, [at.Job(setting, fold)], device="cpu")
        for members in (2, 3, 5):
            first, *_ = at.train(recordings, [at.Job(setting, fold, seed) for seed in range(members)], device="cpu")
            assert (alone.population, first.population) == (1, members)
            assert_same(alone, first, 0)


def test_members_that_finish_early_leave_and_change_nothing() -> None:
    recordings = ragged()
    jobs = [replace_setting(job, max_epochs=2 + index % 3) for index, job in enumerate(many_jobs(recordings)[:24:3])]
    together = at.train(recordings, jobs, device="cpu")
    assert [outcome.epochs for outcome in together] == [job.setting.max_epochs for job in jobs]
    for job, outcome in zip(jobs[2:6], together[2:6], strict=True):  # of every length
        (alone,) = at.train(recordings, [job], device="cpu")
        assert_same(alone, outcome, 0)


DECAYS = {"inverse_sqrt": [1.0, 2**-0.5, 3**-0.5], "constant": [1.0, 1.0, 1.0]}  # of the rates in three epochs


def by_hand(recordings: at.Recordings, job: at.Job, decays: list[float]) -> dict[str, torch.Tensor]:
    """What a plain loop over torch's own layers and optimizers makes of one adversary, from the same first weights and
    the same minibatches."""
    setting, rows = job.setting, torch.from_numpy(job.fold.train)
    windows = prepare_windows(recordings, job, device=torch.device("cpu"), dtype=torch.float64)
    start = Trainer([job], windows)
    kernel = start.net.temporal.shape[-1]
    net = PlainEEGNet(recordings.n_channels, recordings.n_times, kernel).double().train()
    copy_member(net, start.net, 0)
    head = torch.nn.Linear(start.net.latent_dim, recordings.n_classes).double()
    head.load_state_dict({name: tensor[0] for name, tensor in start.classifier.state_dict().items()})
    (path,) = start.censors.paths
    censor = copy.deepcopy(path.censor)
    main = torch.optim.AdamW([*net.parameters(), *head.parameters()], weight_decay=setting.weight_decay)
    critics = torch.optim.AdamW(censor.parameters(), weight_decay=setting.weight_decay)
    weight = 1 / torch.bincount(recordings.y[rows]).double()
    for epoch, decay in enumerate(decays, start=1):
        main.param_groups[0]["lr"], critics.param_groups[0]["lr"] = setting.lr * decay, setting.critic_lr * decay
        for batch in start.groups.draw_rows(epoch)[:, 0]:
            y, s = recordings.y[batch], start.groups.subject_index[0, batch]
            z = net(recordings.X[batch].double())
            critics.zero_grad()
            censor.critic_loss(z.detach()[None], y[None], s[None]).sum().backward()
            critics.step()
            main.zero_grad()
            task = torch.nn.functional.cross_entropy(head(z), y, weight=weight)
            (task + setting.strength * censor(z[None], y[None], s[None]).sum()).backward()
            main.step()
            censor.after_step()
    found = {f"encoder.{our_name(name)}": tensor for name, tensor in net.state_dict().items()}
    found |= {f"classifier.{name}": tensor for name, tensor in head.state_dict().items()}
    found |= {f"censor.{name}": tensor[0] for name, tensor in censor.state_dict().items()}
    return {name: tensor for name, tensor in found.items() if not name.endswith("num_batches_tracked")}


def test_both_schedules_equal_a_plain_loop_for_the_network_and_its_critic() -> None:
    recordings = ragged()
    fold = at.leave_one_subject_out(recordings)[0]
    base = at.Setting(method="adversary", strength=0.3, max_epochs=3, batch_size=16, standardize="none", dropout=0.0)
    jobs = [at.Job(replace(base, schedule=schedule), fold) for schedule in DECAYS]
    together = at.train(recordings, jobs, device="cpu", dtype=torch.float64)
    assert {outcome.population for outcome in together} == {2}
    for job, outcome, decays in zip(jobs, together, DECAYS.values(), strict=True):
        expected = by_hand(recordings, job, decays)
        assert expected.keys() == outcome.final_state.keys()
        for name, tensor in expected.items():
            found = outcome.final_state[name].reshape(tensor.shape)
            torch.testing.assert_close(found, tensor, atol=1e-7, rtol=0, msg=lambda m, n=name: f"{n}: {m}")
    falling, constant = (outcome.final_state for outcome in together)
    for name in ("encoder.spatial", "classifier.weight", *(n for n in falling if n.startswith("censor.methods."))):
        assert (falling[name] - constant[name]).abs().max() > 1e-4, f"{name} must tell the schedules apart"


def test_patience_ends_a_member() -> None:
    recordings = ragged()
    fold = at.leave_one_subject_out(recordings)[0]
    setting = at.Setting(max_epochs=60, patience=2, batch_size=16, lr=0.02)
    (outcome,) = at.train(recordings, [at.Job(setting, fold)], device="cpu")
    assert outcome.epochs < 60
    best = max(outcome.best_epoch, outcome.swapped.best_epoch)  # training also waits for the swapped checkpoint
    assert outcome.epochs == best + 2


def test_best_epoch_is_the_lowest_validation_loss_and_its_scores_are_reported() -> None:
    recordings = ragged()
    fold = at.leave_one_subject_out(recordings)[1]
    (outcome,) = at.train(recordings, [at.Job(at.Setting(max_epochs=12, batch_size=16, lr=0.01), fold)], device="cpu")
    losses = outcome.history["validation_loss"]
    assert len(losses) == 12
    assert outcome.best_epoch == int(np.argmin(losses)) + 1
    assert outcome.validation_score == pytest.approx(outcome.history["validation_score"][outcome.best_epoch - 1])
    # Measured again from the stored weights, through another path.
    from sklearn.metrics import balanced_accuracy_score

    for rows, score in ((fold.validation, outcome.validation_score), (fold.test, outcome.test_score)):
        _, logits = at.encode(recordings, [outcome], rows)
        truth = recordings.y.numpy()[rows]
        assert score == pytest.approx(balanced_accuracy_score(truth, logits[0].argmax(-1).numpy()))
        weight = class_weights(torch.bincount(recordings.y[fold.train]).double())
        if rows is fold.validation:
            loss = torch.nn.functional.cross_entropy(logits[0].double(), recordings.y[rows], weight=weight)
            assert loss.item() == pytest.approx(min(losses), abs=1e-5)


def test_the_last_epoch_is_kept_if_the_setting_says_so() -> None:
    recordings = unlearnable()
    fold = at.leave_one_subject_out(recordings)[5]
    best = at.Setting(max_epochs=8, batch_size=16, lr=0.02, schedule="constant")
    last = replace(best, checkpoint="last", patience=1)
    first, second = at.train(recordings, [at.Job(best, fold), at.Job(last, fold)], device="cpu")
    for name, tensor in first.final_state.items():
        assert torch.equal(tensor, second.final_state[name]), f"{name}: what is kept must not change the training"
    assert max(first.best_epoch, first.swapped.best_epoch) < 8, "the best epoch must be another"
    for outcome in (second, second.swapped):
        assert outcome.best_epoch == outcome.epochs == len(outcome.history["validation_score"]) == 8
        assert outcome.validation_score == pytest.approx(outcome.history["validation_score"][-1])
        assert outcome.state.keys() == outcome.final_state.keys()
        for name, tensor in outcome.state.items():
            assert torch.equal(tensor, outcome.final_state[name]), name
    assert second.test_score == second.swapped.validation_score, "both scores are of one checkpoint"
    np.testing.assert_array_equal(second.test_confusion, second.swapped.validation_confusion)


def test_weights_that_become_nan_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do so after the last step of the fourth epoch; the third is the last one that can be used."""
    recordings = unlearnable()
    fold = at.leave_one_subject_out(recordings)[5]
    setting = at.Setting(max_epochs=6, batch_size=16, lr=0.02, schedule="constant", checkpoint="last")
    (three,) = at.train(recordings, [at.Job(replace(setting, max_epochs=3), fold)], device="cpu")
    real = Trainer.train_epoch

    def train_epoch(population: Trainer) -> None:
        real(population)
        if population.epoch == 4:
            population.flat.values[:] = torch.nan

    monkeypatch.setattr(Trainer, "train_epoch", train_epoch)
    (outcome,) = at.train(recordings, [at.Job(setting, fold)], device="cpu")
    assert outcome.failure == "the weights became nan in epoch 4"
    assert outcome.final_state["classifier.weight"].isnan().all()
    for ruined, expected in ((outcome, three), (outcome.swapped, three.swapped)):
        assert ruined.best_epoch == expected.best_epoch == 3
        assert ruined.validation_score == expected.validation_score
        assert ruined.test_score == expected.test_score
        for name, tensor in expected.state.items():
            assert torch.equal(tensor, ruined.state[name]), name


def test_the_swapped_pair_is_the_same_trajectory() -> None:
    recordings = ragged()
    fold = at.leave_one_subject_out(recordings)[2]
    setting = at.Setting(max_epochs=6, batch_size=16, lr=0.01)
    first, second = at.train(recordings, [at.Job(setting, fold), at.Job(setting, fold.swapped())], device="cpu")
    assert first.population == second.population == 1  # one training served both
    assert second.job.fold.test_subject == fold.validation_subject
    assert first.swapped.validation_score == second.validation_score
    (alone,) = at.train(recordings, [at.Job(setting, fold.swapped())], device="cpu")
    assert_same(alone, second, 0)
    assert alone.swapped.test_score == first.test_score


def test_test_and_validation_labels_do_not_move_the_weights() -> None:
    recordings = ragged()
    fold = at.leave_one_subject_out(recordings)[0]
    y = recordings.y.clone()
    held_out = np.concatenate([fold.validation, fold.test])
    y[held_out] = (y[held_out] + 1) % 3
    corrupted = at.Recordings(recordings.X, y, recordings.subject, sfreq=32)
    setting = at.Setting(method="mmd", strength=1, max_epochs=3, batch_size=16)
    (a,) = at.train(recordings, [at.Job(setting, fold)], device="cpu")
    (b,) = at.train(corrupted, [at.Job(setting, fold)], device="cpu")
    for name, tensor in a.final_state.items():
        assert torch.equal(tensor, b.final_state[name]), name
    assert a.history["validation_loss"] != b.history["validation_loss"]


def test_a_member_whose_loss_is_not_finite_fails_alone() -> None:
    recordings = ragged()
    folds = at.leave_one_subject_out(recordings)[:2]
    good = at.Setting(max_epochs=3, batch_size=16)
    bad = at.Setting(max_epochs=3, batch_size=16, lr=1e30)
    jobs = [at.Job(good, folds[0]), at.Job(bad, folds[0]), at.Job(good, folds[1])]
    outcomes = at.train(recordings, jobs, device="cpu")
    assert outcomes[0].failure is None
    assert outcomes[2].failure is None
    assert "training loss became" in outcomes[1].failure
    (alone,) = at.train(recordings, [jobs[2]], device="cpu")
    assert_same(alone, outcomes[2], 0)


def test_fewer_rows_than_a_batch() -> None:
    recordings = ragged()
    subject = recordings.subject.numpy()
    rows = np.flatnonzero(subject < 2)[:10]
    fold = Fold(rows, np.flatnonzero(subject == 3), np.flatnonzero(subject == 4), 3, 4)
    (outcome,) = at.train(recordings, [at.Job(at.Setting(max_epochs=2), fold)], device="cpu")
    assert math.isfinite(outcome.history["train_loss"][-1])


def test_packing_by_program_and_memory() -> None:
    recordings = ragged()
    jobs = many_jobs(recordings)
    other = [replace_setting(job, temporal_kernel=5) for job in jobs[:3]]
    packs = pack(recordings, [*jobs, *other], "auto", device=torch.device("cpu"), dtype=torch.float32)
    assert sorted(map(len, packs)) == [3, 32]
    assert sorted(position for positions in packs for position in positions) == list(range(35))
    assert max(map(len, pack(recordings, jobs, 5, device=torch.device("cpu"), dtype=torch.float32))) == 5
    with pytest.raises(UserError, match="population is 0"):
        at.train(recordings, jobs, population=0)


def test_folds_that_hold_out_one_set_or_nobody() -> None:
    """The weights depend on the training rows alone; what is not held out has no score."""
    recordings = ragged()
    fold = make_fold(recordings, 0, 1)
    setting = at.Setting(max_epochs=3, batch_size=16)
    jobs = [at.Job(setting, fold), at.Job(setting, Fold(fold.train, fold.validation, validation_subject=0))]
    both, one = at.train(recordings, jobs, device="cpu")
    (nobody,) = at.train(recordings, [at.Job(setting.replace(checkpoint="last"), Fold(fold.train))], device="cpu")
    assert one.validation_score == both.validation_score
    assert one.best_epoch == both.best_epoch
    assert math.isnan(one.test_score)
    assert one.swapped is None
    assert math.isnan(nobody.validation_score)
    for name, tensor in both.final_state.items():
        assert torch.equal(tensor, one.final_state[name]), name
        assert torch.equal(tensor, nobody.final_state[name]), name


def test_the_layout_of_an_array_does_not_matter() -> None:
    """Recordings keep a float32 array as it is, whatever its strides."""
    recordings = ragged()
    X = np.asfortranarray(recordings.X.numpy())
    other = at.Recordings(X, recordings.y, recordings.subject, sfreq=recordings.sfreq)
    assert not other.X.is_contiguous()
    job = at.Job(at.Setting(standardize="train", max_epochs=2, batch_size=16), make_fold(recordings, 0, 1))
    (first,), (second,) = (at.train(rec, [job], device="cpu") for rec in (recordings, other))
    assert first.history == second.history


def test_foreign_and_overlapping_folds_are_refused() -> None:
    recordings = ragged()
    fold = make_fold(recordings, 0, 1)
    for wrong in (
        Fold(fold.train, fold.validation, fold.test + 10_000, 0, 1),
        Fold(fold.train, fold.validation, fold.train[:3]),
        Fold(fold.train, fold.train[2:5], fold.test),
        Fold(fold.train),
    ):
        with pytest.raises(UserError):
            at.train(recordings, [at.Job(at.Setting(), wrong)])
    for jobs in (None, [at.Setting()], at.Job(at.Setting(), fold)):
        with pytest.raises(UserError):
            at.train(recordings, jobs)


def test_training_works_where_gradients_are_off() -> None:
    recordings = ragged()
    job = at.Job(at.Setting(max_epochs=1), make_fold(recordings, 0, 1))
    (expected,) = at.train(recordings, [job], device="cpu")
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            (found,) = at.train(recordings, [job], device="cpu")
        assert_same(found, expected, 0)
