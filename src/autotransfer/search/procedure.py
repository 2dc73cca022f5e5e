"""AutoTransfer from the first job to the choice: preprocessing, stage one, shortlist, every fold, nested estimates."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .. import schema
from ..runs.choice import Choice, Named
from ..runs.choice import Compared as ComparedRecord
from ..runs.files import write_atomically
from ..runs.ledger import Entry
from ..runs.results import results_table, trained
from ..runs.run import Run, Tell, check_packages
from ..runs.sqlite_errors import explained_below
from ..settings import Setting
from .delivered import delivered_scores
from .models import build_models
from .preprocessing import Compared, preprocessing_stage, way_of
from .stages import (
    LEAD,
    SHORTLIST_PER_METHOD,
    by_subject,
    choose,
    lower_quartile,
    shortlist,
    two_se_rule,
    without_subject,
)
from .validation import entries_of, validation_scores

FIRST_CUT = 8  # successive halving begins after this part of the epochs


def search_stage(run: Run, compared: Compared | None, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Stage one: every setting on one fixed split. Returns the shortlist, the baseline first."""
    options, folds = run.options, run.folds()
    if options.search == "tpe":
        from .tpe import tpe_search

        with explained_below(run.folder / "optuna.sqlite"):
            settings = tpe_search(run, tell, shown=shown)
    else:
        settings = options.settings() if compared is None else compared.candidates(options.settings())
        run.add(run.entry("search", setting, *folds[0], options.seed) for setting in settings)
        halving = options.search == "halving"
        if not halving and all_go_on(settings, apart=compared is not None):
            tell(f"stage one: {len(settings)} settings, few enough for all to go on")
            return settings
        tell(f"stage one: {len(settings)} settings on one split")
        run.work(prune_at=max(1, options.max_epochs // FIRST_CUT) if halving else None, shown=shown)
        if halving:  # who gave up is no candidate
            entries = entries_of(run, settings, [folds[0]], [options.seed])  # the plain network's was made before
            left = {entry.setting for entry in entries if entry.record and not entry.record.pruned}
            settings = [setting for setting in settings if setting in left]
    first = entries_of(run, settings, [folds[0]], [options.seed])
    scores = validation_scores(first, twins=False)
    by_key = {setting.key: setting for setting in settings}
    # A list for every way: one that is kept for some subjects must not crowd out the other's settings.
    ways = dict.fromkeys(way_of(setting) for setting in settings) if compared else [None]
    kept = []
    for own in ways:
        methods = {k: s.method for k, s in by_key.items() if own is None or way_of(s) == own}
        kept += shortlist(scores, methods)
    return [by_key[key] for key in kept]


def all_go_on(settings: Sequence[Setting], *, apart: bool) -> bool:
    """Are shortlists long enough for every setting, whatever stage one would find? apart: one for each way."""
    counts = Counter((way_of(setting) if apart else None, setting.method) for setting in settings)
    return max(counts.values(), default=0) <= SHORTLIST_PER_METHOD


def fold_stage(run: Run, candidates: Sequence[Setting], tell: Tell, *, shown: bool | None) -> None:
    """Stage two: the shortlist on every fold, with every seed."""
    options, folds = run.options, run.folds()
    run.add(run.entry("folds", s, *fold, seed) for seed in options.every_seed for s in candidates for fold in folds)
    seeds = f"{options.seeds} seed{'s' * (options.seeds > 1)}"
    tell(f"stage two: {len(candidates)} candidates × {len(folds)} folds × {seeds}")
    run.work(shown=shown)


def decide(run: Run, candidates: Sequence[Setting], compared: Compared | None = None) -> Choice:
    """The published choice and, beside it, the choice remade for each subject without their scores."""
    options, folds, subjects = run.options, run.folds(), run.recordings.subjects
    entries = entries_of(run, candidates, folds, options.every_seed)
    scores = validation_scores(entries)
    keys = [setting.key for setting in candidates]
    others = {test: without_subject(scores, test) for _, test in folds}
    allowed = dict.fromkeys(others, keys)
    if compared is not None:
        keys = compared.allowed(candidates)
        allowed = {test: compared.allowed(candidates, test) for test in others}
    ahead, ahead_of = two_se_rule(scores, keys), {t: two_se_rule(others[t], own) for t, own in allowed.items()}
    # a run that may change the network itself leaves the plain one only for what is clearly better
    among, among_of = (keys, allowed) if compared is None else (ahead, ahead_of)
    plain = {setting.key for setting in candidates if setting.penalty is None}
    picks = {
        "chosen": dict.fromkeys(others, choose(scores, among)),
        "baseline": dict.fromkeys(others, candidates[0].key),
        "best_uncensored": dict.fromkeys(others, choose(scores, [key for key in keys if key in plain])),
        "two_se": dict.fromkeys(others, choose(scores, ahead)),
        "nested": {t: choose(others[t], own) for t, own in among_of.items()},
        # need not be clearly ahead: what a preprocessing gives must not pass for the penalty's
        "nested_uncensored": {t: choose(others[t], [k for k in own if k in plain]) for t, own in allowed.items()},
        "nested_two_se": {t: choose(others[t], own) for t, own in ahead_of.items()},
    }

    # Only now are test scores looked at, and nothing below this line chooses.
    by_key = {setting.key: setting for setting in candidates}
    named = {key: Named(options.name_of(setting), setting) for key, setting in by_key.items()}
    overall = {role: next(iter(own.values())) for role, own in picks.items() if not role.startswith("nested")}
    single = scores_on_test(entries)
    pairs = [(by_key[key], test) for own in picks.values() for test, key in own.items()]
    together = single | delivered_scores(run, entries, pairs)

    def of(role: str, known: dict[tuple[str, int], float]) -> dict[str, float]:
        return {str(subjects[test]): known[key, test] for test, key in picks[role].items()}

    chosen = by_key[overall["chosen"]]
    return Choice(
        chosen=named[overall["chosen"]],
        baseline=named[overall["baseline"]],
        best_uncensored=named[overall["best_uncensored"]],
        two_se=named[overall["two_se"]],
        baseline_won=overall["chosen"] == overall["baseline"],
        shortlist=list(named.values()),
        validation_q25={named[key].name: lower_quartile(scores, key) for key in keys},
        validation_mean={named[key].name: float(by_subject(scores, key).mean()) for key in keys},
        test_scores={role: of(role, single) for role in overall},
        nested_test_scores=of("nested", single),
        nested_uncensored_test_scores=of("nested_uncensored", single),
        nested_two_se_test_scores=of("nested_two_se", single),
        nested_choices={str(subjects[t]): named[key].name for t, key in picks["nested"].items()},
        delivered_test_scores={role: of(role, together) for role in picks},
        transductive=chosen.adaptation == "transductive",
        adaptation=chosen.adaptation,
        nested_adaptations={str(subjects[t]): by_key[key].adaptation for t, key in picks["nested"].items()},
        lead=None if compared is None else LEAD,
        preprocessings=[] if compared is None else _told(run, compared),
    )


def _told(run: Run, compared: Compared) -> list[ComparedRecord]:
    """How the plain network did in every way, by validation."""
    return [
        ComparedRecord(
            Named(run.options.name_of(setting), setting),
            validation_q25=lower_quartile(compared.scores, setting.key),
            validation_mean=float(by_subject(compared.scores, setting.key).mean()),
            kept=setting in compared.needed,
        )
        for setting in compared.tried
    ]


def scores_on_test(entries: Sequence[Entry]) -> dict[tuple[str, int], float]:
    """Mean test score of each setting (by key) on each test subject over the seeds."""
    values: dict[tuple[str, int], list[float]] = {}
    for entry in entries:
        if entry.record is not None:
            values.setdefault((entry.setting.key, entry.test), []).append(entry.record.test_score)
    return {key: _mean(scores) for key, scores in values.items()}


def _mean(scores: Sequence[float]) -> float:
    """Over the seeds that measured anything; a training that failed at once has no score."""
    found = [score for score in scores if math.isfinite(score)]
    return float(np.mean(found)) if found else math.nan


def conduct(run: Run, tell: Tell, *, shown: bool | None = None) -> Choice:
    """Whatever of the procedure is not yet done; leaves results.csv, choice.json and model/ in the run's folder."""
    check_packages(run.options)
    compared = preprocessing_stage(run, tell, shown=shown)
    candidates = search_stage(run, compared, tell, shown=shown)
    fold_stage(run, candidates, tell, shown=shown)
    choice = decide(run, candidates, compared)
    if run.options.nested == "full":
        from .nested import full_nesting

        full = full_nesting(run, tell, shown=shown)
        choice = replace(choice, nested_full_choices=full.choices, nested_full_test_scores=full.test_scores)
    write_results(run)
    build_models(run, choice.chosen.setting, choice, tell)
    write_atomically(run.folder / "choice.json", json.dumps(schema.to_values(choice), indent=1))
    run.ledger.remember(complete=True)
    return choice


def write_results(run: Run) -> None:
    found = trained(run.ledger.entries(), run.recordings.subjects, run.options.name_of)
    write_atomically(run.folder / "results.csv", results_table(found).to_csv(index=False))
