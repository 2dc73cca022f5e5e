"""Decisions from the ledger: the choice for everybody, and the choice that would have been made without each person."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..folds import not_scored, scorable, whole_people
from ..preprocessing import strongest
from ..recordings import Recordings
from ..runs.choice import Average, Choice, NamedSetting, Scores, Weighted
from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from ..tasks.classification import BALANCED_ACCURACY
from .answering import answering
from .average import Nested, Weights, calibration, confusion, find_nested, find_weights, reliability, without_kind
from .held_out import HeldOutLogProbs, trained_candidates
from .models import members_of
from .stages import Score, best_mean, by_subject, choose, lower_quartile, without_subject
from .validation import Groups, finished_entries, honest_scores, measured_scores, validation_scores

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Ranking:
    """How candidates are ranked: which scores, and what of them decides."""

    scores: Callable[[Sequence[Entry], Groups], list[Score]]
    choose: Callable[[Sequence[Score], Sequence[str]], str]


RULES = {"average": Ranking(honest_scores, best_mean), "published": Ranking(validation_scores, choose)}


def decide(
    run: Run, candidates: Sequence[Setting], revise: Callable[[HeldOutLogProbs, Nested], Nested] | None = None
) -> tuple[Choice, Weights | None, Nested | None]:
    """The choice for everybody, with scores of each subject by what would have been chosen without them. With the rule
    average also the weights of the delivered candidates, and those fitted without each subject.

    revise: puts the earlier weights in place for people for whom the run would have stopped earlier."""
    options, subjects, units = run.options, run.recordings.subjects, run.recordings.units
    rule, entries = RULES[options.rule], finished_entries(run, candidates, run.folds())
    paper_network = next((setting for setting in candidates if setting == options.plain), None)
    scored = set(scorable(run.recordings))
    usual = options.metric == BALANCED_ACCURACY
    every = rule.scores(entries, run.groups) if usual else measured_scores(run, entries)
    scores = [score for score in every if score.subject in scored]
    keys = [setting.key for setting in candidates]
    others = {person: without_subject(scores, person) for person in sorted(scored)}
    plain = [setting.key for setting in candidates if setting.penalty is None]
    picks = {
        "chosen": dict.fromkeys(others, rule.choose(scores, keys)),
        "best_uncensored": dict.fromkeys(others, rule.choose(scores, plain)),
        "nested": {test: rule.choose(without, keys) for test, without in others.items()},
        "nested_uncensored": {test: rule.choose(without, plain) for test, without in others.items()},
    }
    if paper_network is not None:
        picks["paper_network"] = dict.fromkeys(others, paper_network.key)
    held_out = HeldOutLogProbs.of(run, candidates, entries)
    weights = nested = free = None
    if options.rule == "average":
        among = trained_candidates(candidates, entries)
        uncensored = [k for k in among if candidates[k].penalty is None] or among
        weights, nested = find_weights(held_out, among), find_nested(held_out, among)
        free = nested if uncensored == among else find_nested(held_out, uncensored)
        if revise is not None:
            revised = revise(held_out, nested)
            free, nested = revised if free is nested else free, revised

    # Test scores are read from here on, and nothing below decides.
    by_key = {setting.key: setting for setting in candidates}
    place = {key: k for k, key in enumerate(keys)}
    named = {key: NamedSetting(options.name_of(setting), setting) for key, setting in by_key.items()}
    overall = {role: next(iter(pick.values())) for role, pick in picks.items() if not role.startswith("nested")}
    single, metric = scores_on_test(run, entries), options.scoring

    def by_person(scores: Mapping[int, float]) -> Scores:
        return run.by_person({str(subjects[test]): value for test, value in scores.items()})

    def alone(role: str) -> Scores:
        return by_person({test: single[key, test] for test, key in picks[role].items()})

    def picked(role: str) -> dict[int, Floats]:
        """Log-probabilities (n, C) of each subject, the mean over the trainings that held them out."""
        return {test: held_out.of_person(test)[place[key]] for test, key in picks[role].items()}

    def scored_on(log_probs: Mapping[int, Floats]) -> Scores:
        return by_person({test: held_out.score(test, log_p) for test, log_p in log_probs.items()})

    def nested_choices() -> dict[str, str]:
        """By person; several names where parts of people are held out."""
        whose: dict[str, list[str]] = {}
        for test, key in picks["nested"].items():
            whose.setdefault(str(subjects[test]) if units is None else units.people[test], []).append(named[key].name)
        return {person: "; ".join(dict.fromkeys(names)) for person, names in whose.items()}

    delivered = {role: scored_on(picked(role)) for role in picks}
    final: Mapping[int, Floats] = picked("nested") if nested is None else nested.log_probs
    nested_scores, nested_uncensored = alone("nested"), alone("nested_uncensored")
    adaptation, average = by_key[overall["chosen"]].adaptation, None
    if weights is not None and nested is not None and free is not None:
        average = describe_average(run, candidates, held_out, weights, nested, choosing=delivered["nested"])
        nested_scores, nested_uncensored = scored_on(nested.log_probs), scored_on(free.log_probs)
        delivered |= {"nested_choice": delivered["nested"], "nested": nested_scores}
        delivered["nested_uncensored"] = nested_uncensored
        used = zip(candidates, weights.exponents, strict=True)
        adaptation = strongest([setting.adaptation for setting, beta in used if beta > 0])
    whole, log_probs = whole_people(run.recordings), of_whole_people(run.recordings, final)
    who, y = whole.subject.numpy(), whole.y.numpy()
    people = {str(whole.subjects[person]): (y[who == person], log_p) for person, log_p in log_probs.items()}
    choice = Choice(
        chosen=named[overall["chosen"]],
        paper_network=None if paper_network is None else named[paper_network.key],
        best_uncensored=named[overall["best_uncensored"]],
        paper_network_won=overall["chosen"] == overall.get("paper_network"),
        shortlist=list(named.values()),
        validation_q25={named[key].name: lower_quartile(scores, key) for key in keys},
        validation_mean={named[key].name: float(by_subject(scores, key).mean()) for key in keys},
        test_scores={role: alone(role) for role in overall},
        nested_test_scores=nested_scores,
        nested_uncensored_test_scores=nested_uncensored,
        nested_choices=nested_choices(),
        delivered_test_scores=delivered,
        adaptation=adaptation,
        average=average,
        not_scored=not_scored(run.recordings),
        metric=options.metric,
        chance=metric.chance([held_out.y[test] for test in final], run.recordings.n_classes),
        other_metrics={
            name: by_person({test: other.score(held_out.y[test], np.exp(log_p)) for test, log_p in final.items()})
            for name, other in options.task.metrics.items()
            if other is not metric and name != "accuracy"
        },
        confusions={name: confusion(*y_and_log_p) for name, y_and_log_p in people.items()},
        reliability={name: reliability(*y_and_log_p) for name, y_and_log_p in people.items()},
        answering=answering({name: (y, np.exp(log_p)) for name, (y, log_p) in people.items()}),
        at_least=options.at_least,
        hold_out=options.hold_out,
    )
    return choice, weights, nested


def of_whole_people(recordings: Recordings, log_probs: Mapping[int, Floats]) -> dict[int, Floats]:
    """Log-probabilities (n, C) of all windows of each person, in their order, from those of the units that were held
    out. People with a unit that was not scored are left out."""
    if recordings.units is None:
        return dict(log_probs)
    units, people = recordings.subject.numpy(), whole_people(recordings).subject.numpy()
    known = np.isin(units, list(log_probs))
    whole: dict[int, Floats] = {}
    for person in np.unique(people):
        rows = np.flatnonzero(people == person)
        if known[rows].all():
            log_p = np.empty((len(rows), recordings.n_classes))
            for unit in np.unique(units[rows]):
                log_p[units[rows] == unit] = log_probs[unit]
            whole[int(person)] = log_p
    return whole


def describe_average(
    run: Run, candidates: Sequence[Setting], held_out: HeldOutLogProbs, weights: Weights, nested: Nested,
    choosing: Scores,
) -> Average:  # fmt: skip
    """The average as choice.json has it. choosing: scores of the best single candidate, chosen without the person."""
    names, kinds = [run.options.name_of(setting) for setting in candidates], [setting.kind for setting in candidates]
    subjects = [str(subject) for subject in run.recordings.subjects]
    heaviest = np.argsort(-weights.exponents, kind="stable")[: np.count_nonzero(weights.exponents)].tolist()
    members = members_of(run, candidates, weights)
    return Average(
        weights=[Weighted(names[k], kinds[k], float(weights.shares[k]), members[candidates[k]]) for k in heaviest],
        temperature=weights.temperature,
        nested_weights={
            subjects[p]: {names[k]: float(without.shares[k]) for k in np.flatnonzero(without.exponents).tolist()}
            for p, without in nested.weights.items()
        },
        choosing_test_scores=choosing,
        equal_test_scores=run.by_person(
            {subjects[p]: held_out.score(p, held_out.of_person(p).mean(0)) for p in held_out.people}
        ),
        without_kind={
            kind: run.by_person(
                {subjects[p]: value for p, value in without_kind(held_out, nested, kinds, kind).items()}
            )
            for kind in dict.fromkeys(kinds)
        },
        calibration=calibration(held_out, nested),
    )


def scores_on_test(run: Run, entries: Sequence[Entry]) -> dict[tuple[str, int], float]:
    """Mean test score of each setting (by key) on each test subject over the seeds."""
    values: dict[tuple[str, int], list[float]] = {}
    for entry in entries:
        tests = run.groups[entry.test]
        if entry.record is None:
            continue
        if run.options.metric == BALANCED_ACCURACY:
            scores = {person: entry.record.score_on(person) for person in tests}
        elif entry.status == "done":
            scores = {score.subject: score.value for score in measured_scores(run, [entry]) if score.subject in tests}
        else:
            scores = dict.fromkeys(tests, math.nan)
        for person, value in scores.items():
            values.setdefault((entry.setting.key, person), []).append(value)
    return {key: _mean(scores) for key, scores in values.items()}


def _mean(scores: Sequence[float]) -> float:
    """Over the seeds with a score: a training that failed at once has none."""
    measured = [score for score in scores if math.isfinite(score)]
    return float(np.mean(measured)) if measured else math.nan
