"""Alignment and running standardisation: known answers, causality, and nothing but training people in the prior."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.recordings import align as align_module
from autotransfer.recordings.align import SHRINKAGE, covariance, inverse_root
from autotransfer.recordings.people import measure
from autotransfer.recordings.running import PRIOR_WINDOWS, Person
from autotransfer.recordings.standardise import standardise
from autotransfer.training.gather import Windows
from autotransfer.training.latent import encode
from autotransfer.training.newcomers import held_out_rows
from autotransfer.training.stream import Stream

CPU = torch.device("cpu")
RUNNING = [
    ("running", "none"),
    ("trial", "running"),
    ("channel", "running"),
    ("running", "running"),
    ("none", "running"),
]
MIXED = [*RUNNING, ("running", "subject"), ("subject", "running")]


def people(n_subjects: int = 5, per: int = 20, channels: int = 3, times: int = 24, seed: int = 0) -> at.Recordings:
    """Everybody mixes and scales the same sources in their own way; trials of people alternate."""
    draw = np.random.default_rng(seed)
    subject = np.tile(np.arange(n_subjects), per)
    y = draw.integers(0, 2, len(subject))
    sources = draw.standard_normal((len(subject), channels, times))
    sources[:, 0] += 2 * np.where(y[:, None], np.sin(np.arange(times) / 2), np.cos(np.arange(times) / 2))
    mixing = np.eye(channels) + 0.5 * draw.standard_normal((n_subjects, channels, channels))
    offset = 3 * draw.standard_normal((n_subjects, channels, 1))
    X = mixing[subject] @ sources + offset[subject]
    return at.Recordings(X, y, subject, sfreq=times)


def windows_of(rec: at.Recordings, kind: str, align: str, cls: type[Windows] = Windows) -> Windows:
    return cls(rec, kind, 0, device=CPU, dtype=torch.float64, align=align)


def prepared(rec: at.Recordings, kind: str, align: str, fold: Fold, cls: type[Windows] = Windows) -> torch.Tensor:
    """Held-out windows of a fold, (n, channels, times), in the order of held_out_rows."""
    found = windows_of(rec, kind, align, cls).newcomers([fold.train], [held_out_rows(fold)])
    assert found is not None
    return found.gather(torch.from_numpy(held_out_rows(fold))[None])[0]


def by_hand(rec: at.Recordings, kind: str, align: str, fold: Fold, person: int) -> np.ndarray:
    """The same by a loop over windows in plain numpy, for one held-out person."""
    X, who = rec.X.double().numpy(), rec.subject.numpy()
    train = np.unique(who[fold.train])

    def second(x: np.ndarray) -> np.ndarray:
        S = x @ x.T / x.shape[1]
        return (1 - SHRINKAGE) * S + SHRINKAGE * np.trace(S) / len(S) * np.eye(len(S))

    def whole(x: np.ndarray) -> np.ndarray:
        if kind == "running":
            return (x - x.mean((0, 2), keepdims=True)) / x.std((0, 2), keepdims=True)
        if kind == "channel":
            own = X[fold.train]
            return (x - own.mean((0, 2))[:, None]) / own.std((0, 2))[:, None]
        if kind == "trial":
            return (x - x.mean(2, keepdims=True)) / x.std(2, keepdims=True)
        return x

    shift0 = np.mean([X[who == s].mean((0, 2)) for s in train], 0)
    variance0 = np.mean([X[who == s].var((0, 2)) for s in train], 0)
    R0 = np.mean([np.mean([second(x) for x in whole(X[who == s])], 0) for s in train], 0)
    m, own, total, out = PRIOR_WINDOWS, X[who == person], np.zeros_like(R0), []
    for i, x in enumerate(own):
        n, seen = i + 1, own[: i + 1]
        if kind == "running":
            shift = (m * shift0 + n * seen.mean((0, 2))) / (m + n)
            variance = (m * variance0 + n * seen.var((0, 2))) / (m + n)
            z = (x - shift[:, None]) / np.sqrt(variance)[:, None]
        else:
            z = whole(x[None])[0]
        if align == "running":
            if kind == "running":
                total = sum(second((w - shift[:, None]) / np.sqrt(variance)[:, None]) for w in seen)
            else:
                total = total + second(z)
            values, vectors = np.linalg.eigh((m * R0 + total) / (m + n))
            z = vectors @ np.diag(values**-0.5) @ vectors.T @ z
        out.append(z)
    return np.stack(out)


# the mathematics


@pytest.mark.parametrize("shrinkage", [0.0, SHRINKAGE])
def test_after_whole_subject_alignment_the_mean_covariance_is_the_identity(
    shrinkage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(align_module, "SHRINKAGE", shrinkage)
    rec = people(channels=6)
    X = rec.X.double()
    found = measure(X, rec.subject, "subject", "subject")
    for person in range(rec.n_subjects):
        rows = (rec.subject == person).nonzero()[:, 0]
        Z = standardise(X, rec.subject, "subject")[rows]
        W, aligned = found.mix[person], found.prepared(X[rows], rows)
        torch.testing.assert_close(W, W.T)
        near = {"atol": 1e-8, "rtol": 0}
        torch.testing.assert_close(W @ covariance(Z).mean(0) @ W, torch.eye(6).double(), **near)
        mean = (aligned @ aligned.mT / 24).mean(0)
        if shrinkage:  # directions without much variance are left small
            assert 1 < torch.linalg.eigvalsh(mean).max() < 1 + 2 * shrinkage
        else:
            torch.testing.assert_close(mean, torch.eye(6).double(), **near)


def test_more_channels_than_rank_stay_finite() -> None:
    """61 channels, 128 samples, an average reference and a flat channel."""
    X = torch.randn(4, 61, 128, generator=torch.Generator().manual_seed(0))
    X = X - X.mean(1, keepdim=True)
    X[:, 7] = 0
    rec_subject = torch.zeros(4, dtype=torch.long)
    found = measure(X, rec_subject, "none", "subject")
    out = found.prepared(X, slice(0, 4))
    assert torch.isfinite(out).all()
    assert out[:, 7].abs().max() < 1e-5
    assert torch.linalg.eigvalsh((out.double() @ out.double().mT / 128).mean(0)).max() < 1.2  # no noise blown up
    assert torch.equal(inverse_root(torch.zeros(2, 3, 3).double()), torch.eye(3).double().expand(2, 3, 3))


@pytest.mark.parametrize(("kind", "align"), RUNNING)
def test_running_is_the_formula(kind: str, align: str) -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[1]
    x, who = prepared(rec, kind, align, fold), rec.subject.numpy()[held_out_rows(fold)]
    assert set(who) == {0, 1}
    for person in (0, 1):
        np.testing.assert_allclose(x[who == person].numpy(), by_hand(rec, kind, align, fold, person), atol=1e-6)


def test_running_comes_close_to_the_whole_person_and_starts_at_the_prior() -> None:
    rec = people(n_subjects=4, per=400, channels=2, times=16)
    fold = at.leave_one_subject_out(rec)[0]
    rows = np.flatnonzero(rec.subject.numpy() == 0)
    found = windows_of(rec, "running", "running").newcomers([fold.train], [rows])
    x = found.gather(torch.from_numpy(rows)[None])[0]
    own = measure(rec.X.double(), rec.subject, "running", "running").prepared(
        rec.X[rows].double(), torch.from_numpy(rows)
    )
    assert (x[-1] - own[-1]).norm() < 0.1 * (x[0] - own[0]).norm()


@pytest.mark.parametrize(("kind", "align"), RUNNING)
@pytest.mark.parametrize("cls", [Windows, Stream])
def test_no_window_changes_an_earlier_one(kind: str, align: str, cls: type[Windows]) -> None:
    rec = people(per=90, n_subjects=3)  # more windows than are worked on at once
    fold = at.leave_one_subject_out(rec)[0]
    X = rec.X.clone()
    held = held_out_rows(fold)
    first, later = held[:100], held[100:]
    X[later] = 7 * torch.randn(X[later].shape, generator=torch.Generator().manual_seed(1)) + 50
    changed = at.Recordings(X, rec.y, rec.subject, sfreq=24)
    before, after = (prepared(data, kind, align, fold, cls) for data in (rec, changed))
    assert torch.equal(before[: len(first)], after[: len(first)])
    assert not torch.allclose(before[len(first) :], after[len(first) :])


@pytest.mark.parametrize(("kind", "align"), MIXED)
def test_pieces_of_any_size_give_the_same_windows(kind: str, align: str) -> None:
    rec = people()
    prior = measure(rec.X.double(), rec.subject, kind, align, rows=torch.arange(60)).prior(torch.arange(60))
    X = rec.X[rec.subject == 0].double()
    whole = Person(kind, align, prior).feed(X)
    if "subject" in (kind, align):
        return  # these look at all windows of a call
    person = Person(kind, align, prior)
    pieces = torch.cat([person.feed(X[i:j]) for i, j in ((0, 1), (1, 2), (2, 9), (9, len(X)))], 1)
    torch.testing.assert_close(whole, pieces, rtol=1e-9, atol=1e-9)


def test_a_flat_channel_stays_at_zero() -> None:
    X = people().X.double().clone()
    X[:, 1] = 3.0
    subject = people().subject
    prior = measure(X, subject, "running", "running").prior(torch.arange(50))
    X[:, 1] = 5.0  # as flat as in training, elsewhere
    out = Person("running", "running", prior).feed(X[subject == 4])
    assert torch.isfinite(out).all()
    assert out[0, :, 1].abs().max() < 1e-6


# who may influence whom


@pytest.mark.parametrize(("kind", "align"), [*MIXED, ("subject", "subject"), ("channel", "subject")])
def test_held_out_people_cannot_influence_training_windows_nor_the_prior(kind: str, align: str) -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[2]
    X, y = rec.X.clone(), rec.y.clone()
    X[held_out_rows(fold)] *= 9
    X[held_out_rows(fold)] += 4
    y[held_out_rows(fold)] = 1 - y[held_out_rows(fold)]
    rows = torch.from_numpy(fold.train)[None]
    seen = []
    for data in (rec, at.Recordings(X, y, rec.subject, sfreq=24)):
        windows = windows_of(data, kind, align)
        seen.append((windows.gather(rows, windows.fit([fold.train])), windows._prior(fold.train)))
    assert torch.equal(seen[0][0], seen[1][0])
    for a, b in zip(seen[0][1], seen[1][1], strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


def test_labels_are_never_read() -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[2]
    other = at.Recordings(rec.X, 1 - rec.y, rec.subject, sfreq=24)
    for kind, align in MIXED:
        assert torch.equal(*(prepared(data, kind, align, fold) for data in (rec, other)))


def test_folds_that_split_a_person_are_refused() -> None:
    rec = people()
    rows = np.arange(rec.n_trials)
    fold = Fold(rows[:50], rows[50:75], rows[75:], "a", "b")
    at.train(rec, [at.Job(at.Setting(max_epochs=1, batch_size=16), fold)], "cpu")
    for setting in (at.Setting(align="running"), at.Setting(standardise="running")):
        with pytest.raises(UserError, match=r"trains on some of subject 0's windows only; .* leave out whole subjects"):
            at.train(rec, [at.Job(setting, fold)], "cpu")


# training


def jobs_of(rec: at.Recordings, kind: str, align: str) -> list[at.Job]:
    common = {"standardise": kind, "align": align, "batch_size": 16}
    settings = [at.Setting(**common, max_epochs=3), at.Setting(**common, method="mmd", max_epochs=2, warm_up=2)]
    return [at.Job(s, fold, seed) for seed in (0, 1) for s in settings for fold in at.leave_one_subject_out(rec)]


@pytest.mark.parametrize(("kind", "align"), [*MIXED, ("trial", "subject"), ("channel", "subject")])
def test_a_member_of_a_stack_equals_itself_alone(kind: str, align: str) -> None:
    rec = people()
    jobs = jobs_of(rec, kind, align)
    together = at.train(rec, jobs, "cpu")
    assert {outcome.population for outcome in together} == {len(jobs)}
    for place in (3, 7):
        (alone,) = at.train(rec, [jobs[place]], "cpu")
        assert alone.history == together[place].history
        assert alone.test_score == together[place].test_score
        for name, tensor in alone.state.items():
            assert torch.equal(tensor, together[place].state[name]), name


@pytest.mark.parametrize(("kind", "align"), MIXED)
def test_windows_read_from_a_file_are_the_same(kind: str, align: str) -> None:
    rec = people()
    folds = at.leave_one_subject_out(rec)[:2]
    held, read = (windows_of(rec, kind, align, cls) for cls in (Windows, Stream))
    rows = torch.from_numpy(np.stack([fold.train[[3, 0, 7, 7, 1]] for fold in folds]))
    near = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(*(w.gather(rows, w.fit([fold.train for fold in folds])) for w in (held, read)), **near)
    for fold in folds:
        torch.testing.assert_close(*(prepared(rec, kind, align, fold, cls) for cls in (Windows, Stream)), **near)


@pytest.mark.parametrize(("kind", "align"), MIXED)
def test_codes_of_held_out_people_are_those_of_the_evaluation(kind: str, align: str) -> None:
    rec = people()
    (outcome,) = at.train(rec, [at.Job(at.Setting(standardise=kind, align=align, max_epochs=4, batch_size=16, lr=1e-2),
                                       at.leave_one_subject_out(rec)[1])], "cpu")  # fmt: skip
    test = outcome.job.fold.test
    _, logits = encode(rec, [outcome], test)
    confusion = np.zeros((2, 2), dtype=int)
    np.add.at(confusion, (rec.y.numpy()[test], logits[0].argmax(-1).numpy()), 1)
    np.testing.assert_array_equal(confusion, outcome.test_confusion)
    _, part = encode(rec, [outcome], test[10:])  # a person's earlier windows count, whether asked for or not
    torch.testing.assert_close(part, logits[:, 10:], rtol=1e-4, atol=1e-4)


def test_warm_up_raises_the_strength_from_nothing() -> None:
    from autotransfer.training.population import warmed_up

    numbers = torch.tensor([0.0, 1.0, 4.0])
    shares = torch.stack([warmed_up(epoch, numbers) for epoch in (1, 2, 3, 5, 9)])
    assert torch.equal(shares, torch.tensor([[1, 0, 0], [1, 1, 0.25], [1, 1, 0.5], [1, 1, 1], [1, 1, 1]]))
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    plain, late, strong = at.train(rec, [at.Job(s, fold) for s in (
        at.Setting(max_epochs=2, batch_size=16, batches="balanced"),
        at.Setting(method="mmd", strength=30, max_epochs=2, batch_size=16, warm_up=1),
        at.Setting(method="mmd", strength=30, max_epochs=2, batch_size=16))], "cpu")  # fmt: skip
    assert plain.history["train_loss"][0] == late.history["train_loss"][0] != strong.history["train_loss"][0]
    assert plain.history["train_loss"][1] != late.history["train_loss"][1]
    assert at.Setting(warm_up=5) == at.Setting()
    with pytest.raises(UserError, match="warm_up is -1"):
        at.Setting(method="mmd", warm_up=-1)
