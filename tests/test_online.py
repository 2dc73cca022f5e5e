"""The online ensemble starts at the training subjects and adapts by unlabeled windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.models.adaptation import CLASS_MEANS
from autotransfer.models.building import CandidateFits, add_online_ensemble, build_model
from autotransfer.models.loading import load_model
from autotransfer.models.model import Model
from autotransfer.runs.preparation import Preparation
from autotransfer.search import online_adaptation, replay
from autotransfer.search.online_adaptation import AdaptationScores
from autotransfer.search.plan import Stage, make_plan
from autotransfer.search.replay import ORDERS
from autotransfer.settings import Setting
from autotransfer.training.centering import (
    CENTERING_RULES,
    MAX_DISTANCE,
    Centering,
    CenteringRule,
    OnlineCentering,
    fit_centering,
)
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


def made(rule: CenteringRule, *, session: bool = True, all_windows: bool = True) -> Model:
    """A zero-shot part, and an average for sessions of it and of two that are centered."""
    outcomes = at.train(REC, [at.Job(one, FOLD, 0) for one in (PLAIN, *CENTERED)], "cpu", progress=False)
    states = [{k: t for k, t in own.final_state.items() if not k.startswith("censor.")} for own in outcomes]
    first, *others = (
        CandidateFits(setting, [state], [FOLD], weight)
        for setting, state, weight in zip((PLAIN, *CENTERED), states, EXPONENTS, strict=True)
    )
    model = build_model(REC, [first._replace(weight=0.8)], scores={})
    used = {"session_rule": rule if session else None, "transductive_rule": rule if all_windows else None}
    return add_online_ensemble(REC, model, EXPONENTS[:1], others, **used)


@pytest.fixture(scope="module")
def model() -> Model:
    return made(CenteringRule("balanced", 4.0))


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


def shown(
    labels: list[int], shift: np.ndarray, rule: CenteringRule, sure: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The offset after windows of these classes, which lie at their corners plus a shift; and the shift's part in u."""
    centering = simple()
    centered = OnlineCentering(centering, rule)
    known, noise = centered.initial_state(), np.random.default_rng(0)
    for label in labels:
        u = centering.classes.numpy()[:, label] + shift + 0.1 * noise.standard_normal(3)
        u -= u.mean(-1, keepdims=True)
        p = np.full(3, (1 - sure) / 3) + sure * np.eye(3)[label]
        known = centered.update(known, u, p)
    return centered.offset(known)[0], shift - shift.mean()


@pytest.mark.parametrize("rule", CENTERING_RULES, ids=lambda rule: rule.name)
def test_a_new_subject_starts_at_the_training_subjects(rule: CenteringRule) -> None:
    centered = OnlineCentering(simple(), rule)
    assert np.array_equal(centered.offset(centered.initial_state()), np.zeros((1, 3)))


def test_the_plain_rule_is_a_mean_with_a_prior() -> None:
    centered, u = (
        OnlineCentering(simple(), CenteringRule("plain", 8.0)),
        np.random.default_rng(0).normal(size=(20, 1, 3)),
    )
    known = centered.initial_state()
    for own in u:
        known = centered.update(known, own, np.ones(3) / 3)
    np.testing.assert_allclose(centered.offset(known), u.sum(0) / 28)
    fading = OnlineCentering(simple(), CenteringRule("plain", 8.0, 0.5))
    known = fading.initial_state()
    for own in u:
        known = fading.update(known, own, np.ones(3) / 3)
    power = 0.5 ** np.arange(19, -1, -1)
    np.testing.assert_allclose(fading.offset(known), np.tensordot(power, u, 1) / (8 + power.sum()))


@pytest.mark.parametrize("kind", ["plain", "balanced", "cautious"])
def test_a_shift_is_learned_from_windows_of_all_classes(kind: str) -> None:
    found, shift = shown([0, 1, 2] * 60, np.array([1.5, 0.0, -1.0]), CenteringRule(kind, 2.0))
    np.testing.assert_allclose(found, shift, atol=0.1)


def test_one_class_alone_moves_little_if_predictions_are_trusted() -> None:
    """A subject like the training subjects shows one class alone; a shifted subject does, and the shift is learned."""
    nothing, shift = np.zeros(3), np.array([1.0, 0.0, -1.0])
    far = np.linalg.norm(simple().classes[0, 0])
    assert np.linalg.norm(shown([0] * 200, nothing, CenteringRule("plain", 2.0))[0]) > 0.9 * far
    for kind in ("balanced", "cautious"):
        assert np.linalg.norm(shown([0] * 200, nothing, CenteringRule(kind, 2.0))[0]) < 0.1 * far
    found, moved = shown([0] * 200, shift, CenteringRule("balanced", 2.0))
    np.testing.assert_allclose(found, moved, atol=0.1)
    assert np.linalg.norm(shown([0] * 200, shift, CenteringRule("cautious", 2.0))[0]) < 0.2, "it waits for more classes"


def test_a_window_unlike_any_other_is_not_learned_from() -> None:
    centered = OnlineCentering(simple(), CenteringRule())
    known = centered.update(centered.initial_state(), np.array([[1.0, 0.0, -1.0]]), np.ones(3) / 3)
    wild = np.array([[1.0, 0.0, -1.0]]) * (MAX_DISTANCE * 9.0)
    after = centered.update(known, wild, np.ones(3) / 3)
    assert all(np.array_equal(after[name], own) for name, own in known.items())


@pytest.mark.parametrize(
    ("values", "words"),
    [({"kind": "best"}, "unknown kind 'best'"), ({"prior_windows": 0.0}, "prior_windows is 0.0"),
     ({"forgetting": 1.0}, "forgetting is 1.0")],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        CenteringRule(**values)  # type: ignore[arg-type]


# ---- a subject and the model
# ------------------------------------------------------------------------------------------


def test_the_offset_is_what_centering_the_windows_would_do() -> None:
    """By hand: representations less the running mean with a prior, through the same classifiers."""
    model = made(CenteringRule("plain", 4.0))
    found = at.Session(model, adapt=True).predict_proba(OWN)
    assert model.session_ensemble is not None
    total = 0.3 * np.log(alone(model)[0].predict_proba(OWN))
    for part, weight in zip(model.online_candidates, EXPONENTS[1:], strict=True):
        prior = part.preprocessing.start_subject().feed(OWN)[0].double()  # already less the training subjects' center
        seen = torch.cat([torch.zeros_like(prior[:1]), prior.cumsum(0)[:-1]])
        mean = seen / (4 + torch.arange(len(prior), dtype=torch.float64))[:, None, None]
        logits = part.members.classifier(part.members.net((prior - mean).float()))
        total += weight * logits.double().log_softmax(-1)[0].detach().numpy()
    expected = np.exp(total - total.max(1, keepdims=True))
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True), atol=2e-5)


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


def test_rules_evaluated_together_equal_single_rules(model: Model) -> None:
    online, orders = model.online_ensemble(CENTERING_RULES), list(replay.window_orders(Y).values())
    said = online.predict_zero_shot(OWN)
    for with_class_means, by_rule in enumerate(online.predict_in_orders(said, orders)):
        for rule, by_order in zip(CENTERING_RULES, by_rule, strict=True):
            alone = model.online_ensemble(rule)
            for order, found in zip(orders, by_order, strict=True):
                in_order = type(said)(said.fixed_log_p[order], said.logits[order], [z[:, order] for z in said.latents])
                class_means = alone.start_class_means() if with_class_means else None
                expected, _ = alone.predict_next(in_order, alone.centered.initial_state(), class_means)
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", ["online balanced, prior 8", "online cautious, prior 8, class means"])
def test_an_online_replay_equals_a_session(model: Model, rule: str) -> None:
    _, _, found = replay.replay_subject(model, REC, ROWS)
    own = made(online_adaptation.RULES[rule])
    for place, order in enumerate(replay.window_orders(Y).values()):
        said = at.Session(own, adapt=True).predict_proba(OWN[order])
        score = np.mean([np.mean(said.argmax(1)[Y[order] == c] == c) for c in range(REC.n_classes)])
        assert found.by_method[rule][0, place] == pytest.approx(score)
    right = own.predict_proba(OWN, adapt="all").argmax(1) == Y
    assert found.all_windows[rule].item() == pytest.approx(
        np.mean([right[c == Y].mean() for c in range(REC.n_classes)])
    )


def told(people: dict[str, AdaptationScores], *, is_guessing: bool = False) -> dict[str, Any]:
    """Return the results of a replay on adaptation."""
    return replay.adaptation_results(people, dict, lambda _: is_guessing)


def person(gain: float, worst: float, name: str = "online balanced, prior 8") -> AdaptationScores:
    """A subject who gains by one rule, in one order something else."""
    rules = {rule: np.full((1, len(ORDERS)), 0.4) for rule in online_adaptation.RULES}
    rules[name][:] = 0.5 + gain
    rules[name][:, 2] = 0.5 + worst
    scores = {method: np.full((1, len(ORDERS)), 0.5) for method in ("none", CLASS_MEANS)}
    scores[CLASS_MEANS] += 0.02
    return AdaptationScores(scores | rules, {rule: by_order[:, 0] for rule, by_order in rules.items()})


def best_of_four(scores: AdaptationScores) -> str:
    """Return the method that is delivered if four subjects have these scores."""
    return online_adaptation.delivered_method(AdaptationScores.stack([scores] * 4))


def test_the_online_ensemble_is_used_unless_it_harms_or_another_method_is_better() -> None:
    """Class means alone are compared only if there is no online ensemble."""
    assert best_of_four(person(0.2, 0.1)) == "online balanced, prior 8"
    assert best_of_four(person(0.015, 0.015)) == "online balanced, prior 8"
    assert best_of_four(person(0.2, -0.7)) == "none"
    assert best_of_four(zero_shot_person()) == CLASS_MEANS
    found = told({name: person(0.2, 0.1) for name in "abcd"})
    assert found["session_rule"] == online_adaptation.RULES["online balanced, prior 8"]
    assert found["transductive_rule"] == found["session_rule"]
    guessed = told({name: person(0.2, 0.1) for name in "abcd"}, is_guessing=True)
    assert (guessed["session_rule"], guessed["transductive_rule"], guessed["adaptation_method"]) == (None, None, "none")
    assert found["online"]["one-sided"]["a"] == pytest.approx(0.6)
    assert told({name: person(0.2, -0.7) for name in "abcd"})["session_rule"] is None
    assert "online" not in told({"a": zero_shot_person()})


def test_no_subject_selects_its_own_rule() -> None:
    """One subject loses by what the others gain by, and is shown with it."""
    every = {name: person(0.2, 0.2) for name in "abc"} | {"d": person(-0.3, -0.3)}
    assert told(every)["online"]["recorded"]["d"] == pytest.approx(0.2)
    assert told(every)["adapted"]["recorded"]["d"] == pytest.approx(0.2)


def test_linear_models_of_sessions_are_those_of_the_run_centered() -> None:
    def stage(adaptation: str) -> Stage:
        options = described(source="x", grid="uncensored", adaptation=adaptation)
        return make_plan(Preparation(options, REC)).stages[0]

    forms = [training.setting for training in stage("zero-shot").online_fits]
    assert {one.adaptation for one in forms} == {"online"}
    solved = [one for one in stage("zero-shot").settings if one.encoder == "linear"]
    assert [one.replace(center="none") for one in forms] == solved != []
    assert stage("online").online_fits == []


def zero_shot_person() -> AdaptationScores:
    """A subject whose average for sessions centers nothing."""
    return person(0.2, 0.1)._replace(all_windows={})


def test_a_subject_without_the_online_ensemble_is_zero_shot() -> None:
    still = online_adaptation.add_unused_rules(zero_shot_person())
    like = person(0.2, 0.1)
    assert still.by_method.keys() == like.by_method.keys()
    assert still.all_windows.keys() == like.all_windows.keys()
    assert all((still.gains(rule) == 0).all() for rule in online_adaptation.RULES)
    assert all(still.all_windows[rule].item() == still.by_method["none"][0, 0] for rule in online_adaptation.RULES)
    everybody = AdaptationScores.stack([*[like] * 8, still])
    assert online_adaptation.delivered_method(everybody) == "online balanced, prior 8"
    found = told({"a": like, "b": like, "c": still})
    assert found["online"]["recorded"]["c"] == 0.5
