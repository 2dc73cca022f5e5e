"""Networks tuned on a person's labelled windows: playback's windows, members that know nothing of each other."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import fine_tuning as tuning
from benchmarks.csv_rows import known_rows
from benchmarks.fine_tuning import TUNINGS, Member, Tuner, members_of
from benchmarks.stacked_peers import Windows
from benchmarks.tuned import tuned

import autotransfer as at
from autotransfer.person.calibration import LABELS
from autotransfer.search import playback
from tiny import tiny, tiny_file

CPU = torch.device("cpu")


def windows_of(recordings: at.Recordings, dtype: torch.dtype = torch.float64) -> Windows:
    return Windows(recordings.X.numpy(), recordings.subject.numpy(), CPU, dtype)


def uneven() -> at.Recordings:
    """Two classes; four people, of whom the last has 4 windows of one class and 10 of the other."""
    whole = tiny(per_class=14)
    subject, y = whole.subject.numpy(), whole.y.numpy()
    place = np.arange(whole.n_trials) // 2 % 14
    rows = np.flatnonzero((subject < 3) | (place < np.where(y == 0, 4, 10)))
    return at.Recordings(whole.X[rows], y[rows], subject[rows], sfreq=16, name="uneven")


def states_of(members: list[Member], recordings: at.Recordings) -> list[tuning.State]:
    folds = list({member.subject: member.task.fold for member in members}.values())
    known = tuning.pooled_networks(recordings, folds, 0, 3, CPU)
    return [known[member.subject] for member in members]


@pytest.mark.parametrize("name", TUNINGS)
def test_a_member_of_the_stack_equals_the_same_member_alone(name: str) -> None:
    recordings, how = uneven(), TUNINGS[name]._replace(steps=min(TUNINGS[name].steps, 5))
    windows, members = windows_of(recordings), members_of(recordings, 0)
    states = states_of(members, recordings) if how.pooled else None
    together = Tuner(windows, members, states)
    together.train(how)
    state, predicted = together.population.state_dict(), together.predict()
    for place in (0, 3, len(members) - 1):
        alone = Tuner(windows, [members[place]], None if states is None else [states[place]])
        alone.train(how)
        for key, value in alone.population.state_dict().items():
            torch.testing.assert_close(state[key][place], value[0], rtol=0, atol=1e-9, msg=key)
        assert (alone.predict()[0] == predicted[place]).all()


def test_labelled_windows_are_the_first_and_never_scored() -> None:
    recordings = tiny(per_class=200)  # more than playback plays
    y = recordings.y.numpy()
    members = members_of(recordings, 0)
    assert [member.labels for member in members] == 4 * list(LABELS)
    for member in members:
        rows = member.task.fold.test
        assert not set(member.known) & set(member.left)
        assert set(member.known) | set(member.left) == set(rows[: playback.WINDOWS])  # classes alternate
        assert (member.known == rows[: 2 * member.labels]).all()
        assert (member.y == y[member.known]).all()


def test_what_is_not_labelled_does_not_matter() -> None:
    """Neither for a network of the person alone nor for one that is tuned: other windows of theirs are only scored."""
    recordings = tiny(per_class=14)
    member = members_of(recordings, 0)[1]
    X = recordings.X.numpy().copy()
    X[member.left] += 5
    changed = at.Recordings(X, recordings.y, recordings.subject, sfreq=16)
    twin = members_of(changed, 0)[1]
    for name in ("scratch", "fine_tuned", "head_tuned"):
        how, states = TUNINGS[name]._replace(steps=3), []
        for rec, person in ((recordings, member), (changed, twin)):
            tuner = Tuner(windows_of(rec), [person], states_of([person], rec) if how.pooled else None)
            tuner.train(how)
            states.append(tuner.population.state_dict())
        for key, value in states[0].items():
            assert (value == states[1][key]).all(), key


def test_the_test_person_is_no_part_of_the_pooled_network() -> None:
    recordings = tiny(per_class=8)
    fold = at.leave_one_subject_out(recordings)[2]
    X, y = recordings.X.numpy().copy(), recordings.y.numpy().copy()
    X[fold.test], y[fold.test] = -9 * X[fold.test], 1 - y[fold.test]
    changed = at.Recordings(X, y, recordings.subject, sfreq=16)
    first, other = (tuning.pooled_networks(rec, [fold], 0, 4, CPU)["2"] for rec in (recordings, changed))
    assert set(first) == set(other)
    assert all((value == other[name]).all() for name, value in first.items())
    assert 2 not in recordings.subject.numpy()[np.concatenate([fold.train, fold.validation])]


def test_before_is_what_the_library_says_of_the_person() -> None:
    recordings = tiny(per_class=14)
    fold = at.leave_one_subject_out(recordings)[1]
    setting = tuning.pooled_setting(recordings, 40)
    (outcome,) = at.train(recordings, [at.Job(setting, fold)], "cpu")
    member = members_of(recordings, 0)[4]
    assert member.subject == "1"
    whole = Member(member.task, 1, member.known, member.y, fold.test)
    tuner = Tuner(windows_of(recordings, torch.float32), [whole], [outcome.state])
    tuner.train(TUNINGS["before"])
    predicted = tuner.predict()[0]
    expected = outcome.held_out_log_probs[-len(fold.test) :].argmax(1)
    assert (predicted == expected.numpy()).all()
    assert len(set(predicted)) == 2, "so that their order is seen"


def test_running_statistics_are_frozen_where_a_network_is_tuned() -> None:
    recordings = tiny(per_class=14)
    members = members_of(recordings, 0)
    states = states_of(members, recordings)
    for name in ("scratch", "fine_tuned", "head_tuned"):
        how = TUNINGS[name]._replace(steps=3)
        tuner = Tuner(windows_of(recordings, torch.float32), members, states if how.pooled else None)
        before = {key: value.clone() for key, value in tuner.population.state_dict().items()}
        tuner.train(how)
        moved = {key for key, value in tuner.population.state_dict().items() if (value != before[key]).any()}
        expected = set(before) - {"encoder.norm1.bias"}  # without a gradient beside statistics of the batch
        if how.pooled:
            expected = {key for key in before if "running" not in key}
        if how.head_only:
            expected = {"classifier.weight", "classifier.bias"}
        assert moved == expected


@pytest.mark.slow
def test_scratch_learns_classes_that_differ() -> None:
    recordings = tiny(per_class=30)
    members = members_of(recordings, 0)
    tuner = Tuner(windows_of(recordings, torch.float32), members, None)
    tuner.train(TUNINGS["scratch"])
    truth = recordings.y.numpy()
    right = [np.mean(classes == truth[member.left]) for member, classes in zip(members, tuner.predict(), strict=True)]
    by_labels = {labels: np.mean([r for r, m in zip(right, members, strict=True) if m.labels == labels])
                 for labels in LABELS}  # fmt: skip
    assert by_labels[10] > 0.95
    assert by_labels[1] > 0.7


def test_numbers_of_labels_that_leave_no_window_of_a_class_are_skipped() -> None:
    labels: dict[str, list[int]] = {}
    for member in members_of(uneven(), 0):
        labels.setdefault(member.subject, []).append(member.labels)
    assert labels == {"0": [1, 2, 5, 10], "1": [1, 2, 5, 10], "2": [1, 2, 5, 10], "3": [1, 2]}


def test_a_person_of_one_class_is_left_out() -> None:
    rec = tiny(per_class=14)
    subject, y = rec.subject.numpy(), rec.y.numpy()
    rows = np.flatnonzero((subject != 1) | (y == 0))
    alone = at.Recordings(rec.X[rows], y[rows], subject[rows], sfreq=16)
    assert {member.subject for member in members_of(alone, 0)} == {"0", "2", "3"}


def test_rows_are_tidy_and_a_repeated_command_computes_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tuning, "TUNINGS", {name: one._replace(steps=min(one.steps, 2)) for name, one in TUNINGS.items()}
    )
    out, source = tmp_path / "fine_tuning.csv", str(tiny_file(tmp_path, per_class=12))
    monkeypatch.setattr(tuning, "room", lambda *_: 7)
    options = Namespace(files=[source], out=out, seeds=2, epochs=2, device="cpu")
    tuning.run(options)
    rows = known_rows(out)
    keys = {(r["dataset"], r["pipeline"], r["labels"], r["subject"], r["seed"]) for r in rows}
    people, seeds = map(str, range(4)), ("0", "1")
    assert keys == {("tiny", w, str(k), s, seed) for s in people for w in TUNINGS for k in LABELS for seed in seeds}
    assert len(rows) == len(keys) == 128
    lines = out.read_text().splitlines(keepends=True)
    lost = [line for line in lines if line.startswith("tiny,fine_tuned,5,2,1,")]
    out.write_text("".join(line for line in lines if line not in lost))
    trained: list[int] = []
    whole = tuning.pooled_networks
    monkeypatch.setattr(
        tuning, "pooled_networks", lambda r, folds, *a: trained.append(len(folds)) or whole(r, folds, *a)
    )
    tuning.run(options)
    assert trained == [1]  # one fold of one seed
    strip = ("seconds",)
    kept, again = ([{k: v for k, v in r.items() if k not in strip} for r in table] for table in (rows, known_rows(out)))
    assert sorted(map(str, again)) == sorted(map(str, kept))


def test_the_table_sets_networks_beside_the_calibrated_model(tmp_path: Path) -> None:
    people = [f"P{n}" for n in range(6)]
    (tmp_path / "average").mkdir()
    cases = [("zero_shot", "recorded", 0.6)]
    cases += [(what, str(k), level) for k in LABELS for what, level in (("before", 0.6), ("calibrated", 0.8))]
    rows = [("toy", what, case, person, level) for what, case, level in cases for person in people]
    columns = ["dataset", "what", "case", "subject", "score"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "average" / "playback.csv", index=False)
    with pytest.raises(FileNotFoundError, match="fine_tuning"):
        tuned(tmp_path)
    levels = {"scratch": 0.5, "before": 0.55, "fine_tuned": 0.7, "head_tuned": 0.65}
    # Two seeds that are averaged, and somebody who was not played back.
    scores = [
        ("toy", name, k, person, seed, level + (0.01 if seed else -0.01), 1.0)
        for name, level in levels.items()
        for k in LABELS
        for person in [*people, "P9"]
        for seed in (0, 1)
    ]
    pd.DataFrame(scores, columns=tuning.COLUMNS).to_csv(tmp_path / "fine_tuning.csv", index=False)
    text = tuned(tmp_path)
    assert text.count("**0.800** / 0.700 / 0.650 / 0.500") == len(LABELS)
    line = next(line for line in text.splitlines() if "minus fine-tuned" in line)
    assert line.count("+0.100 (") >= len(LABELS)
    assert (tmp_path / "tuned.svg").exists()
