"""Training windows turned around their ring at random."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.augment import Augmentation, TrainingBatch
from autotransfer.augment.channel_rotation import ChannelRotation
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.preprocessing import Preprocessing
from tiny import assert_same_outcome, people, preprocessed

CPU = torch.device("cpu")
PLACES = 8

NOBODY = TrainingBatch(torch.zeros(1, 1).long(), torch.zeros(1, 1).long(), 8)  # what a rotation does not ask for


def bound(places: int, rec: at.Recordings | None = None, **values: object) -> Augmentation:
    rec = people(channels=PLACES) if rec is None else rec
    return ChannelRotation(places).bound(rec, Preprocessing.of({"standardise": "none"} | values), CPU)


def keys(n: int) -> torch.Tensor:
    return torch.arange(2 * n, dtype=torch.int32).view(2, n) * 7919


@pytest.mark.parametrize(("places", "turns"), [(1, (7, 0, 1)), (2, (6, 7, 0, 1, 2)), (3, (5, 6, 7, 0, 1, 2, 3)),
                                               (4, range(8)), (50, range(8))])  # fmt: skip
def test_every_turn_comes_equally_often_and_nothing_else_does(places: int, turns: tuple[int, ...]) -> None:
    n = 2000
    x = torch.randn(1, 1, PLACES, 5, generator=torch.Generator().manual_seed(0)).expand(2, n, -1, -1)
    found = bound(places)(x, keys(n), NOBODY)
    counts = {turn: int((found == x.roll(-turn, 2)).all(-1).all(-1).sum()) for turn in range(PLACES)}
    assert sum(counts.values()) == 2 * n, "each window is a turned one"
    assert {turn for turn, count in counts.items() if count} == set(turns)
    share = 2 * n / len(list(turns))
    assert all(abs(counts[turn] - share) < 5 * share**0.5 for turn in turns)


def test_a_ring_has_its_own_order_and_other_channels_stay() -> None:
    rec = people(channels=5)
    rec = at.Recordings(rec.X, rec.y, rec.subject, ring=[4, 0, 2])
    x = torch.arange(5.0)[None, None, :, None].expand(2, 200, 5, 3)
    found = bound(1, rec)(x, keys(200), NOBODY)[..., 0].flatten(0, 1).unique(dim=0)
    assert found.tolist() == [[0, 1, 2, 3, 4], [2, 1, 4, 3, 0], [4, 1, 0, 3, 2]]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"append_scale": True},
        {"delays": 3, "lag": 2},
        {"delays": 2, "append_scale": True, "mu_law": 5.0},
        {"align": "transductive"},
        {"represent": "features"},
        {"standardise": "transductive", "append_scale": True},
    ],
    ids=str,
)
def test_what_transforms_append_turns_with_its_channels(values: dict[str, object]) -> None:
    """Windows turned after the transforms are windows that were turned before them."""
    rec = people(channels=4)
    values = {"standardise": "none"} | values
    x = preprocessed(rec.X.double(), rec.subject, **values)
    found = bound(2, rec, **values)(x[None], keys(len(x))[:1], NOBODY)[0]
    turned = torch.stack([preprocessed(rec.X.double().roll(-turn, 1), rec.subject, **values) for turn in range(4)])
    near = torch.isclose(turned, found, rtol=1e-7, atol=1e-8).all(-1).all(-1)  # (turns, n)
    assert near.any(0).all()
    assert near.any(1).all(), "every turn occurs"


def test_channels_that_are_gone_cannot_be_turned() -> None:
    with pytest.raises(UserError, match=r"of 8 the preprocessing leaves 1; leave out .* represent='tangent'"):
        bound(1, represent="tangent")


def test_without_a_ring_it_is_refused_in_one_line() -> None:
    rec = people()
    plain = at.Recordings(rec.X, rec.y, rec.subject, sfreq=24)
    job = at.Job(at.Setting(channel_rotation=1), at.leave_one_subject_out(plain)[0])
    with pytest.raises(UserError, match=r"channel_rotation=1 needs channels that form a ring.*ring=True"):
        at.train(plain, [job])
    with pytest.raises(UserError, match="no ring is known"):
        ChannelRotation(1)(torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, dtype=torch.int32), NOBODY)
    for wrong, message in (
        (0, "at least 1"),
        (-2, "at least 1"),
        (1.5, "channel_rotation is 1.5"),
        (True, "channel_rotation is True"),
    ):
        with pytest.raises(UserError, match=message):
            at.Setting(channel_rotation=wrong)


def test_a_member_of_a_stack_equals_itself_alone() -> None:
    rec = people(channels=4)
    rec = at.Recordings(rec.X, rec.y, rec.subject, sfreq=24, ring=[0, 1, 2])
    setting = at.Setting(channel_rotation=1, standardise="train", append_scale=True, max_epochs=2, batch_size=16)
    jobs = [at.Job(setting, fold, seed) for seed in (0, 1) for fold in at.leave_one_subject_out(rec)[:2]]
    together = at.train(rec, jobs, "cpu", dtype=torch.float64)
    for place in (0, 3):
        (alone,) = at.train(rec, [jobs[place]], "cpu", dtype=torch.float64)
        assert_same_outcome(alone, together[place], 1e-9)


def test_a_network_learns_what_does_not_turn() -> None:
    """One class is strong at place 3, the other less so at place 0; the person left out wears the band turned by 3. So
    the place misleads, and the strength does not."""
    draw = np.random.default_rng(0)
    subject, y = np.repeat(np.arange(4), 60), np.tile([0, 1], 120)
    scale = np.ones((240, 6, 1))
    scale[y == 0, 0], scale[y == 1, 3] = 4, 7
    X = scale * draw.standard_normal((240, 6, 32))
    X[subject == 3] = np.roll(X[subject == 3], 3, 1)
    rec = at.Recordings(X, y, subject, sfreq=32, ring=True)
    rows = [np.flatnonzero(np.isin(subject, own)) for own in ([0, 1], [2], [3])]
    job = partial(at.Job, fold=Fold(*rows))

    def score(**more: object) -> float:
        setting = at.Setting(encoder="shallow", standardise="none", max_epochs=12, batch_size=32, lr=1e-2, **more)
        return float(at.train(rec, [job(setting)])[0].test_score)

    assert score(channel_rotation=3) > score() + 0.5
