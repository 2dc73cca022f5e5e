"""Held-out people use the model: their windows in several orders, without and with adaptation, and calibrated with a
few labels.

Each is played to a model of trainings that left them out, with weights found without them. What they gain decides what
the delivered model does for a new person.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.assembly import Part, assemble_mixture, with_online
from ..models.mixture import Mixture
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION
from ..person.calibration import LABELS
from ..person.decoder import Decoder
from ..recordings import Recordings
from ..recordings.units import Units
from ..runs.choice import Playback, Scores
from ..runs.run import Run
from ..settings import Setting
from ..training.centring import CentringRule
from ..training.metrics import balanced_accuracy_of
from . import following
from .average import Nested
from .labelled import Rows, first_of_each, groups_of, labelled_and_scored
from .online import OnlineWeights
from .personal import personal_log_probs
from .trust import SHARES, SHARPNESS, Tried, best, try_all

PEOPLE = 12  # who are played back, where there are more: means over them decide little, and networks take their time
FEWEST = 3  # people whose means say anything
WINDOWS = 240  # of each
NETWORKS = 2  # of each candidate, where there are more seeds
ORDERS = ("recorded", "balanced", "one-sided", "one class first")


def play_back(
    run: Run, candidates: Sequence[Setting], nested: Nested, most: int = PEOPLE, until: float | None = None,
    online: OnlineWeights | None = None,
) -> Playback | None:  # fmt: skip
    """At most so many people, and none who would begin after a moment of the monotonic clock. None where nobody can be
    played back, or hardly anybody: a model that needs all windows of a person at once, or does not know how people
    differ. online: of the average for sessions."""
    recordings, people = run.recordings, sorted(nested.weights)
    places = np.unique(np.linspace(0, len(people) - 1, min(most, len(people))).round()).astype(int)
    found: dict[str, dict[str, Scores]] = {}
    trials: dict[str, dict[str, Tried]] = {}  # by the number of labels and the person
    followed: dict[str, following.Followed] = {}
    for count, person in enumerate(people[place] for place in places):
        if until is not None and time.monotonic() > until:
            if count < FEWEST:
                return None
            break
        model = model_without(run, candidates, nested.weights[person].exponents, person)
        if model is not None and online is not None:
            model = online_without(run, model, online, person)
        if model is None or any(part.effects is None for part in model.parts):
            return None
        rows = np.flatnonzero(recordings.subject.numpy() == person)
        name = str(recordings.subjects[person])
        scores, tried, followed[name] = played(model, recordings, rows)
        for (what, case), score in scores.items():
            found.setdefault(what, {}).setdefault(case, {})[name] = score
        for labels, own in tried.items():
            trials.setdefault(labels, {})[name] = own
    if not followed:
        return None
    if any(own.rules.size for own in followed.values()):  # the others' weights leave no part that centres people
        followed = {name: own if own.rules.size else following.unmoved(own) for name, own in followed.items()}
    for labels, of_people in trials.items():
        for name, own in of_people.items():  # others say how much their labels count
            share, _ = best([other for whose, other in of_people.items() if whose != name])
            found.setdefault("calibrated", {}).setdefault(labels, {})[name] = float(own.score[share])
    places_of = {labels: best(list(of_people.values())) for labels, of_people in trials.items()}
    trust = {labels: [SHARES[k], SHARPNESS[n]] for labels, (k, n) in places_of.items()}
    below = {labels: most_tried(labels, trust) for labels in LABELS}
    trust = {str(labels): trust[str(number)] for labels, number in below.items() if number is not None}
    playback = Playback(
        **orders_of(followed),
        **online_of(followed),
        before=found.get("before", {}),
        calibrated=found.get("calibrated", {}),
        own=found.get("own", {}),
        follows=following.delivered(list(followed.values()), list(ADAPTATION_METHODS)),
        calibrates=calibrates(found.get("before", {}), found.get("calibrated", {})),
        trust=trust,
    )
    return playback if recordings.units is None else by_person(playback, recordings.units)


def by_person(played: Playback, units: Units) -> Playback:
    """Scores of units as means over each person's; whoever loses with one of them is named."""

    def merged(tables: dict[str, Scores]) -> dict[str, Scores]:
        return {case: units.by_person(own) for case, own in tables.items()}

    whose = dict(zip(units.names, units.people, strict=True))
    return replace(
        played,
        zero_shot=merged(played.zero_shot),
        adapted=merged(played.adapted),
        before=merged(played.before),
        calibrated=merged(played.calibrated),
        own=merged(played.own),
        online=merged(played.online),
        ways={way: merged(own) for way, own in played.ways.items()},
        all_windows=units.by_person(played.all_windows),
        losing={order: list(dict.fromkeys(whose[name] for name in own)) for order, own in played.losing.items()},
    )


def orders_of(followed: dict[str, following.Followed]) -> dict[str, Any]:
    """What people score by the order of their windows: `zero_shot`, `adapted` by the method that is delivered where
    others decide, and each of `ways`."""
    found: dict[str, Any] = {"zero_shot": {}, "adapted": {}, "ways": {way: {} for way in ADAPTATION_METHODS}}
    for name, own in followed.items():
        others = [other for whose, other in followed.items() if whose != name]
        taken = following.delivered(others)
        for k, order in enumerate(ORDERS):
            for where, method in [("zero_shot", NO_ADAPTATION), ("adapted", taken)]:
                found[where].setdefault(order, {})[name] = float(own.score(method)[k])
            for way in ADAPTATION_METHODS:
                found["ways"][way].setdefault(order, {})[name] = float(own.score(way)[k])
    return found


def online_of(followed: dict[str, following.Followed]) -> dict[str, Any]:
    """The same of the average for sessions, by the rule that others choose; what everybody chooses, and curves."""
    people = list(followed.values())
    if any(not own.rules.size for own in people):
        return {}
    found: dict[str, Any] = {"online": {order: {} for order in ORDERS}, "all_windows": {}}
    found["losing"] = {order: [] for order in ORDERS}
    lines: dict[str, list[NDArray[np.float64]]] = {"zero_shot": [], "session": [], "all_windows": []}
    gained = []
    for name, own in followed.items():
        others = [other for whose, other in followed.items() if whose != name]
        taken = following.delivered(others)
        rule = following.rule_of(others, taken)
        for k, order in enumerate(ORDERS):
            found["online"][order][name] = float(own.score(rule)[k])
        gained.append(following.all_gain(own, rule))
        found["all_windows"][name] = float(own.zero_shot[0]) + gained[-1]
        before, after = own.right_by(NO_ADAPTATION), own.right_by(taken)
        whole = own.all_right[list(following.RULES).index(rule)]
        for what, right in {"zero_shot": before, "session": after, "all_windows": whole}.items():
            lines[what].append(following.curve(right, own.truth))
        for k, order in enumerate(ORDERS):
            if following.clearly_loses(before[k], after[k], own.truth[k]):
                found["losing"][order].append(name)
    method = following.delivered(people)
    means = {what: np.stack(own) for what, own in lines.items()}  # (people, orders, stretches)
    curves = {
        order: {what: [_mean(own[:, k, place]) for place in range(own.shape[2])] for what, own in means.items()}
        for k, order in enumerate(ORDERS)
    }
    return found | {
        "rule": following.RULES[following.rule_of(people, method)],
        "online_session": method in following.RULES,
        "online_all_windows": float(np.mean(gained)) >= 0,
        "seen": list(following.SEEN),
        "curves": curves,
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    """Over people who came so far."""
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def model_without(
    run: Run, candidates: Sequence[Setting], exponents: NDArray[np.float64], person: int
) -> Mixture | None:
    """The mixture of trainings that had the person as their test subject."""
    if any(s.adaptation == "transductive" for s, power in zip(candidates, exponents, strict=True) if power > 0):
        return None
    parts = _parts_without(run, dict(zip(candidates, exponents.tolist(), strict=True)), person)
    return assemble_mixture(run.recordings, parts, scores={}, encoders=run.encoders) if parts else None


def online_without(run: Run, model: Mixture, online: OnlineWeights, person: int) -> Mixture:
    """The same mixture with the average for sessions, of the same trainings; as it is where nothing of that is left."""
    exponents = online.nested.weights[person].exponents
    own = dict(zip(online.settings, exponents.tolist(), strict=True))
    shared = [part.setting for part in model.parts]
    parts = _parts_without(run, {one: power for one, power in own.items() if one not in shared}, person)
    if not any(part.setting.adaptation == "online" for part in parts):
        return model
    return with_online(
        run.recordings, model, [own.get(setting, 0.0) for setting in shared], parts, CentringRule(), session=True,
        all_windows=True, encoders=run.encoders,
    )  # fmt: skip


def _parts_without(run: Run, exponents: dict[Setting, float], person: int) -> list[Part]:
    """Of trainings that had the person as their test subject."""
    entries = [e for e in run.ledger.entries(records=False) if e.status == "done" and person in run.groups[e.test]]
    parts = []
    for setting, exponent in exponents.items():
        if exponent <= 0:
            continue
        own = [entry for entry in entries if entry.setting == setting and entry.stage != "nested"]
        own = list({entry.seed: entry for entry in own}.values())[: 1 if setting.network.closed_form else NETWORKS]
        states = [
            {k.removeprefix("best."): t for k, t in run.weights(entry.key).items() if k.startswith("best.")}
            for entry in own
        ]
        if states:
            parts.append(Part(setting, states, [run.job(entry).fold for entry in own], exponent))
    return parts


class Reading(NamedTuple):
    """What a model makes of a person's windows in one order."""

    codes: list[Tensor]  # (P, n, D) of each stack
    log_p: Tensor  # (n, C) up to a number for each window
    y: NDArray[np.int64]  # (n,)

    def score(self, log_p: Tensor, rows: NDArray[np.bool_] | None = None) -> float:
        """Balanced accuracy on these rows, or on all."""
        rows = np.ones(len(self.y), dtype=bool) if rows is None else rows
        return balanced_accuracy_of(log_p[rows].argmax(1).numpy(), self.y[rows], log_p.shape[1])

    def ordered(self, order: Rows) -> Reading:
        return Reading([z[:, order] for z in self.codes], self.log_p[order], self.y[order])


@torch.inference_mode()
def played(
    model: Mixture, recordings: Recordings, rows: Rows
) -> tuple[dict[tuple[str, str], float], dict[str, Tried], following.Followed]:
    """Scores of the person of these rows, by what is done and in which case; how a number of labels turns out, by how
    much they count; and how following them does."""
    y, everything = recordings.y.numpy(), rows
    most = windows_of_each(y[rows])
    rows = first_of_each(y, rows, most)
    orders = orders_for(y[rows])
    decoder = Decoder(model)

    def read(order: Rows) -> Reading:
        return Reading(*decoder.read(recordings.X[rows[order]], decoder.follow()), y[rows[order]])

    recorded = read(orders["recorded"])
    found, trials = _with_labels(decoder, recordings, everything, most)
    read_in = [recorded.ordered(own) if model.adaptation == "none" else read(own) for own in orders.values()]
    log_p, truth = torch.stack([own.log_p for own in read_in]), torch.from_numpy(np.stack([own.y for own in read_in]))
    followed = following.follow_all(decoder, [own.codes for own in read_in], log_p, truth)
    if model.online is not None and model.adaptation == "none":
        windows = (recordings.X[rows], recorded.log_p, y[rows])
        followed = following.follow_online(followed, model, *windows, list(orders.values()))
    return found, trials, followed


def orders_for(y: NDArray[np.int64]) -> dict[str, Rows]:
    """ORDERS of windows of classes (n,): as recorded, drawn at random, class after class, and one class, that of the
    most windows, before all others."""
    drawn = np.random.default_rng(len(y)).permutation(len(y))
    first = np.bincount(y).argmax()
    one_first = drawn[np.argsort(y[drawn] != first, kind="stable")]
    return dict(zip(ORDERS, (np.arange(len(y)), drawn, np.argsort(y, kind="stable"), one_first), strict=True))


def windows_of_each(y: Rows) -> int:
    """How many windows of each class of a person (n,) are played."""
    return max(WINDOWS // len(np.unique(y)), 2 * max(LABELS))


def _with_labels(
    decoder: Decoder, recordings: Recordings, rows: Rows, most: int
) -> tuple[dict[tuple[str, str], float], dict[str, Tried]]:
    """By the number of labelled windows of each class: scores of the person of these rows on windows of other groups,
    as it was and of a classifier of their own; and how calibration turns out. most: windows of each class."""
    found: dict[tuple[str, str], float] = {}
    trials: dict[str, Tried] = {}
    truth, groups = recordings.y.numpy()[rows], groups_of(recordings, rows)
    splits = {labels: labelled_and_scored(truth, groups, labels, most) for labels in LABELS}
    used = np.unique(np.concatenate([place for split in splits.values() for place in split]))
    read = Reading(*decoder.read(recordings.X[rows[used]], decoder.follow()), truth[used])
    y, n_classes = torch.from_numpy(read.y), read.log_p.shape[1]
    person = decoder.adaptation()
    solved = [
        z[0].double() for z, stack in zip(read.codes, decoder.stacks, strict=True) if stack.setting.encoder == "linear"
    ]
    for labels, split in splits.items():
        known, left = (np.isin(used, places) for places in split)
        if len(np.unique(read.y[left])) < len(np.unique(truth)):
            continue
        correction = person.calibration(read.codes, y, torch.from_numpy(known))
        trials[str(labels)] = try_all(read.log_p[left], correction[left], y[left])
        said = {"before": read.log_p}
        if solved:
            said["own"] = personal_log_probs(solved, read.y, groups[used], known, n_classes)
        for what, log_p in said.items():
            found[what, str(labels)] = read.score(log_p, left)
    return found, trials


def calibrates(before: dict[str, Scores], after: dict[str, Scores]) -> list[int]:
    """Numbers of labels that people gained by, from their scores without and with calibration; none where they lost
    over all numbers together, because a number that then seems to help is chance. How much labels count is found
    already (trust.py); to ask for a clear gain as well would leave much undone that helps. Numbers that nobody had
    windows for are as the largest one below that was tried."""
    gains = {
        labels: [score - before[str(labels)][name] for name, score in after[str(labels)].items()]
        for labels in LABELS
        if str(labels) in after
    }
    if not gains or np.mean(np.concatenate(list(gains.values()))) < 0:
        return []
    tried = {labels: most_tried(labels, after) for labels in LABELS}
    return [labels for labels, number in tried.items() if number is not None and np.mean(gains[number]) >= 0]


def most_tried(labels: int, tried: Container[str]) -> int | None:
    """The largest number of labels, of those that were tried, that is not above this one."""
    return max((number for number in LABELS if number <= labels and str(number) in tried), default=None)
