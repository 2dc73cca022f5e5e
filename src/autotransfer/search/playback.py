"""Held-out people use the model: their windows in several orders, without and with adaptation, and calibrated with a
few labels.

Each is played to a model of trainings that left them out, with weights found without them. What they gain decides what
the delivered model does for a new person.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.assembly import Part, assemble_mixture
from ..models.mixture import Mixture
from ..person.adaptation import NO_WAY, WAYS
from ..person.calibration import LABELS
from ..person.decoder import Decoder
from ..recordings import Recordings
from ..runs.choice import Playback, Scores
from ..runs.run import Run
from ..settings import Setting
from ..training.closed_form import Classes
from ..training.metrics import balanced_accuracy_of
from . import following
from .average import Nested
from .labelled import Rows, first_of_each, groups_of, labelled_and_scored
from .trust import SHARES, SHARPNESS, Tried, best, try_all

PEOPLE = 12  # who are played back, where there are more: means over them decide little, and networks take their time
FEWEST = 3  # people whose means say anything
WINDOWS = 240  # of each
NETWORKS = 2  # of each candidate, where there are more seeds
SHRINKAGE = 0.5  # of a person's own classifier
ORDERS = ("recorded", "balanced", "one-sided")


def play_back(
    run: Run, candidates: Sequence[Setting], nested: Nested, most: int = PEOPLE, until: float | None = None
) -> Playback | None:
    """At most so many people, and none who would begin after a moment of the monotonic clock. None where nobody can be
    played back, or hardly anybody: a model that needs all windows of a person at once, or does not know how people
    differ."""
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
        if model is None or any(part.effects is None for part in model.parts):
            return None
        rows = np.flatnonzero(recordings.subject.numpy() == person)
        name = str(recordings.subjects[person])
        scores, tried, followed[name] = played(model, recordings, rows)
        for (what, case), score in scores.items():
            found.setdefault(what, {}).setdefault(case, {})[name] = score
        for labels, own in tried.items():
            trials.setdefault(labels, {})[name] = own
    for labels, of_people in trials.items():
        for name, own in of_people.items():  # others say how much their labels count
            share, _ = best([other for whose, other in of_people.items() if whose != name])
            found.setdefault("calibrated", {}).setdefault(labels, {})[name] = float(own.score[share])
    places_of = {labels: best(list(of_people.values())) for labels, of_people in trials.items()}
    trust = {labels: [SHARES[k], SHARPNESS[n]] for labels, (k, n) in places_of.items()}
    below = {labels: most_tried(labels, trust) for labels in LABELS}
    trust = {str(labels): trust[str(number)] for labels, number in below.items() if number is not None}
    return Playback(
        **orders_of(followed),
        before=found.get("before", {}),
        calibrated=found.get("calibrated", {}),
        own=found.get("own", {}),
        follows=following.delivered(list(followed.values())),
        calibrates=calibrates(found.get("before", {}), found.get("calibrated", {})),
        trust=trust,
    )


def orders_of(followed: dict[str, following.Followed]) -> dict[str, Any]:
    """What people score by the order of their windows: `zero_shot`, `adapted` in the way that others choose, and
    each of `ways`."""
    found: dict[str, Any] = {"zero_shot": {}, "adapted": {}, "ways": {way: {} for way in WAYS}}
    for name, own in followed.items():
        others = [other for whose, other in followed.items() if whose != name]
        taken = following.chosen(others)
        for k, order in enumerate(ORDERS):
            scores = {NO_WAY: float(own.zero_shot[k])} | dict(zip(WAYS, own.ways[:, k].tolist(), strict=True))
            found["zero_shot"].setdefault(order, {})[name] = scores[NO_WAY]
            found["adapted"].setdefault(order, {})[name] = scores[taken]
            for way in WAYS:
                found["ways"][way].setdefault(order, {})[name] = scores[way]
    return found


def model_without(
    run: Run, candidates: Sequence[Setting], exponents: NDArray[np.float64], person: int
) -> Mixture | None:
    """The mixture of trainings that had the person as their test subject."""
    entries = [e for e in run.ledger.entries(records=False) if e.status == "done" and person in run.groups[e.test]]
    parts = []
    for setting, exponent in zip(candidates, exponents.tolist(), strict=True):
        if exponent <= 0:
            continue
        if setting.adaptation == "transductive":
            return None
        own = [entry for entry in entries if entry.setting == setting and entry.stage != "nested"]
        own = list({entry.seed: entry for entry in own}.values())[: 1 if setting.network.closed_form else NETWORKS]
        states = [
            {k.removeprefix("best."): t for k, t in run.weights(entry.key).items() if k.startswith("best.")}
            for entry in own
        ]
        if states:
            parts.append(Part(setting, states, [run.job(entry).fold for entry in own], exponent))
    return assemble_mixture(run.recordings, parts, scores={}, encoders=run.encoders) if parts else None


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
    drawn = np.random.default_rng(len(rows)).permutation(len(rows))
    orders = dict(zip(ORDERS, (np.arange(len(rows)), drawn, np.argsort(y[rows], kind="stable")), strict=True))
    decoder = Decoder(model)

    def read(order: Rows) -> Reading:
        return Reading(*decoder.read(recordings.X[rows[order]], decoder.follow()), y[rows[order]])

    recorded = read(orders["recorded"])
    found, trials = _with_labels(decoder, recordings, everything, most)
    read_in = [recorded.ordered(own) if model.adaptation == "none" else read(own) for own in orders.values()]
    log_p, truth = torch.stack([own.log_p for own in read_in]), torch.from_numpy(np.stack([own.y for own in read_in]))
    return found, trials, following.follow_all(decoder, [own.codes for own in read_in], log_p, truth)


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
            said["own"] = torch.stack([own_classifier(z[known], y[known], z, n_classes) for z in solved]).sum(0)
        for what, log_p in said.items():
            found[what, str(labels)] = read.score(log_p, left)
    return found, trials


def own_classifier(z: Tensor, y: Tensor, others: Tensor, n_classes: int) -> Tensor:
    """What a linear discriminant of these codes (n, D) says of other ones: log-probabilities (m, C)."""
    weight, bias = Classes(z, y, n_classes).solve(SHRINKAGE)
    return (others @ weight.T + bias).log_softmax(-1)


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
