"""Replays of held-out subjects equal sessions and calibrate, and decide what a model uses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.models.adaptation import CENTERING, CLASS_MEANS
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.calibration import LABELS
from autotransfer.models.model import Model
from autotransfer.runs.choice import ReplayResult, read_choice
from autotransfer.search import online_adaptation, replay
from autotransfer.search.labels import SHARES, SHARPNESS, score_trust, select_trust
from autotransfer.search.replay import ORDERS, replay_subject
from autotransfer.settings import Setting
from autotransfer.training.intervals import lower_bound
from autotransfer.training.metrics import balanced_accuracy_of
from tiny import auto_classifier

REC = at.synthetic(n_subjects=6, windows_per_class=24, n_channels=4, n_times=32, subject_shift=1.0)
NEW = 5
ROWS = np.flatnonzero(REC.subject.numpy() == NEW)


@pytest.fixture(scope="module", params=["zero-shot", pytest.param("online", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Model:
    """Two parts, trained on all but one."""
    standardize = {"zero-shot": "train", "online": "online"}[request.param]
    fold = Fold(np.flatnonzero(REC.subject.numpy() != NEW))
    settings = [
        Setting(max_epochs=3, standardize=standardize, checkpoint="last"),
        Setting(encoder="linear", represent="features", standardize="none"),
    ]
    outcomes = at.train(REC, [at.Job(one, fold, 0) for one in settings], "cpu", progress=False)
    trained = zip(settings, outcomes, (0.4, 0.8), strict=True)
    parts = [CandidateFits(setting, [out.final_state], [fold], weight) for setting, out, weight in trained]
    for part in parts:
        for name in [name for name in part.states[0] if name.startswith("censor.")]:
            del part.states[0][name]
    return build_model(REC, parts, scores={})


def test_a_replay_equals_a_session(model: Model) -> None:
    noise = torch.randn(REC.X.shape, generator=torch.Generator().manual_seed(0))
    hard = replace(REC, X=REC.X + 4 * noise)  # to tell ways apart by their scores
    _, _, played_back = replay_subject(model, hard, ROWS)
    y = REC.y.numpy()
    drawn = np.random.default_rng(len(ROWS)).permutation(len(ROWS))
    orders = {"recorded": ROWS, "balanced": ROWS[drawn], "one-sided": ROWS[np.argsort(y[ROWS], kind="stable")]}
    orders["one class first"] = ROWS[replay.make_orders(y[ROWS])["one class first"]]
    for place, order in enumerate(orders.values()):
        model.card = replace(model.card, session_method=CLASS_MEANS)
        for adapt, method in ((True, CLASS_MEANS), (False, "none")):
            said = at.Session(model, adapt=adapt).predict_proba(hard.X[order])
            score = balanced_accuracy_of(said.argmax(1), y[order], REC.n_classes)
            assert played_back.in_order[method][0][place] == pytest.approx(score), (place, adapt)
    assert np.abs(played_back.in_order[CLASS_MEANS] - played_back.in_order["none"]).max() > 0.01


def test_labels_in_a_replay_equal_calibrate(model: Model) -> None:
    (found, trials, _), y = replay_subject(model, REC, ROWS), REC.y.numpy()
    before = model.predict_proba(REC.X[ROWS])
    for labels in LABELS:
        known = np.concatenate([ROWS[y[ROWS] == c][:labels] for c in range(REC.n_classes)])
        left = ~np.isin(ROWS, known)
        rest = ROWS[left]
        score = balanced_accuracy_of(before[left].argmax(1), y[rest], REC.n_classes)
        assert found["before_calibration", str(labels)] == score
        if model.adaptation == "none":  # windows that follow know the labeled ones before them only in a stream
            own = model.calibrate_checked(REC.X[np.sort(known)], torch.from_numpy(y[np.sort(known)]))
            said = own.predict_proba(REC.X[rest])
            whole = trials[str(labels)].score[SHARES.index(1.0)]
            assert whole == balanced_accuracy_of(said.argmax(1), y[rest], REC.n_classes)


FIRST, SECOND = METHODS = [CENTERING, CLASS_MEANS]


def make_gains(first: list[float], second: list[float]) -> online_adaptation.Gains:
    return {FIRST: np.array(first), SECOND: np.array(second)}


def test_the_method_with_the_largest_bound_is_selected() -> None:
    steady, mixed = [0.07] * 8, [0.2, 0.15, 0.1, 0.1, 0.15, -0.1, 0.2, -0.05]
    assert np.mean(mixed) == np.mean(steady) + 0.02375
    assert online_adaptation.select_method(make_gains(steady, mixed)) == FIRST
    assert online_adaptation.select_method(make_gains(mixed, steady)) == SECOND
    assert online_adaptation.select_method(make_gains(mixed, [gain + 0.01 for gain in mixed])) == SECOND


def test_a_method_is_delivered_if_the_gains_of_held_out_subjects_exceed_one_standard_error() -> None:
    def delivered(values: list[float]) -> str:
        return online_adaptation.select_helpful_method(make_gains([0.0] * len(values), values))

    assert delivered([0.1] * 3) == SECOND
    assert delivered([0.1]) == "none", "one subject shows nothing"
    assert delivered([0.1, 0.02, 0.06, 0.0]) == SECOND
    assert delivered([0.1, -0.09, 0.06, -0.05]) == "none"
    assert delivered([-0.1] * 4) == "none"
    one_each = make_gains([0.2, 0.0], [0.0, 0.2])
    assert online_adaptation.select_helpful_method(one_each) == "none", (
        "the method selected without a subject does not help"
    )


def followed(gain: float) -> online_adaptation.AdaptationScores:
    """Return the scores of a subject who gains from class means in every order."""
    scores = {method: np.full((1, len(ORDERS)), 0.5 + own) for method, own in (("none", 0), (SECOND, gain))}
    return online_adaptation.AdaptationScores(scores, {})


def test_no_subject_selects_its_adaptation_method() -> None:
    """One subject loses what the others gain, and is adapted to; the others are not, because of this subject."""
    every = {name: followed(0.2) for name in "abc"} | {"d": followed(-0.4)}
    found = replay.summarize_adaptation(every, dict, lambda _: False)
    assert found["adapted"]["recorded"]["d"] == pytest.approx(0.1)
    assert found["adapted"]["recorded"]["a"] == found["zero_shot"]["recorded"]["a"] == 0.5


@pytest.mark.filterwarnings("ignore:held-out people did not gain by adapt")  # they may, or not
def test_a_run_delivers_methods_that_helped_its_subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card says what choice.json says, and nobody is replayed by a fit that saw them."""
    seen: list[tuple[int, set[int]]] = []
    whole = replay.held_out_model

    def watched(run, weights, person, *more):  # type: ignore[no-untyped-def]
        model = whole(run, weights, person, *more)
        for entry in run.database.entries(records=False):
            if entry.test == person:
                rows = torch.from_numpy(run.job(entry).fold.train)
                seen.append((person, set(run.recordings.subject[rows].tolist())))
        return model

    monkeypatch.setattr(replay, "held_out_model", watched)
    auto = auto_classifier(max_epochs=1, seeds=1, networks="none", kinds="features", run_folder=tmp_path / "run")
    some = REC.subject.numpy() >= 2
    auto.fit(REC.X.numpy()[some], REC.y.numpy()[some], subjects=REC.subject.numpy()[some])
    choice = read_choice(tmp_path / "run")
    assert choice.replay is not None
    card = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    told = choice.replay
    assert card["session_method"] == told.session_method
    assert card["transductive_method"] == told.transductive_method
    assert card["calibrates_with"] == told.calibrates_with
    assert (card["online"] is not None) == told.uses_online_ensemble
    assert told.adapted.keys() == told.zero_shot.keys() == set(ORDERS)
    assert set(told.all_windows) == set(told.adapted["recorded"]) == set(told.zero_shot["recorded"])
    own = REC.X[REC.subject == NEW].numpy()
    assert auto.predict_proba(own, adapt="all").shape == auto.predict_proba(own).shape
    assert auto.model_.adaptation == "none"
    assert {person for person, _ in seen} == set(range(4))
    assert all(person not in people for person, people in seen)
    for scores in choice.replay.zero_shot.values():
        assert scores == choice.nested_test_scores, "the same model on the same windows has one score"


def test_misleading_labels_count_less() -> None:
    """Corrections that are right, and such that are noise many times as large as what the model knows."""
    draw = torch.Generator().manual_seed(0)

    def person(noise: float, gain: float) -> object:
        y = torch.randint(0, 3, (400,), generator=draw)
        truth = torch.nn.functional.one_hot(y, 3).double()
        log_p = (truth + torch.randn(400, 3, generator=draw)).log_softmax(-1)
        return score_trust(log_p, gain * truth + noise * torch.randn(400, 3, generator=draw), y)

    right, _ = select_trust([person(0.1, 2.0) for _ in range(4)])
    assert SHARES[right] >= 0.7
    wrong, _ = select_trust([person(8.0, 0.0) for _ in range(4)])
    assert SHARES[wrong] <= 0.1
    own = person(8.0, 0.5)
    assert own.score[SHARES.index(1.0)] < own.score[0] - 0.05
    some, _ = select_trust([person(4.0, 2.0) for _ in range(4)])
    assert 0 < SHARES[some] < 1, "what is partly right counts in part"
    most, _ = select_trust([*(person(0.1, 2.0) for _ in range(9)), person(60.0, 0.0)])
    assert SHARES[most] >= 0.7, "one person whose labels mislead does not decide for nine"
    assert select_trust([]) == (SHARES.index(1.0), SHARPNESS.index(1.0))


def test_the_bound_of_a_mean_is_that_of_a_t_test() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, (9, 4))
    expected = stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(0.84).low
    np.testing.assert_allclose(lower_bound(values), expected)


def test_harm_is_the_share_of_subjects_that_lose() -> None:
    values = {"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8}
    lower = values | {"a": 0.4, "b": 0.585}
    played = ReplayResult(
        zero_shot={"recorded": values}, adapted={"recorded": lower},
        before_calibration={"1": values}, calibrated={"1": values}, personal={}, calibrates_with=[],
    )  # fmt: skip
    assert played.harm == (0.25, 4)
    assert played.harm_by_labels == {"1": (0.0, 4)}


def test_the_score_of_a_subject_does_not_decide_whether_the_subject_is_adapted_to() -> None:
    every = {name: followed(0.2) for name in "abcd"}
    found = replay.summarize_adaptation(every, dict, lambda name: name in (None, "a"))  # chance level without a
    assert found["adapted"]["recorded"]["a"] == found["zero_shot"]["recorded"]["a"]
    assert found["adapted"]["recorded"]["b"] == pytest.approx(0.7)
    assert found["session_method"] == "none"


@pytest.mark.slow
def test_noise_enables_nothing(tmp_path: Path) -> None:
    """Labels are permuted within subjects; at most one of 20 runs may enable adaptation or calibration."""
    enabled = []
    for seed in range(20):
        rec = at.synthetic(n_subjects=8, windows_per_class=15, n_channels=4, n_times=32, seed=seed)
        draw, y, subject = np.random.default_rng(seed), rec.y.numpy().copy(), rec.subject.numpy()
        for one in np.unique(subject):
            y[subject == one] = draw.permutation(y[subject == one])
        folder = tmp_path / str(seed)
        options = {"networks": "none", "kinds": "linear"}
        auto = at.AutoTransferClassifier(time="none", sfreq=32, run_folder=folder, options=options)
        auto.fit(rec.X.numpy(), y, subjects=subject)
        found = read_choice(folder).replay
        assert found is not None
        enabled += [seed] * bool(found.calibrates_with or {found.session_method, found.transductive_method} != {"none"})
    assert len(enabled) <= 1
