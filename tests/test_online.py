"""The online ensemble starts at the training subjects and adapts by unlabeled windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.models.adaptation import CENTERED_CLASS_MEANS, CENTERING, CLASS_MEANS, METHODS, NO_ADAPTATION
from autotransfer.models.building import CandidateFits, add_online_ensemble, build_model
from autotransfer.models.loading import load_model
from autotransfer.models.model import Model
from autotransfer.runs.preparation import Preparation
from autotransfer.search import online_adaptation, replay
from autotransfer.search.online_adaptation import AdaptationScores
from autotransfer.search.plan import Stage, make_plan
from autotransfer.search.replay import ORDERS
from autotransfer.settings import Setting
from autotransfer.training.centering import MAX_DISTANCE, PRIOR_WINDOWS, Centering, OnlineCentering, fit_centering
from ensembles import alone
from tiny import described

REC = at.synthetic(n_subjects=6, windows_per_class=20, n_channels=4, n_times=32, subject_shift=1.0)
NEW = 5
FOLD = Fold(np.flatnonzero(REC.subject.numpy() != NEW))
ROWS = np.flatnonzero(REC.subject.numpy() == NEW)
OWN, Y = REC.X[ROWS], REC.y.numpy()[ROWS]
LINEAR = {"encoder": "linear", "standardize": "none"}
PLAIN = Setting(**LINEAR, represent="features")
CENTERED = [Setting(**LINEAR, represent=name, center="online") for name in ("features", "tangent")]
EXPONENTS = (0.3, 0.5, 0.4)


def made(method: str = CENTERING) -> Model:
    """Return a model of one zero-shot candidate, with an online ensemble of it and two centered candidates."""
    outcomes = at.train(REC, [at.Job(one, FOLD, 0) for one in (PLAIN, *CENTERED)], "cpu", progress=False)
    states = [{k: t for k, t in own.final_state.items() if not k.startswith("censor.")} for own in outcomes]
    first, *others = (
        CandidateFits(setting, [state], [FOLD], weight)
        for setting, state, weight in zip((PLAIN, *CENTERED), states, EXPONENTS, strict=True)
    )
    model = build_model(REC, [first._replace(weight=0.8)], scores={})
    model = add_online_ensemble(REC, model, EXPONENTS[:1], others)
    model.card = replace(model.card, session_method=method, transductive_method=method)
    return model


@pytest.fixture(scope="module")
def model() -> Model:
    return made()


# ---- the offset ------------------------------------------------------------------------------------------------------


def test_statistics_of_training_subjects_equal_a_loop() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(60, 3, generator=draw), torch.tensor([0.3, -0.2, 0.5])
    y, people = torch.arange(60) % 3, torch.arange(60) // 20
    found = fit_centering(logits, reference, y, people)
    even = reference - reference.mean()
    u = (logits - logits.mean(1, keepdim=True) - even).double().numpy()
    cells = {(s, c): u[((people == s) & (y == c)).numpy()] for s in range(3) for c in range(3)}
    means = {key: own.mean(0) for key, own in cells.items()}
    of_person = [np.mean([means[s, c] for c in range(3)], 0) for s in range(3)]
    within = np.mean([np.square(own - means[key]).sum(1).mean() for key, own in cells.items()])
    between = np.mean([np.square(own - of_person[s]).sum() for (s, _), own in means.items()])
    classes = [np.mean([means[s, c] for s in range(3)], 0) for c in range(3)]
    expected = (even.numpy()[None], np.stack(classes)[None], [within], [between], [np.linalg.norm(u, axis=1).max()])
    for own, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(own.numpy(), np.asarray(value), rtol=1e-6, atol=1e-6)


def simple(n_classes: int = 3) -> Centering:
    """One member; classes lie at the corners of a simplex about the reference 0."""
    corners = 2 * (torch.eye(n_classes) - 1 / n_classes).double()
    between = corners.square().sum(1).mean()
    return Centering(torch.zeros(1, n_classes).double(), corners[None], torch.tensor([0.1]).double(), between[None],
                    torch.tensor([9.0]).double())  # fmt: skip


def shown(labels: list[int], shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The offset after windows of these classes, which lie at their corners plus a shift; and the shift's part in u."""
    centering = simple()
    centered = OnlineCentering(centering)
    known, noise = centered.initial_state(), np.random.default_rng(0)
    for label in labels:
        u = centering.classes.numpy()[:, label] + shift + 0.1 * noise.standard_normal(3)
        known = centered.update(known, u - u.mean(-1, keepdims=True), np.eye(3)[label])
    return centered.offset(known)[0], shift - shift.mean()


def test_a_new_subject_starts_at_the_training_subjects() -> None:
    centered = OnlineCentering(simple())
    assert np.array_equal(centered.offset(centered.initial_state()), np.zeros((1, 3)))


def test_a_shift_is_learned_from_windows_of_all_classes() -> None:
    found, shift = shown([0, 1, 2] * 60, np.array([1.5, 0.0, -1.0]))
    np.testing.assert_allclose(found, shift * 180 / (180 + PRIOR_WINDOWS), atol=0.02)


def test_one_class_alone_moves_little() -> None:
    """A subject like the training subjects shows one class alone; so does a shifted subject."""
    far = np.linalg.norm(simple().classes[0, 0])
    assert np.linalg.norm(shown([0] * 200, np.zeros(3))[0]) < 0.1 * far
    assert np.linalg.norm(shown([0] * 200, np.array([1.0, 0.0, -1.0]))[0]) < 0.2, "it waits for more classes"


def test_a_window_unlike_any_other_is_not_learned_from() -> None:
    centered = OnlineCentering(simple())
    known = centered.update(centered.initial_state(), np.array([[1.0, 0.0, -1.0]]), np.ones(3) / 3)
    wild = np.array([[1.0, 0.0, -1.0]]) * (MAX_DISTANCE * 9.0)
    after = centered.update(known, wild, np.ones(3) / 3)
    assert all(np.array_equal(after[name], own) for name, own in known.items())


# ---- a subject and the model
# ------------------------------------------------------------------------------------------


def test_an_online_session_equals_a_loop_over_windows() -> None:
    """By hand: the logits of each centered candidate minus δ of the earlier windows, as training/centering.py says."""
    model = made()
    found = at.Session(model, adapt=True).predict_proba(OWN)
    fixed = 0.3 * np.log(alone(model)[0].predict_proba(OWN))
    logits, parameters = [], []
    for candidate in model.online_candidates:
        windows = candidate.preprocessing.start_subject().feed(OWN)[0]  # already less the training subjects' center
        members = candidate.members
        logits.append(members.classifier(members.net(windows))[0].detach().double().numpy())
        assert candidate.centering is not None
        parameters.append([tensor[0].double().numpy() for tensor in candidate.centering])
    offsets = [np.zeros(REC.n_classes)] * len(logits)
    windows, expected = [[] for _ in logits], []
    p: list[np.ndarray] = []
    for n, log_p in enumerate(fixed.copy()):
        for own, weight, offset in zip(logits, EXPONENTS[1:], offsets, strict=True):
            shifted = own[n] - offset
            log_p += weight * (shifted - np.log(np.exp(shifted).sum()))
        p.append(np.exp(log_p) / np.exp(log_p).sum())
        expected.append(p[-1])
        for k, (own, (reference, classes, within, between, _)) in enumerate(zip(logits, parameters, strict=True)):
            windows[k].append(own[n] - own[n].mean() - reference)
            u, counts = np.array(windows[k]), np.sum(p, 0)
            variance = np.square(u).sum(1).mean() - np.square(u.mean(0)).sum()
            r = np.clip((variance - within) / between, 0, 1)
            deviation = u.sum(0) - (1 - r) * sum(count * mean for count, mean in zip(counts, classes, strict=True))
            offsets[k] = r * deviation / (PRIOR_WINDOWS + r * len(u))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.abs(found - at.Session(model).predict_proba(OWN)).max() > 0.05


def test_windows_in_any_pieces_and_from_disk_are_one_stream(model: Model, tmp_path: Path) -> None:
    together = at.Session(model, adapt=True).predict_proba(OWN)
    session = at.Session(model, adapt=True)
    first = [session.predict_proba(window) for window in OWN[:17]]
    session.save(tmp_path / "ann.session")
    model.save(tmp_path / "model")
    again = at.Session.load(tmp_path / "ann.session", load_model(tmp_path / "model"))
    assert again.n_windows == 17
    rest = again.predict_proba(OWN[17:])
    np.testing.assert_array_equal(rest, session.predict_proba(OWN[17:]))
    np.testing.assert_allclose(np.concatenate([np.stack(first), rest]), together, atol=1e-6)
    assert np.abs(together - model.predict_proba(OWN)).max() > 0.05, "windows matter"
    session.reset()
    np.testing.assert_allclose(session.predict_proba(OWN), together, atol=1e-6)


def test_labels_calibrate_an_online_session(model: Model) -> None:
    """Windows that were answered can be labeled; the session is then that of the calibrated model."""
    first = np.sort(np.concatenate([np.flatnonzero(c == Y)[:3] for c in range(REC.n_classes)]))
    session = at.Session(model, adapt=True)
    session.predict_proba(OWN[first])
    session.label(OWN[first], session.classes_[Y[first]])
    assert session.n_windows == len(first), "no window was counted twice"
    rest = np.setdiff1d(np.arange(len(OWN)), first)
    own = model.calibrate_checked(OWN[first], torch.from_numpy(Y[first]))
    np.testing.assert_allclose(session.predict_proba(OWN[rest]), own.predict_proba(OWN[rest]), atol=1e-5)
    with pytest.raises(UserError, match="is calibrated"):
        own.predict_proba(OWN, adapt="all")


def test_a_session_that_does_not_adapt_is_zero_shot(model: Model) -> None:
    np.testing.assert_allclose(at.Session(model).predict_proba(OWN), model.predict_proba(OWN), atol=1e-5)
    assert model.adaptation == "none"


def test_transductive_predictions_do_not_depend_on_the_order(model: Model) -> None:
    other = REC.X[REC.subject == 0]
    X, who = torch.cat([OWN, other]), ["new"] * len(OWN) + ["other"] * len(other)
    found = model.predict_proba(X, who, adapt="all")
    np.testing.assert_allclose(found[: len(OWN)], model.predict_proba(OWN, adapt="all"), atol=1e-6)
    drawn = np.random.default_rng(0).permutation(len(X))
    mixed = model.predict_proba(X[drawn], [who[k] for k in drawn], adapt="all")
    np.testing.assert_allclose(mixed, found[drawn], atol=1e-5)
    assert np.abs(found - model.predict_proba(X)).max() > 0.05


def test_a_subject_may_have_one_window(model: Model) -> None:
    one = model.predict_proba(OWN[:1], adapt="all")
    together = model.predict_proba(
        torch.cat([OWN[:1], REC.X[REC.subject == 0]])[:9], ["new"] + 8 * ["other"], adapt="all"
    )
    assert one.shape == (1, 2)
    np.testing.assert_allclose(together[:1], one, atol=1e-6)


# ---- held-out subjects decide
# ------------------------------------------------------------------------------------------


def test_methods_evaluated_together_equal_single_methods(model: Model) -> None:
    both, orders = model.online_ensemble(CENTERED_CLASS_MEANS), list(replay.make_orders(Y).values())
    said = both.predict_zero_shot(OWN)
    for with_class_means, by_order in enumerate(both.predict_in_orders(said, orders)):
        for order, found in zip(orders, by_order, strict=True):
            in_order = type(said)(said.fixed_log_p[order], said.logits[order], [z[:, order] for z in said.latents])
            class_means = both.start_class_means() if with_class_means else None
            expected, _ = both.predict_next(in_order, both.centered.initial_state(), class_means)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_replay_equals_a_session_and_a_prediction(model: Model, method: str) -> None:
    _, _, found = replay.replay_subject(model, REC, ROWS)
    own = made(method)
    for place, order in enumerate(replay.make_orders(Y).values()):
        said = at.Session(own, adapt=True).predict_proba(OWN[order])
        score = np.mean([np.mean(said.argmax(1)[Y[order] == c] == c) for c in range(REC.n_classes)])
        assert found.in_order[method][0, place] == pytest.approx(score)
    right = own.predict_proba(OWN, adapt="all").argmax(1) == Y
    expected = np.mean([right[c == Y].mean() for c in range(REC.n_classes)])
    assert found.all_windows[method].item() == pytest.approx(expected)


@pytest.mark.parametrize("method", [CENTERING, CENTERED_CLASS_MEANS])
def test_a_method_of_the_online_ensemble_needs_one(model: Model, method: str) -> None:
    for name in ("session_method", "transductive_method"):
        with pytest.raises(UserError, match="no online ensemble"):
            replace(model.card, **{"online": None, "session_method": None, "transductive_method": None, name: method})


def test_class_means_without_effects_are_refused_in_one_line(model: Model) -> None:
    bare = [replace(candidate, effects=None) for candidate in model.candidates]
    for own, online in ((bare, model.online_candidates), (model.candidates, [])):
        others = online or [replace(candidate, effects=None) for candidate in model.online_candidates]
        card = replace(model.card, session_method=CENTERED_CLASS_MEANS, transductive_method=CENTERED_CLASS_MEANS)
        broken = Model(card, own, others)
        for use in (lambda m: m.predict_proba(OWN, adapt="all"), lambda m: at.Session(m, adapt=True)):
            with pytest.raises(UserError, match="no subject effects"):
                use(broken)


def test_a_calibrated_model_is_not_centered(model: Model) -> None:
    with pytest.warns(UserWarning, match="calibrated models are not centered; the session does not adapt"):
        assert not at.Session(model.calibrate(OWN[:20], Y[:20]), adapt=True).adapts


def told(people: dict[str, AdaptationScores], *, is_guessing: bool = False) -> dict[str, Any]:
    """Return the results of a replay on adaptation."""
    return replay.summarize_adaptation(people, dict, lambda _: is_guessing)


def person(gain: float, worst: float) -> AdaptationScores:
    """Return the scores of a subject who gains from centering, in one order something else."""
    gains = {NO_ADAPTATION: 0.0, CLASS_MEANS: 0.02, CENTERING: gain, CENTERED_CLASS_MEANS: -0.1}
    scores = {method: np.full((1, len(ORDERS)), 0.5 + own) for method, own in gains.items()}
    scores[CENTERING][:, 2] = 0.5 + worst
    return AdaptationScores(scores, {method: scores[method][:, 0] for method in METHODS})


def zero_shot_person() -> AdaptationScores:
    """Return the scores of a subject without whom no centered candidate has a weight."""
    both = person(0.2, 0.1)
    in_order = {method: both.in_order[method] for method in (NO_ADAPTATION, CLASS_MEANS)}
    return AdaptationScores(in_order, {CLASS_MEANS: both.all_windows[CLASS_MEANS]})


def best_of_four(scores: AdaptationScores) -> str:
    """Return the method that is delivered if four subjects have these scores."""
    return online_adaptation.select_helpful_method(AdaptationScores.stack([scores] * 4).online_gains)


def test_the_method_with_the_largest_mean_gain_is_used() -> None:
    assert best_of_four(person(0.2, 0.1)) == CENTERING
    assert best_of_four(person(0.2, -0.7)) == CLASS_MEANS
    assert best_of_four(zero_shot_person()) == CLASS_MEANS
    found = told({name: person(0.2, 0.1) for name in "abcd"})
    assert found["session_method"] == found["transductive_method"] == CENTERING
    assert found["adapted"]["one-sided"]["a"] == pytest.approx(0.6)
    guessed = told({name: person(0.2, 0.1) for name in "abcd"}, is_guessing=True)
    assert guessed["session_method"] == guessed["transductive_method"] == NO_ADAPTATION
    assert guessed["adapted"]["one-sided"]["a"] == 0.5
    by_itself = zero_shot_person()._replace(all_windows={})
    assert "all_windows" not in told({"a": by_itself, "b": by_itself})


def test_no_subject_selects_its_own_method() -> None:
    """One subject loses by what the others gain by, and is shown with it."""
    every = {name: person(0.2, 0.2) for name in "abcefgh"} | {"d": person(-0.3, -0.3)}
    assert told(every)["adapted"]["recorded"]["d"] == pytest.approx(0.2)
    assert told(every)["all_windows"]["d"] == pytest.approx(0.2)


def test_linear_models_of_sessions_are_those_of_the_run_centered() -> None:
    def stage(adaptation: str) -> Stage:
        options = described(source="x", grid="uncensored", adaptation=adaptation)
        return make_plan(Preparation(options, REC)).stages[0]

    forms = [training.setting for training in stage("zero-shot").online_fits]
    assert {one.adaptation for one in forms} == {"online"}
    solved = [one for one in stage("zero-shot").settings if one.encoder == "linear"]
    assert [one.replace(center="none") for one in forms] == solved != []
    assert stage("online").online_fits == []


def test_a_subject_without_the_online_ensemble_is_not_centered() -> None:
    still, like = zero_shot_person(), person(0.2, 0.1)
    stacked = AdaptationScores.stack([*[like] * 8, still])
    assert set(stacked.online_gains) == set(stacked.transductive_gains) == set(METHODS)
    for gains in (stacked.online_gains, stacked.transductive_gains):
        assert gains[CENTERING][-1] == 0
        assert gains[CENTERED_CLASS_MEANS][-1] == pytest.approx(0.02)
    assert online_adaptation.select_helpful_method(stacked.online_gains) == CENTERING
