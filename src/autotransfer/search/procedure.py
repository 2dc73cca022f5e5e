"""AutoTransfer from the first job to the choice: preparation, stage one, shortlist, every fold, honest estimates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs.files import write_atomically
from ..runs.ledger import Entry
from ..runs.results import results_table
from ..runs.run import Run, Tell, check_packages
from ..runs.sqlite_errors import explained_below
from ..settings import Setting
from .delivered import delivered_scores
from .models import build_models
from .preparation import Preparations, preparation_stage, traits
from .stages import (
    LEAD,
    SHORTLIST_PER_METHOD,
    by_subject,
    choose,
    clearly_ahead,
    lower_quartile,
    shortlist,
    without_subject,
)
from .validation import entries_of, validation_scores

FIRST_CUT = 8  # successive halving begins after this part of the epochs


def search_stage(run: Run, prepared: Preparations | None, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Stage one: every setting on one fixed split. Returns the shortlist, the baseline first."""
    options, folds = run.options, run.folds()
    if options.search == "tpe":
        from .tpe import tpe_search

        with explained_below(run.folder / "optuna.sqlite"):
            settings = tpe_search(run, tell, shown=shown)
    else:
        settings = options.settings() if prepared is None else prepared.prepared(options.settings())
        run.add(run.entry("search", setting, *folds[0], options.seed) for setting in settings)
        halving = options.search == "halving"
        if not halving and all_go_on(settings, apart=prepared is not None):
            tell(f"stage one: {len(settings)} settings, few enough for all to go on")
            return settings
        tell(f"stage one: {len(settings)} settings on one split")
        run.work(prune_at=max(1, options.max_epochs // FIRST_CUT) if halving else None, shown=shown)
        if halving:  # who gave up is no candidate
            entries = entries_of(run, settings, [folds[0]], [options.seed])  # the plain network's was made before
            left = {entry.setting for entry in entries if entry.record and not entry.record.get("pruned")}
            settings = [setting for setting in settings if setting.to_json() in left]
    first = entries_of(run, settings, [folds[0]], [options.seed])
    scores = validation_scores(first, twins=False)
    by_key = {setting.key: setting for setting in settings}
    # A list for every preparation: one that is kept for some subjects must not crowd out the other's settings.
    preparations = dict.fromkeys(traits(setting) for setting in settings) if prepared else [None]
    kept = []
    for own in preparations:
        methods = {k: s.method for k, s in by_key.items() if own is None or traits(s) == own}
        kept += shortlist(scores, methods)
    return [by_key[key] for key in kept]


def all_go_on(settings: Sequence[Setting], *, apart: bool) -> bool:
    """Are shortlists long enough for every setting, whatever stage one would find? apart: one for each preparation."""
    counts = Counter((traits(setting) if apart else None, setting.method) for setting in settings)
    return max(counts.values(), default=0) <= SHORTLIST_PER_METHOD


def fold_stage(run: Run, candidates: Sequence[Setting], tell: Tell, *, shown: bool | None) -> None:
    """Stage two: the shortlist on every fold, with every seed."""
    options, folds = run.options, run.folds()
    run.add(run.entry("folds", s, *fold, seed) for seed in options.every_seed for s in candidates for fold in folds)
    tell(f"stage two: {len(candidates)} candidates × {len(folds)} folds × {options.seeds} seeds")
    run.work(shown=shown)


def decide(run: Run, candidates: Sequence[Setting], prepared: Preparations | None = None) -> dict[str, Any]:
    """The published choice and, beside it, the choice remade for each subject without their scores."""
    options, folds, subjects = run.options, run.folds(), run.recordings.subjects
    entries = entries_of(run, candidates, folds, options.every_seed)
    scores = validation_scores(entries)
    keys = [setting.key for setting in candidates]
    others = {test: without_subject(scores, test) for _, test in folds}
    allowed = dict.fromkeys(others, keys)
    if prepared is not None:
        keys = prepared.allowed(candidates)
        allowed = {test: prepared.allowed(candidates, test) for test in others}
    ahead, ahead_of = clearly_ahead(scores, keys), {t: clearly_ahead(others[t], own) for t, own in allowed.items()}
    # a run that may change the network itself leaves the plain one only for what is clearly better
    among, among_of = (keys, allowed) if prepared is None else (ahead, ahead_of)
    plain = {setting.key for setting in candidates if setting.method is None}
    baseline = candidates[0].key
    picks = {
        "chosen": dict.fromkeys(others, choose(scores, among)),
        "baseline": dict.fromkeys(others, baseline),
        "best_uncensored": dict.fromkeys(others, choose(scores, [key for key in keys if key in plain])),
        "careful": dict.fromkeys(others, choose(scores, ahead)),
        "nested": {t: choose(others[t], own) for t, own in among_of.items()},
        # need not be clearly ahead: what a preparation gives must not pass for the censor's
        "nested_uncensored": {t: choose(others[t], [k for k in own if k in plain]) for t, own in allowed.items()},
        "nested_careful": {t: choose(others[t], own) for t, own in ahead_of.items()},
    }

    # Only now are test scores looked at, and nothing below this line chooses.
    by_key = {setting.key: setting for setting in candidates}
    name = {key: options.name_of(setting) for key, setting in by_key.items()}
    overall = {role: next(iter(own.values())) for role, own in picks.items() if not role.startswith("nested")}
    adaptations = {str(subjects[t]): by_key[key].adaptation for t, key in picks["nested"].items()}
    single = scores_on_test(entries)
    pairs = [(by_key[key], test) for own in picks.values() for test, key in own.items()]
    together = single | delivered_scores(run, entries, pairs)

    def of(role: str, known: dict[tuple[str, int], float]) -> dict[str, float]:
        return {str(subjects[test]): known[key, test] for test, key in picks[role].items()}

    return {
        **{role: _told(by_key[key], name[key]) for role, key in overall.items()},
        "baseline_won": overall["chosen"] == overall["baseline"],
        "shortlist": list(name.values()),
        "validation_q25": {name[key]: lower_quartile(scores, key) for key in keys},
        "validation_mean": {name[key]: float(by_subject(scores, key).mean()) for key in keys},
        "test_scores": {role: of(role, single) for role in overall},
        **{f"{role}_test_scores": of(role, single) for role in picks if role not in overall},
        "delivered_test_scores": {role: of(role, together) for role in picks},
        "nested_choices": {str(subjects[t]): name[key] for t, key in picks["nested"].items()},
        "transductive": by_key[overall["chosen"]].adaptation == "transductive",
        "adaptation": by_key[overall["chosen"]].adaptation,
        "nested_adaptations": adaptations,
    } | ({} if prepared is None else {"preparations": _preparations(prepared), "lead": LEAD})


def _preparations(prepared: Preparations) -> list[dict[str, Any]]:
    """How the plain network did with every way to prepare windows, by validation."""
    return [
        {
            **traits(setting)._asdict(),
            "validation_q25": lower_quartile(prepared.scores, setting.key),
            "validation_mean": float(by_subject(prepared.scores, setting.key).mean()),
            "kept": setting in prepared.needed,
        }
        for setting in prepared.tried
    ]


def scores_on_test(entries: Sequence[Entry]) -> dict[tuple[str, int], float]:
    """Mean test score of each setting (by key) on each test subject over the seeds."""
    values: dict[tuple[str, int], list[float]] = {}
    for entry in entries:
        if entry.record is not None:
            key = Setting.from_json(entry.setting).key
            values.setdefault((key, entry.test), []).append(entry.record["test_score"])
    return {key: float(np.mean(scores)) for key, scores in values.items()}


def _told(setting: Setting, name: str) -> dict[str, Any]:
    return setting.as_row() | {"name": name}


def conduct(run: Run, tell: Tell, *, shown: bool | None = None) -> dict[str, Any]:
    """Whatever of the procedure is not yet done; leaves results.csv, choice.json and model/ in the run's folder."""
    check_packages(run.options)
    prepared = preparation_stage(run, tell, shown=shown)
    candidates = search_stage(run, prepared, tell, shown=shown)
    fold_stage(run, candidates, tell, shown=shown)
    choice = decide(run, candidates, prepared)
    if run.options.nested == "full":
        from .nested import full_nesting

        choice |= full_nesting(run, tell, shown=shown)
    write_results(run)
    chosen = next(setting for setting in candidates if run.options.name_of(setting) == choice["chosen"]["name"])
    build_models(run, chosen, choice, tell)
    write_atomically(run.folder / "choice.json", json.dumps(choice, indent=1))
    run.ledger.remember(complete=True)
    return choice


def write_results(run: Run) -> None:
    table = results_table(run.ledger.entries(), run.recordings.subjects, run.options.name_of)
    write_atomically(run.folder / "results.csv", table.to_csv(index=False))
