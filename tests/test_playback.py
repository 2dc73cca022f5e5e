"""Held-out people use the model: what is played is what a session and calibrate would do, and it decides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.person.adaptation import WAYS
from autotransfer.person.calibration import LABELS, calibrated
from autotransfer.runs.assembly import Part, assemble_mixture
from autotransfer.runs.choice import read_choice
from autotransfer.runs.mixture import Mixture
from autotransfer.search import following, playback
from autotransfer.search.playback import ORDERS, played
from autotransfer.search.trust import SHARES, SHARPNESS, best, try_all
from autotransfer.settings import Setting
from autotransfer.training.metrics import balanced_accuracy_of

REC = at.synthetic(n_subjects=6, trials_per_class=24, n_channels=4, n_times=32, subject_shift=1.0)
NEW = 5
ROWS = np.flatnonzero(REC.subject.numpy() == NEW)


@pytest.fixture(scope="module", params=["zero-shot", "online"])
def model(request: pytest.FixtureRequest) -> Mixture:
    """Two parts, trained on all but one."""
    standardise = {"zero-shot": "train", "online": "online"}[request.param]
    fold = Fold(np.flatnonzero(REC.subject.numpy() != NEW))
    settings = [
        Setting(max_epochs=3, standardise=standardise, checkpoint="last"),
        Setting(encoder="linear", represent="features", standardise="none"),
    ]
    outcomes = at.train(REC, [at.Job(one, fold, 0) for one in settings], "cpu", progress=False)
    parts = [Part(s, [o.final_state], [fold], e) for s, o, e in zip(settings, outcomes, (0.4, 0.8), strict=True)]
    for part in parts:
        for name in [name for name in part.states[0] if name.startswith("censor.")]:
            del part.states[0][name]
    return assemble_mixture(REC, parts, scores={})


def test_what_is_played_is_what_a_session_does(model: Mixture) -> None:
    _, _, found = played(model, REC, ROWS)
    y = REC.y.numpy()
    drawn = np.random.default_rng(len(ROWS)).permutation(len(ROWS))
    orders = {"recorded": ROWS, "balanced": ROWS[drawn], "one-sided": ROWS[np.argsort(y[ROWS], kind="stable")]}
    for place, order in enumerate(orders.values()):
        for way, name in enumerate(WAYS):
            for k, share in enumerate(following.SHARES):
                model.card = replace(model.card, follows=name, follow_share=share)
                said = at.Session(model, adapt=share > 0).predict_proba(REC.X[order])
                score = balanced_accuracy_of(said.argmax(1), y[order], REC.n_classes)
                assert found.score[way, place, k] == pytest.approx(score, abs=0.03), (name, place, share)
                p = torch.from_numpy(said)
                each = (p - torch.nn.functional.one_hot(torch.from_numpy(y[order]), REC.n_classes)).square().sum(1)
                brier = np.mean([each[y[order] == c].mean() for c in range(REC.n_classes)])
                assert found.loss[way, place, k] == pytest.approx(brier, rel=1e-3), (name, place, share)


def test_labels_are_used_as_calibrate_uses_them(model: Mixture) -> None:
    (found, trials, _), y = played(model, REC, ROWS), REC.y.numpy()
    before = model.predict_proba(REC.X[ROWS])
    for labels in LABELS:
        known = np.concatenate([ROWS[y[ROWS] == c][:labels] for c in range(REC.n_classes)])
        left = ~np.isin(ROWS, known)
        rest = ROWS[left]
        assert found["before", str(labels)] == balanced_accuracy_of(before[left].argmax(1), y[rest], REC.n_classes)
        if model.adaptation == "none":  # windows that follow know the labelled ones before them only in a stream
            own = calibrated(model, REC.X[np.sort(known)], torch.from_numpy(y[np.sort(known)]))
            said = own.predict_proba(REC.X[rest])
            whole = trials[str(labels)].score[SHARES.index(1.0)]
            assert whole == balanced_accuracy_of(said.argmax(1), y[rest], REC.n_classes)


def test_labels_that_people_lose_by_are_not_used() -> None:
    people = {f"P{n}": 0.5 + 0.01 * n for n in range(8)}
    gains = {"1": -0.1, "2": 0.0, "5": 0.1, "10": 0.2}
    after = {k: {name: value + gain for name, value in people.items()} for k, gain in gains.items()}
    assert playback.calibrates(dict.fromkeys(gains, people), after) == [2, 5, 10]


def followed(gains: dict[tuple[str, str, float], float]) -> following.Followed:
    """Somebody who gains by way, order and share, and nothing otherwise."""
    score = np.full((len(WAYS), len(ORDERS), len(following.SHARES)), 0.5)
    for (way, order, share), gain in gains.items():
        score[list(WAYS).index(way), ORDERS.index(order), following.SHARES.index(share)] += gain
    return following.Followed(1 - score, score)


def test_a_way_is_taken_by_what_people_gain_in_all_orders() -> None:
    gains = {("shift", order, 0.5): 0.1 for order in ORDERS}
    gains |= {("statistics", order, 1.0): 0.3 for order in ORDERS}
    taken = following.chosen([followed(gains)] * 3)
    assert taken == (list(WAYS).index("statistics"), following.SHARES.index(1.0))
    # One order is enough to forbid a way, however much is gained in the others.
    gains["statistics", "one-sided", 1.0] = -0.01
    taken = following.chosen([followed(gains)] * 3)
    assert taken == (list(WAYS).index("shift"), following.SHARES.index(0.5))
    # So is a gain that is not clear: half of the people lose what the others gain.
    lost = {key: -0.9 * gain for key, gain in gains.items()}
    _, share = following.chosen([followed(gains), followed(lost)] * 4)
    assert following.SHARES[share] == 0
    _, share = following.chosen([followed({("shift", "balanced", 1.0): -0.1})] * 3)
    assert following.SHARES[share] == 0
    _, share = following.chosen([followed({("shift", order, 0.5): 0.1 for order in ORDERS})])
    assert following.SHARES[share] == 0, "one person alone shows nothing"


def test_nobody_chooses_how_they_are_followed() -> None:
    """One person loses by what the others gain by, and gets it all the same."""
    every = {name: followed({("shift", order, 1.0): 0.2 for order in ORDERS}) for name in "abc"}
    every["d"] = followed({("shift", order, 1.0): -0.4 for order in ORDERS})
    found = playback.orders_of(every)
    assert found["adapted"]["recorded"]["d"] == pytest.approx(0.1)
    assert found["adapted"]["recorded"]["a"] == found["zero_shot"]["recorded"]["a"] == 0.5  # d spoils it for them
    assert found["ways"]["shift"]["balanced"]["a"] == pytest.approx(0.7)


def test_a_run_delivers_what_its_people_gained_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card says what choice.json says, and nobody is played back by a training that saw them."""
    seen: list[tuple[int, set[int]]] = []
    whole = playback.model_without

    def watched(run, candidates, exponents, person):  # type: ignore[no-untyped-def]
        model = whole(run, candidates, exponents, person)
        for entry in run.ledger.entries(records=False):
            if entry.test == person:
                rows = torch.from_numpy(run.job(entry).fold.train)
                seen.append((person, set(run.recordings.subject[rows].tolist())))
        return model

    monkeypatch.setattr(playback, "model_without", watched)
    auto = at.AutoTransferClassifier(epochs=1, seeds=1, run_folder=tmp_path / "run")
    auto.fit(REC.X.numpy(), REC.y.numpy(), subjects=REC.subject.numpy())
    choice = read_choice(tmp_path / "run")
    assert choice.playback is not None
    card = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    told = choice.playback
    assert (card["follows"], card["follow_share"]) == (told.follows, told.follow_share)
    assert card["calibrates"] == told.calibrates
    assert {person for person, _ in seen} == set(range(6))
    assert all(person not in people for person, people in seen)
    assert set(choice.playback.zero_shot["recorded"]) == {str(n) for n in range(6)}


def test_labels_that_mislead_count_less() -> None:
    """Corrections that are right, and such that are noise many times as large as what the model knows."""
    draw = torch.Generator().manual_seed(0)

    def person(noise: float, gain: float) -> object:
        y = torch.randint(0, 3, (400,), generator=draw)
        truth = torch.nn.functional.one_hot(y, 3).double()
        log_p = (truth + torch.randn(400, 3, generator=draw)).log_softmax(-1)
        return try_all(log_p, gain * truth + noise * torch.randn(400, 3, generator=draw), y)

    right, _ = best([person(0.1, 2.0) for _ in range(4)])
    assert SHARES[right] >= 0.7
    wrong, _ = best([person(8.0, 0.0) for _ in range(4)])
    assert SHARES[wrong] <= 0.1
    own = person(8.0, 0.5)
    assert own.score[SHARES.index(1.0)] < own.score[0] - 0.05
    some, _ = best([person(4.0, 2.0) for _ in range(4)])
    assert 0 < SHARES[some] < 1, "what is partly right counts in part"
    most, _ = best([*(person(0.1, 2.0) for _ in range(9)), person(60.0, 0.0)])
    assert SHARES[most] >= 0.7, "one person whose labels mislead does not decide for nine"
    assert best([]) == (SHARES.index(1.0), SHARPNESS.index(1.0))


def test_calibrate_takes_the_share_that_others_gained_by(model: Mixture) -> None:
    y = REC.y.numpy()
    known = np.sort(np.concatenate([ROWS[y[ROWS] == c][:2] for c in range(REC.n_classes)]))
    windows, labels = REC.X[known], torch.from_numpy(y[known])
    whole = calibrated(model, windows, labels)
    card = model.card
    try:
        model.card = replace(card, trust={"2": [0.5, 0.25]})
        half = calibrated(model, windows, labels)
    finally:
        model.card = card
    for part, own, old in zip(half.parts, whole.parts, model.parts, strict=True):
        assert old.correction is None
        torch.testing.assert_close(part.correction.weight, own.correction.weight / 2)
        torch.testing.assert_close(part.correction.bias, own.correction.bias / 2)
    assert half.exponents == pytest.approx([value / 4 for value in model.exponents])
    assert half.card.exponents == half.exponents
    assert half.card.trust == {"2": [0.5, 1.0]}  # further labels sharpen nothing twice
