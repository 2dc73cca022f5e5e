"""Sessions or values of a column can be held out, with scores by subject."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import groups_of, leave_groups_out, use_units, use_whole_subjects
from autotransfer.recordings import save_npz
from autotransfer.recordings.units import Units
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.database import Entry
from autotransfer.runs.run import Run
from autotransfer.search.diagnosis import merge_units
from autotransfer.search.procedure import perform_plan
from faults import quiet
from tiny import create_run, described

PEOPLE, SESSIONS, PER = 5, 2, 10
NAMES = [f"P{person}" for person in range(PEOPLE)]


def recorded(sessions: list[int] | None = None, sites: int = 3, seed: int = 0) -> at.Recordings:
    """Subjects with so many sessions each, whose windows alternate, and a site for every session."""
    draw = np.random.default_rng(seed)
    counts = [SESSIONS] * PEOPLE if sessions is None else sessions
    subject = np.concatenate([np.full(n * PER, person) for person, n in enumerate(counts)])
    session = np.concatenate([np.tile(np.arange(1, n + 1), PER) for n in counts])
    y = np.concatenate([np.repeat(np.arange(PER) % 2, n) for n in counts])
    X = draw.standard_normal((len(y), 2, 16))
    X[:, 0] += 0.7 * np.where(y[:, None], np.sin(np.arange(16)), np.cos(np.arange(16)))
    X[:, 1] += (subject + session)[:, None] * np.sin(np.arange(16) / 2)
    site = np.array([f"site {n}" for n in range(sites)])[(subject + session) % sites]
    return at.Recordings(
        X, y, np.array(NAMES)[subject], session=session, sfreq=16, classes=["left", "right"],
        columns={"site": site, "age": 20.5 + subject}, name="days",
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("sessions")
    save_npz(folder / "days.npz", recorded())
    options = described(
        source=str(folder / "days.npz"), hold_out="session", max_epochs=2, batch_size=8, lr=1e-2, device="cpu",
        adaptation="zero-shot", grid="uncensored", networks="none", kinds="features",
    )  # fmt: skip
    run = create_run(folder / "run", options)
    return run, perform_plan(run, quiet, progress=False)


# ---- folds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [None, [2, 3, 5, 2, 4], [4, 3, 6, 3, 3]])
def test_a_fold_leaves_out_a_session_of_every_training_subject(counts: list[int] | None) -> None:
    rec = recorded(counts)
    who, session = rec.subject.numpy(), rec.session.numpy()
    folds = leave_groups_out(use_units(rec, "session"))
    assert len(folds) == 2 * min(counts or [SESSIONS])
    for fold in folds:
        assert set(who[fold.train]) == set(range(PEOPLE)), "everybody is known"
        assert set(who[fold.validation]) | set(who[fold.test]) == set(range(PEOPLE))
        assert not set(who[fold.validation]) & set(who[fold.test])
        sides = [{(p, s) for p, s in zip(who[rows], session[rows], strict=True)} for rows in (fold.train, fold.test)]
        assert not sides[0] & sides[1], "no session is on both sides"
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(rec.n_windows)), "each is tested once"


def test_a_value_of_a_column_is_left_out_as_a_whole() -> None:
    rec = recorded()
    site = rec.columns["site"].values
    folds = leave_groups_out(use_units(rec, "site"))
    assert [set(site[fold.test]) for fold in folds] == [{0}, {1}, {2}]
    assert [set(site[fold.validation]) for fold in folds] == [{2}, {0}, {1}]
    for fold in folds:
        assert not set(site[fold.train]) & {*site[fold.test], *site[fold.validation]}
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(rec.n_windows))


def test_scores_of_units_become_scores_of_subjects() -> None:
    units = Units(hold_out="session", names=("a, 1", "a, 2", "b, 1"), people=("a", "a", "b"), parts=(0, 1, 0))
    assert (units.n_parts, units.unique_subjects) == (2, ("a", "b"))
    assert units.average_by_subject({"b, 1": 0.5, "a, 1": 0.25, "a, 2": 0.75}) == {"a": 0.5, "b": 0.5}
    assert units.average_by_subject({"a, 2": 0.75}) == {"a": 0.75}, "a unit without a score counts nothing"
    broken: list[dict[str, Any]] = [{"parts": (0, 2, 0)}, {"people": ("a", "b")}, {"names": ("a, 1",)}]
    for changes in broken:
        with pytest.raises(UserError, match="held-out units"):
            replace(units, **changes)


def test_subjects_are_held_out_by_default() -> None:
    rec = recorded()
    assert use_units(rec, "subject") is rec
    units = use_units(rec, "session")
    assert units.n_subjects == PEOPLE * SESSIONS
    assert list(units.people) == NAMES
    assert len(groups_of(use_units(recorded([4] * PEOPLE), "session"), 3)) == 6
    assert use_units(units, "session") is units, "they are units already"
    again = use_whole_subjects(units)
    assert use_whole_subjects(rec) is rec
    for one, other in ((rec, units), (units, again)):
        one.derived["kept"] = 1  # what was worked out of one is wrong of the other
        assert "kept" not in other.derived
    assert again.subject.tolist() == rec.subject.tolist()
    assert list(again.subjects) == NAMES


# ---- a run -----------------------------------------------------------------------------------------------------------


def test_a_subjects_score_is_the_mean_over_sessions(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    tables = [choice.nested_test_scores, *choice.test_scores.values(), *choice.alternatives.values()]
    tables += [*choice.baselines.values(), choice.confusions]
    assert [sorted(own) for own in tables] == [NAMES] * len(tables)
    rows = pd.read_csv(run.folder / "results.csv")
    plain = rows[rows["setting"] == choice.chosen.name].set_index("test_subject")["test_score"]
    for name in NAMES:
        sessions = [plain[f"{name}, session {number}"] for number in (1, 2)]
        assert choice.test_scores["chosen"][name] == pytest.approx(np.mean(sessions))
    windows = {name: int(np.sum(counts)) for name, counts in choice.confusions.items()}
    assert windows == dict.fromkeys(NAMES, SESSIONS * PER)
    assert choice.replay is None or set(choice.replay.zero_shot["recorded"]) <= set(NAMES)


def test_windows_of_a_subject_keep_their_order(finished: tuple[Run, Choice]) -> None:
    run, _ = finished
    rec = run.recordings
    rows = np.arange(rec.n_windows, dtype=float)[:, None].repeat(2, 1)
    units = {unit: rows[rec.subject.numpy() == unit] for unit in range(rec.n_subjects)}
    for person, own in merge_units(rec, units).items():
        np.testing.assert_array_equal(own[:, 0], np.flatnonzero(use_whole_subjects(rec).subject.numpy() == person))
    del units[0]
    assert sorted(merge_units(rec, units)) == list(range(1, PEOPLE))


@pytest.mark.parametrize("standardize", ["train", "online", "transductive"])
def test_windows_of_a_held_out_session_change_nothing_that_is_trained(standardize: str) -> None:
    """Neither weights nor what is known of the same subject's other session."""
    rec = use_units(recorded(), "session")
    fold = leave_groups_out(rec)[0]
    corrupt = rec.X.clone()
    corrupt[np.concatenate([fold.test, fold.validation])] *= 50
    raw = recorded()
    other = use_units(
        at.Recordings(corrupt, raw.y, raw.subject, session=raw.session, sfreq=16, subjects=raw.subjects), "session"
    )
    job = at.Job(at.Setting(max_epochs=2, batch_size=8, checkpoint="last", standardize=standardize), fold)
    (one,), (two,) = (at.train(data, [job], "cpu") for data in (rec, other))
    for name, tensor in one.final_state.items():
        np.testing.assert_array_equal(tensor.numpy(), two.final_state[name].numpy(), err_msg=name)


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_folds(finished: tuple[Run, Choice], tmp_path: Path) -> None:
    run, choice = finished
    fresh = create_run(tmp_path / "run", run.options)
    fresh.database.close()
    opened = Run.open(tmp_path / "run", lazy=True)
    assert opened.groups == run.groups, "known without the data"
    opened.database.add(Entry.build("folds", choice.shortlist[0].setting, *opened.folds()[0], 0) for _ in range(1))
    opened.train(progress=False)
    opened.database.close()
    again = perform_plan(Run.open(tmp_path / "run"), quiet, progress=False)
    assert again.nested_test_scores == choice.nested_test_scores
    assert again.headline == choice.headline
    assert read_choice(tmp_path / "run").hold_out == "session"
