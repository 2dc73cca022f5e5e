"""AutoTransfer from the first job to the choice: candidates, every fold, weights, nested estimates."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..folds import not_scored, scorable
from ..preprocessing import strongest
from ..runs.choice import Average, Choice, Named, Scores, Weighted
from ..runs.csv_tables import csv_of
from ..runs.files import write_atomically
from ..runs.ledger import Entry, stage_name
from ..runs.results import results_table, trained
from ..runs.run import Run, Tell, check_packages
from ..runs.sqlite_errors import explained_below
from ..settings import Setting
from ..training.scoring import BALANCED_ACCURACY, METRICS
from .average import Nested, Weights, calibration, confusion, find_nested, find_weights, reliability, without_kind
from .budget import Budget
from .kinds import closed_forms, list_of, networks
from .models import build_models, members_of
from .peers import peer_scores
from .playback import PEOPLE, play_back
from .said import Said
from .stages import (
    SHORTLIST_PER_METHOD,
    Score,
    best_mean,
    by_subject,
    choose,
    lower_quartile,
    shortlist,
    without_subject,
)
from .validation import Groups, entries_of, honest_scores, seeds_of, validation_scores

PLAYED_BEFORE = 0.4  # of what a budget keeps for the end: models and report take so much of it
FIRST_CUT = 8  # successive halving begins after this part of the epochs


@dataclass(frozen=True)
class Rule:
    """How candidates are ranked: which scores, and what of them decides."""

    scores: Callable[[Sequence[Entry], Groups], list[Score]]
    choose: Callable[[Sequence[Score], Sequence[str]], str]


RULES = {"average": Rule(honest_scores, best_mean), "published": Rule(validation_scores, choose)}


def search_stage(run: Run, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Stage one: every setting on one fixed split, where there are more than go on. Returns the networks that do, the
    baseline first."""
    options, split = run.options, run.scored_split()
    apart = options.preprocessing is not None  # networks of several kinds, each with the grid
    if options.search == "tpe":
        from .tpe import tpe_search

        with explained_below(run.folder / "optuna.sqlite"):
            settings = tpe_search(run, tell, shown=shown)
    else:
        settings = networks(options, options.settings(), run.recordings)
        halving = options.search == "halving"
        if not halving and all_go_on(settings, apart=apart):
            return settings
        run.add(run.entry("search", setting, *split, options.seed) for setting in settings)
        tell(f"stage one: {len(settings)} setting{'s' * (len(settings) != 1)} on one split")
        run.work(prune_at=max(1, options.max_epochs // FIRST_CUT) if halving else None, shown=shown)
        if halving:  # who gave up is no candidate
            entries = entries_of(run, settings, [split])
            left = {entry.setting for entry in entries if entry.record and not entry.record.pruned}
            settings = [setting for setting in settings if setting in left]
    first = [entry for entry in entries_of(run, settings, [split]) if entry.seed == options.seed]
    average = options.rule == "average"
    if average:
        scores = honest_scores(first, run.groups, both=False)
    else:
        scores = validation_scores(first, run.groups, twins=False)
    by_key = {setting.key: setting for setting in settings}
    # A list for every network: one that is best for some people must not crowd out another's settings.
    kept = []
    for own in dict.fromkeys(list_of(setting, apart=apart) for setting in settings):
        kept += shortlist(scores, {k: s.method for k, s in by_key.items() if list_of(s, apart=apart) == own})
    return [by_key[key] for key in kept]


def all_go_on(settings: Sequence[Setting], *, apart: bool) -> bool:
    """Are shortlists long enough for every setting, whatever stage one would find? apart: one for each network."""
    counts = Counter((list_of(setting, apart=apart), setting.method) for setting in settings)
    return max(counts.values(), default=0) <= SHORTLIST_PER_METHOD


def fold_stage(run: Run, candidates: Sequence[Setting], tell: Tell, *, shown: bool | None) -> None:
    """Every candidate on every fold, with every seed: stage two, where there was a stage one."""
    options, folds = run.options, run.folds()
    jobs = [(s, fold, seed) for s in candidates for seed in seeds_of(run, s) for fold in folds]
    jobs.sort(key=lambda job: job[2])  # a seed after the other: what is stopped early has whole seeds
    run.add(run.entry("folds", setting, *fold, seed) for setting, fold, seed in jobs)
    numbers = {"candidate": len(candidates), "fold": len(folds), "seed": options.seeds}
    work = " × ".join(f"{n} {what}{'s' * (n != 1)}" for what, n in numbers.items())
    tell(f"{stage_name('folds', staged=bool(run.ledger.entries('search', records=False)))}: {work}")
    run.work(shown=shown)


def decide(run: Run, candidates: Sequence[Setting]) -> tuple[Choice, Weights | None, Nested | None]:
    """The choice for everybody and, beside it, what would have been decided for each subject without them. With rule
    average, the weights of what is delivered as well, and those found without each subject."""
    options, folds, subjects = run.options, run.folds(), run.recordings.subjects
    rule, entries = RULES[options.rule], entries_of(run, candidates, folds)
    scored = set(scorable(run.recordings))
    scores = [score for score in rule.scores(entries, run.groups) if score.subject in scored]
    keys = [setting.key for setting in candidates]
    others = {person: without_subject(scores, person) for person in sorted(scored)}
    plain = [setting.key for setting in candidates if setting.penalty is None]
    picks = {
        "chosen": dict.fromkeys(others, rule.choose(scores, keys)),
        "baseline": dict.fromkeys(others, candidates[0].key),
        "best_uncensored": dict.fromkeys(others, rule.choose(scores, plain)),
        "nested": {test: rule.choose(own, keys) for test, own in others.items()},
        "nested_uncensored": {test: rule.choose(own, plain) for test, own in others.items()},
    }
    said = Said.of(run, candidates, entries)
    weights = nested = free = None
    if options.rule == "average":
        alive = {entry.setting for entry in entries if entry.status == "done"}
        among = [k for k, setting in enumerate(candidates) if setting in alive] or [0]
        uncensored = [k for k in among if candidates[k].penalty is None] or among
        weights, nested = find_weights(said, among), find_nested(said, among)
        free = nested if uncensored == among else find_nested(said, uncensored)

    # Only now are test scores looked at, and nothing below this line decides.
    by_key = {setting.key: setting for setting in candidates}
    place = {key: k for k, key in enumerate(keys)}
    named = {key: Named(options.name_of(setting), setting) for key, setting in by_key.items()}
    overall = {role: next(iter(own.values())) for role, own in picks.items() if not role.startswith("nested")}
    single = scores_on_test(entries, run.groups)

    def alone(role: str) -> Scores:
        return {str(subjects[test]): single[key, test] for test, key in picks[role].items()}

    def together(role: str) -> Scores:
        return {str(subjects[t]): said.score(t, said.of_person(t)[place[key]]) for t, key in picks[role].items()}

    def averaged(found: Nested) -> Scores:
        return {str(subjects[test]): said.score(test, own) for test, own in found.said.items()}

    delivered = {role: together(role) for role in picks}
    final = {t: said.of_person(t)[place[key]] for t, key in picks["nested"].items()} if nested is None else nested.said
    nested_scores, nested_uncensored = alone("nested"), alone("nested_uncensored")
    adaptations = {test: by_key[key].adaptation for test, key in picks["nested"].items()}
    adaptation, average = by_key[overall["chosen"]].adaptation, None
    if weights is not None and nested is not None and free is not None:
        average = describe(run, candidates, said, weights, nested, choosing=delivered["nested"])
        nested_scores, nested_uncensored = averaged(nested), averaged(free)
        delivered |= {"nested_choice": delivered["nested"], "nested": nested_scores}
        delivered["nested_uncensored"] = nested_uncensored
        adaptations = {test: _adaptation(candidates, own) for test, own in nested.weights.items()}
        adaptation = _adaptation(candidates, weights)
    choice = Choice(
        chosen=named[overall["chosen"]],
        baseline=named[overall["baseline"]],
        best_uncensored=named[overall["best_uncensored"]],
        baseline_won=overall["chosen"] == overall["baseline"],
        shortlist=list(named.values()),
        validation_q25={named[key].name: lower_quartile(scores, key) for key in keys},
        validation_mean={named[key].name: float(by_subject(scores, key).mean()) for key in keys},
        test_scores={role: alone(role) for role in overall},
        nested_test_scores=nested_scores,
        nested_uncensored_test_scores=nested_uncensored,
        nested_choices={str(subjects[t]): named[key].name for t, key in picks["nested"].items()},
        delivered_test_scores=delivered,
        transductive=adaptation == "transductive",
        adaptation=adaptation,
        nested_adaptations={str(subjects[t]): kind for t, kind in adaptations.items()},
        average=average,
        not_scored=not_scored(run.recordings),
        chance=1 / run.recordings.n_classes,
        other_metrics=other_metrics(said, {str(subjects[test]): (test, own) for test, own in final.items()}),
        confusions={str(subjects[test]): confusion(said.y[test], own) for test, own in final.items()},
        reliability={str(subjects[test]): reliability(said.y[test], own) for test, own in final.items()},
        at_least=options.at_least,
    )
    return choice, weights, nested


def _adaptation(candidates: Sequence[Setting], weights: Weights) -> str:
    """What the weighted candidates use of a new person."""
    used = [s.adaptation for s, beta in zip(candidates, weights.exponents, strict=True) if beta > 0]
    return strongest(used)


def describe(
    run: Run, candidates: Sequence[Setting], said: Said, weights: Weights, nested: Nested, choosing: Scores
) -> Average:
    """What choice.json says of an average. choosing: scores of the best single candidate, chosen without the person."""
    names, kinds = [run.options.name_of(one) for one in candidates], [one.kind for one in candidates]
    subjects = [str(subject) for subject in run.recordings.subjects]
    heaviest = np.argsort(-weights.exponents, kind="stable")[: np.count_nonzero(weights.exponents)].tolist()
    members = members_of(run, candidates, weights)
    return Average(
        weights=[Weighted(names[k], kinds[k], float(weights.shares[k]), members[candidates[k]]) for k in heaviest],
        temperature=weights.temperature,
        nested_weights={
            subjects[p]: {names[k]: float(own.shares[k]) for k in np.flatnonzero(own.exponents).tolist()}
            for p, own in nested.weights.items()
        },
        choosing_test_scores=choosing,
        equal_test_scores={subjects[p]: said.score(p, said.of_person(p).mean(0)) for p in said.people},
        without_kind={
            kind: {subjects[p]: value for p, value in without_kind(said, nested, kinds, kind).items()}
            for kind in dict.fromkeys(kinds)
        },
        calibration=calibration(said, nested),
    )


def other_metrics(said: Said, delivered: dict[str, tuple[int, NDArray[np.floating]]]) -> dict[str, Scores]:
    """Beside the one that decides, from the log-probabilities (n, C) that the delivered model has for each person."""
    return {
        name: {subject: metric.score(said.y[p], np.exp(own)) for subject, (p, own) in delivered.items()}
        for name, metric in METRICS.items()
        if name not in (BALANCED_ACCURACY, "accuracy")
    }


def scores_on_test(entries: Sequence[Entry], groups: Groups) -> dict[tuple[str, int], float]:
    """Mean test score of each setting (by key) on each test subject over the seeds."""
    values: dict[tuple[str, int], list[float]] = {}
    for entry in entries:
        for person in groups[entry.test] if entry.record is not None else ():
            score = math.nan if entry.record is None else entry.record.score_on(person)
            values.setdefault((entry.setting.key, person), []).append(score)
    return {key: _mean(scores) for key, scores in values.items()}


def _mean(scores: Sequence[float]) -> float:
    """Over the seeds that measured anything; a training that failed at once has no score."""
    found = [score for score in scores if math.isfinite(score)]
    return float(np.mean(found)) if found else math.nan


def conduct(run: Run, tell: Tell, *, shown: bool | None = None, played: int = PEOPLE) -> Choice:
    """Whatever of the procedure is not yet done; leaves results.csv, choice.json and model/ in the run's folder.
    played: how many people at most are played back."""
    check_packages(run.options)
    budget = Budget.of(run)
    if budget is not None:
        budget.limit_search()
    candidates = search_stage(run, tell, shown=shown) + closed_forms(run.options, run.recordings)
    if budget is None:
        fold_stage(run, candidates, tell, shown=shown)
    else:
        candidates = budget.train(candidates, tell, shown=shown)
    choice, weights, nested = decide(run, candidates)
    if run.options.nested == "full":
        from .nested import full_nesting

        full = full_nesting(run, tell, shown=shown)
        choice = replace(choice, nested_full_choices=full.choices, nested_full_test_scores=full.test_scores)
    write_results(run)
    late = None if budget is None else budget.until - PLAYED_BEFORE * budget.plan.finishing
    beside = peer_scores(run, late)
    choice = replace(choice, peers=beside.scores, skipped_peers=beside.skipped)
    if nested is not None:
        choice = replace(choice, playback=play_back(run, candidates, nested, played, late))
    if budget is not None:
        if nested is not None and choice.playback is None and late is not None and time.monotonic() > late:
            budget.note("held-out people who play their windows to the model")
        budget.spend()
        choice = replace(choice, left_out=budget.left_out)
    build_models(run, candidates, weights, choice, tell)
    write_atomically(run.folder / "choice.json", json.dumps(schema.to_values(choice), indent=1))
    run.ledger.remember(complete=True)
    return choice


def write_results(run: Run) -> None:
    found = trained(run.ledger.entries(), run.data.subjects, run.options.name_of, run.groups)
    write_atomically(run.folder / "results.csv", csv_of(results_table(found)))
