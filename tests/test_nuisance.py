"""Nuisances other than people: groups of sessions and columns, what training makes of them, how they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import autotransfer as at
from autotransfer.recordings import save_npz
from autotransfer.runs import options as options_module
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search import decision, procedure
from autotransfer.search.validation import validation_scores
from autotransfer.training.groups import MemberGroups
from autotransfer.training.leakage import leakage_within
from autotransfer.training.nuisance import QUANTILES, cut, most_groups, nuisance_groups
from test_columns import refused, with_columns
from tiny import assert_same_outcome, create_run, tiny

CPU = torch.device("cpu")


# --- groups ------------------------------------------------------------------------------------------------


def naive_groups(parts: list[list[Any]], rows: list[int]) -> list[int]:
    """Combinations in sorted order, one by one; None is missing."""
    own = [tuple(part[row] for part in parts) for row in range(len(parts[0]))]
    known = sorted({own[row] for row in rows if None not in own[row]})
    return [known.index(own[row]) if row in rows and None not in own[row] else -1 for row in range(len(own))]


def test_groups_are_the_combinations_that_training_rows_have() -> None:
    rec = tiny(n_subjects=4, per_class=5)
    draw = np.random.default_rng(0)
    day = draw.integers(0, 3, rec.n_trials)
    place: list[Any] = draw.choice(["left", "right", ""], rec.n_trials).tolist()
    rec = with_columns(rec, session=7 + 5 * day, place=place, one=["same"] * rec.n_trials)
    rows = at.leave_one_subject_out(rec)[1].train
    parts = {"subject": rec.subject.tolist(), "session": day.tolist(), "place": [p or None for p in place]}
    for nuisance in ("subject", "session", "place", "subject+session", "place+session", "subject+session+place"):
        expected = naive_groups([parts[name] for name in nuisance.split("+")], rows.tolist())
        found = nuisance_groups(rec, nuisance, rows)
        if nuisance == "place+session":  # in one order, whatever the spelling
            expected = naive_groups([parts["session"], parts["place"]], rows.tolist())
        assert found.tolist() == expected, nuisance
        everywhere = naive_groups([parts[name] for name in nuisance.split("+")], list(range(rec.n_trials)))
        assert most_groups(rec, nuisance) == max(everywhere) + 1 >= found.max() + 1


def test_a_continuous_column_is_cut_at_quantiles_of_the_training_rows() -> None:
    draw = np.random.default_rng(1)
    values = draw.standard_normal(800)
    values[::50] = np.nan
    rows = np.arange(0, 800, 2)
    found, known = cut(values, rows), ~np.isnan(values)
    edges = np.quantile(values[rows][known[rows]], np.arange(1, QUANTILES) / QUANTILES)
    assert found.tolist() == [-1 if np.isnan(v) else sum(v >= edge for edge in edges) for v in values]
    counts = np.bincount(found[rows][known[rows]])
    assert len(counts) == QUANTILES
    assert counts.max() - counts.min() <= 1
    assert cut(values + 0, rows[:3])[known].max() < 3, "few values are groups each"
    few = np.array([2.5, 40.0, 2.5, 7.0, np.nan])
    assert cut(few, np.arange(5)).tolist() == [0, 2, 0, 1, -1]


def test_trials_without_a_value_are_drawn_and_count_in_no_penalty() -> None:
    rec = tiny(n_subjects=4, per_class=8)
    days: list[Any] = [None if n % 4 == 0 else n % 2 for n in range(rec.n_trials)]
    rec = with_columns(rec, day=days)
    fold = at.leave_one_subject_out(rec)[0]
    job = at.Job(at.Setting(method="mmd", nuisance="day", batch_size=8), fold)
    groups = MemberGroups(rec, [job], 8, CPU)
    missing = np.array([day is None for day in days])
    assert (groups.rank[0].numpy()[missing] == -1).all()
    assert (groups.rank[0].numpy()[fold.train][~missing[fold.train]] >= 0).all()
    drawn = groups.plan(1)[:, 0].ravel().numpy()
    assert missing[drawn].any()
    shuffled = MemberGroups(rec, [at.Job(job.setting.replace(shuffle_subjects=True), fold)], 8, CPU).rank[0].numpy()
    assert (shuffled == -1).tolist() == (groups.rank[0].numpy() == -1).tolist()


# --- what is unchanged, and what must be equal -------------------------------------------------------------


@pytest.mark.parametrize("batches", ["balanced", "shuffled"])
def test_a_column_of_people_is_the_subject(batches: str) -> None:
    rec = tiny(n_subjects=5, per_class=8)
    rec = with_columns(rec, who=[f"person {9 - s}" for s in rec.subject.tolist()], twin=rec.subject.tolist())
    fold = at.leave_one_subject_out(rec)[0]
    common = {"method": "mmd", "mode": "conditional", "strength": 0.5, "max_epochs": 3, "batch_size": 16}
    names = ("subject", "twin", "subject+twin")
    jobs = [at.Job(at.Setting(**common, batches=batches, nuisance=name), fold) for name in names]
    found = at.train(rec, jobs, "cpu", progress=False)
    assert_same_outcome(found[1], found[0])
    assert_same_outcome(found[2], found[0])
    assert sum(found[0].history["penalty"]) != 0


def uneven(n_subjects: int = 5, per_class: int = 12) -> at.Recordings:
    """Everybody has one session more than the person before, so that folds have different numbers of sessions."""
    rec = tiny(n_subjects=n_subjects, per_class=per_class)
    who = rec.subject.numpy()
    return with_columns(rec, session=np.arange(len(who)) % (who + 2), hour=np.linspace(0, 1, len(who)) % 0.31)


@pytest.mark.parametrize("method", ["adversary", "began"])
def test_stacked_equals_alone_where_folds_have_different_numbers_of_sessions(method: str) -> None:
    rec = uneven()
    folds = at.leave_one_subject_out(rec)
    numbers = {nuisance_groups(rec, "subject+session", fold.train).max() for fold in folds}
    assert len(numbers) > 1
    common = {"method": method, "mode": "conditional", "strength": 0.3, "max_epochs": 2, "batch_size": 16}
    settings = [at.Setting(**common, nuisance=name) for name in ("subject+session", "hour", "subject")]
    jobs = [at.Job(setting, fold) for setting in settings for fold in folds]
    together = at.train(rec, jobs, "cpu", progress=False)
    assert together[0].population == len(jobs), "one stack"
    for place in (0, 4, 6, 11):
        (alone,) = at.train(rec, [jobs[place]], "cpu", progress=False)
        assert_same_outcome(together[place], alone)
        for name, tensor in alone.final_state.items():
            assert torch.equal(tensor, together[place].final_state[name]), name


def shifted(seed: int = 0) -> at.Recordings:
    """Classes differ in one channel; the two days of everybody differ in the other."""
    draw = np.random.default_rng(seed)
    subject, y = np.repeat(np.arange(5), 64), np.tile([0, 1], 160)
    day = np.repeat(np.tile([0, 1], 80), 2)
    X = draw.standard_normal((len(y), 2, 16))
    X[:, 0] += 2 * np.where(y[:, None], np.sin(np.arange(16)), np.cos(np.arange(16)))
    X[:, 1] += 2 * np.where(day[:, None], np.sin(np.arange(16) * 2), np.cos(np.arange(16) * 2))
    return at.Recordings(X, y, subject, day, sfreq=16)


def test_a_penalty_on_sessions_lowers_their_leakage_and_shuffled_sessions_do_not() -> None:
    rec = shifted()
    fold = at.leave_one_subject_out(rec)[0]
    common = {"max_epochs": 30, "batch_size": 64, "lr": 5e-3, "checkpoint": "last"}
    own = {"method": "mmd", "mode": "conditional", "strength": 10.0, "nuisance": "session", **common}
    settings = {
        "plain": at.Setting(**common, batches="balanced"),
        "true": at.Setting(**own),
        "shuffled": at.Setting(**own, shuffle_subjects=True),
    }
    outcomes = at.train(rec, [at.Job(setting, fold) for setting in settings.values()], "cpu", progress=False)
    z, _ = at.encode(rec, outcomes, fold.train, final=True)
    session = rec.session.numpy()[fold.train]
    excess = {name: at.leakage(codes, session).excess for name, codes in zip(settings, z, strict=True)}
    print(excess)
    assert excess["plain"] > 0.4
    assert excess["true"] < 0.5 * excess["plain"]
    assert excess["shuffled"] > 0.8 * excess["plain"]
    assert outcomes[1].validation_score > 0.8


N = 48

# --- estimators --------------------------------------------------------------------------------------------


# --- whole runs --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on sessions, of which the censored setting is chosen whatever it scores."""
    folder = tmp_path_factory.mktemp("run")
    rec = with_columns(tiny(), session=np.arange(N) // 2 % 2, age=np.repeat([20.0, 31.5, 42.0, 60.0], 12))
    save_npz(folder / "a.npz", rec)
    options = RunOptions(
        source=str(folder / "a.npz"), epochs=1, device="cpu", rule="published", nuisance="session+subject"
    )
    few = [at.Setting(), at.Setting(batches="balanced"), at.Setting(method="mmd", mode="conditional", strength=0.3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options_module, "grid", lambda name: few)
        patch.setitem(decision.RULES, "published", decision.Ranking(validation_scores, lambda scores, keys: keys[-1]))
        found = create_run(folder / "run", options)
        procedure.conduct(found, lambda _: None, shown=False)
    return found


def test_a_run_has_the_nuisance_on_its_penalties_and_resumes_with_it(run: Run, tmp_path: Path) -> None:
    assert run.options.nuisance == "subject+session"
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    assert set(table[table.method == "mmd"].nuisance) == {"subject+session"}
    assert set(table[table.method == "none"].nuisance) == {"none"}
    again = Run.open(run.folder)
    assert again.options == run.options
    again.ledger.close()
    changed = with_columns(run.recordings, session=np.arange(N) % 2)
    refused(lambda: Run.open(run.folder, recordings=changed), "is not what")


def test_leakage_within_is_the_mean_over_people() -> None:
    draw = np.random.default_rng(0)
    who, day = np.repeat([0, 1, 2], 80), np.tile([0, 1], 120)
    z = draw.standard_normal((240, 3)) + 30 * who[:, None]
    z[:, 0] += np.array([6.0, -6.0, 0.0])[who] * day  # days differ, but not in the same way
    own = [at.leakage(z[who == person], day[who == person]) for person in range(3)]
    found = leakage_within(z, day, who)
    assert found is not None
    assert found.accuracy == pytest.approx(np.mean([leak.accuracy for leak in own]))
    assert found.bits == pytest.approx(np.mean([leak.bits for leak in own]))
    assert found.accuracy > at.leakage(z, day).accuracy + 0.1
    missing = np.where(who == 2, -1, day)
    two = leakage_within(z, missing, who)
    assert two is not None
    assert two.accuracy == pytest.approx(np.mean([leak.accuracy for leak in own[:2]]))
    assert leakage_within(z, np.zeros(240, int), who) is None
    assert leakage_within(z, np.arange(240), who) is None, "no group has enough trials"
