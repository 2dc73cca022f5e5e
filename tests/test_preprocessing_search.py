"""Preprocessing first: chosen by validation alone, remade for each subject, and the search then stands on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotransfer import Setting
from autotransfer.errors import UserError
from autotransfer.runs.choice import Choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search import preprocessing, procedure
from autotransfer.search.estimate import count_trainings
from autotransfer.search.preprocessing import PREPROCESSINGS, Compared, compared, preprocessing_stage, ways_to_try
from autotransfer.search.procedure import conduct, decide
from autotransfer.search.stages import Score
from tiny import tiny_file

TRIED = ways_to_try("online", Setting())


def scores_of(table: list[list[float]]) -> list[Score]:
    """Rows: ways in their order; columns: subjects."""
    return [
        Score(setting.key, subject, value)
        for setting, row in zip(TRIED, table, strict=False)
        for subject, value in enumerate(row)
    ]


def test_of_the_plain_one_and_the_best_other_the_one_that_is_clearly_ahead_is_kept_alone() -> None:
    plain = [0.5, 0.6, 0.7, 0.8]
    ahead, behind = [value + 0.02 for value in plain], [value - 0.02 for value in plain]
    doubtful = [0.5, 0.6, 0.7, 1.0]  # ahead by 0.05 ± 0.05
    for table, kept in (
        ([plain, ahead], [TRIED[1]]),
        ([plain, behind], [TRIED[0]]),
        ([plain, doubtful], TRIED[:2]),
        ([plain, ahead, behind], [TRIED[1]]),
        ([plain, behind, ahead], [TRIED[2]]),
        ([plain, ahead, doubtful], [TRIED[0], TRIED[2]]),  # the other one with the best mean
    ):
        found = compared(TRIED[: len(table)], scores_of(table), [0, 1])
        assert found.kept == kept
        assert found.of_test[0] == kept


def test_a_subject_whose_scores_decide_gets_the_other() -> None:
    """That the second way is not clearly ahead is due to subject 0."""
    found = compared(TRIED[:2], scores_of([[0.9, 0.5, 0.5], [0.1, 0.6, 0.6]]), [0, 1, 2])
    plain, other_one = TRIED[:2]
    assert found.kept == found.needed == [plain, other_one]
    assert found.of_test == {0: [other_one], 1: [plain, other_one], 2: [plain, other_one]}
    censored = [base.replace(method="mmd", mode="marginal", strength=1.0, batches="auto") for base in TRIED[:2]]
    candidates = [plain, other_one, *censored]
    assert found.candidates([plain, censored[0]]) == [plain, censored[0], other_one, censored[1]]
    alone = compared(TRIED[:2], scores_of([[0.5, 0.6, 0.7], [0.7, 0.8, 0.9]]), [0, 1, 2])
    assert alone.candidates([plain, censored[0]]) == [plain, other_one, censored[1]], "the plain network stays"
    assert found.allowed(candidates, 0) == [plain.key, other_one.key, censored[1].key]
    assert found.allowed(candidates, 1) == found.allowed(candidates) == [setting.key for setting in candidates]


def test_a_subjects_scores_never_reach_their_own_preprocessing() -> None:
    draw = np.random.default_rng(0)
    changed = 0
    for _ in range(200):
        table = draw.random((len(TRIED), 6))
        before = compared(TRIED, scores_of(table.tolist()), range(6))
        table[:, 0] = draw.random(len(TRIED))
        after = compared(TRIED, scores_of(table.tolist()), range(6))
        assert after.of_test[0] == before.of_test[0]
        changed += after.of_test != before.of_test
    assert changed > 0, "the corruption must be able to change what others get"


def by_person(run: Run) -> dict[Setting, pd.Series]:
    """Validation score of each uncensored setting, seeds averaged, by person."""
    rows = []
    for entry in run.ledger.entries():
        if entry.setting.penalty is None:
            assert entry.record is not None
            assert entry.record.swapped is not None
            rows.append((entry.setting, entry.validation, entry.record.validation_score))
            rows.append((entry.setting, entry.test, entry.record.swapped.validation_score))
    table = pd.DataFrame(rows, columns=["setting", "person", "score"])
    return {setting: own.groupby("person")["score"].mean() for setting, own in table.groupby("setting", sort=False)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("preprocessed")
    options = RunOptions(
        source=str(tiny_file(folder)), epochs=4, batch_size=8, device="cpu", preprocessing="online", seeds=2
    )
    run = Run.create(folder / "run", options)
    return run, conduct(run, lambda _: None, shown=False)


def test_every_candidate_stands_on_what_was_found(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    plain, folds = run.options.settings()[0], 4
    tried = ways_to_try("online", plain)
    entries = run.ledger.entries()
    first = [entry.setting for entry in entries if entry.stage == "prepare"]
    assert set(first) == set(tried)
    assert len(first) == len(tried) * folds * 2, "two seeds"
    assert [one.setting.setting for one in choice.preprocessings] == tried
    needed = [one.setting.setting for one in choice.preprocessings if one.kept]
    ways = {preprocessing.way_of(setting) for setting in needed}
    later = [entry.setting for entry in entries if entry.stage != "prepare"]
    assert {preprocessing.way_of(s) for s in later} - {preprocessing.way_of(plain)} == ways - {
        preprocessing.way_of(plain)
    }
    assert {preprocessing.way_of(entry.setting) for entry in entries if entry.setting.method} == ways
    assert choice.baseline.setting == plain, "the plain network, as without a search for the preprocessing"
    values = by_person(run)
    for one in choice.preprocessings:
        assert one.validation_mean == pytest.approx(values[one.setting.setting].mean())
        assert one.validation_q25 == pytest.approx(values[one.setting.setting].quantile(0.25))
    best = max(tried[1:], key=lambda setting: values[setting].mean())
    gain = values[best].to_numpy() - values[plain].to_numpy()
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    kept = [plain] * int(gain.mean() <= 2 * error) + [best] * int(gain.mean() >= -2 * error)
    found = preprocessing_stage(run, lambda _: None, shown=False)
    assert found is not None
    assert found.kept == kept
    assert set(kept) <= set(needed)
    assert len({entry.key for entry in entries}) == len(entries)
    assert {entry.starts for entry in entries} == {1}
    assert len(entries) == (13 * len(needed) + len(tried) - len(needed)) * folds * 2
    feared = found._replace(kept=found.tried).candidates(run.options.settings())
    assert len(feared) == 13 * len(tried)
    trainings = count_trainings(run.recordings, run.options)[2]
    assert trainings == len(feared) * folds * 2 >= len(entries), "the estimate fears that somebody needs every one"


def test_a_nested_choice_is_made_among_settings_of_the_subjects_own_preprocessing(
    finished: tuple[Run, Choice],
) -> None:
    run, _ = finished
    plain = run.options.settings()[0]
    tried = ways_to_try("online", plain)
    scores = [Score(setting.key, 0, 0.5) for setting in tried]
    for own in tried:
        found = decide(run, tried, Compared(tried, scores, [own], {test: [own] for test in range(4)}))
        mine = {run.options.name_of(own), "baseline"}
        assert set(found.nested_choices.values()) <= mine
        assert {found.chosen.name, found.best_uncensored.name, found.two_se.name} <= mine
        assert found.baseline.name == "baseline"
        assert [one.setting for one in found.shortlist] == tried
        assert set(found.validation_q25) == mine, "others are trained for other people"


@pytest.mark.parametrize("first", [False, True])
def test_after_a_comparison_the_plain_network_is_left_only_for_what_is_clearly_ahead(
    finished: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    run, choice = finished
    trained = [one.setting for one in choice.shortlist if one.setting in run.options.settings()]
    plain, doubtful, clear, better = [own for own in trained if own.method or own is trained[0]][:4]
    balanced = next(setting for setting in trained[1:] if setting.method is None)
    gains = {
        doubtful: [0.06, 0.06, 0.06, 0.9], clear: [0.02] * 4, better: [0.0, 0.1, 0.1, 0.06],
        balanced: [0.01, 0.01, 0.01, 0.5],
    }  # fmt: skip
    none = [0.0] * 4
    scores = [Score(own.key, person, 0.5 + gains.get(own, none)[person]) for own in trained for person in range(4)]
    monkeypatch.setattr(procedure, "validation_scores", lambda *_, **__: scores)
    told = {
        (own.key, test): (place + test / 10) / 20 for place, own in enumerate(trained) for test in range(4)
    }  # who is who
    monkeypatch.setattr(procedure, "scores_on_test", lambda _: told)
    before = Compared([plain], scores, [plain], {test: [plain] for test in range(4)})
    found = decide(run, trained, before if first else None)
    # for everybody: doubtful 0.27 ± 0.21, with a lower quartile of 0.56; better 0.065 ± 0.024, with 0.545
    assert found.two_se.name == run.options.name_of(better)
    assert found.chosen.name == run.options.name_of(better if first else doubtful)
    picks = found.nested_choices
    # without subject 0: better 0.087 ± 0.013, with a lower quartile of 0.58
    assert picks["0"] == run.options.name_of(better)
    # without subject 2: doubtful 0.34 ± 0.28, better 0.053 ± 0.029, clear 0.02 ± 0
    assert picks["2"] == run.options.name_of(clear if first else doubtful)
    assert found.best_uncensored.name == run.options.name_of(balanced), "which need not be clearly ahead"
    assert found.nested_uncensored_test_scores == {str(test): told[balanced.key, test] for test in range(4)}


def test_a_resumed_run_finds_the_same(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    before = len(run.ledger.entries())
    assert conduct(run, lambda _: None, shown=False) == choice
    assert len(run.ledger.entries()) == before


def test_the_plain_network_stays_with_halving(tmp_path: Path) -> None:
    """It was trained before stage one, which must not take it for one that gave up."""
    options = RunOptions(
        source=str(tiny_file(tmp_path)),
        epochs=4,
        batch_size=8,
        device="cpu",
        preprocessing="zero-shot",
        search="halving",
    )
    choice = conduct(Run.create(tmp_path / "run", options), lambda _: None, shown=False)
    assert choice.baseline.name == choice.shortlist[0].name == "baseline"


def test_corrupting_scores_measured_on_a_subject_changes_nothing_chosen_for_them(
    finished: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither their preprocessing, nor for which settings the plain network may be left, nor the choice. The scores are
    drawn: those of a run so small are all about chance, and every choice the plain network."""
    run, choice = finished
    trained = [one.setting for one in choice.shortlist]  # the plain network first
    known = {*trained, *ways_to_try("online", run.options.settings()[0])}
    clean = preprocessing_stage(run, lambda _: None, shown=False)
    assert clean is not None
    monkeypatch.setattr(procedure, "delivered_scores", lambda *_: {})  # slow, and chooses nothing
    entries = run.ledger.entries()  # nothing is trained any more
    monkeypatch.setattr(run.ledger, "entries", lambda: entries)
    monkeypatch.setattr(run, "work", lambda **_: None)
    draw = np.random.default_rng(0)
    moved = 0
    for subject in range(4):
        for _ in range(20):
            table = {(setting.key, person): draw.random() for setting in known for person in range(4)}
            chosen_for = []
            for _ in range(2):
                scores = [Score(*place, value) for place, value in table.items()]
                for module in (preprocessing, procedure):
                    monkeypatch.setattr(module, "validation_scores", lambda *_, found=scores, **__: found)
                found = preprocessing_stage(run, lambda _: None, shown=False)
                assert found is not None
                chosen_for.append(decide(run, trained, with_trained(found, clean.needed)))
                table |= {(key, person): draw.random() for key, person in table if person == subject}
            before, after = chosen_for
            for kind in ("nested_test_scores", "nested_uncensored_test_scores", "nested_two_se_test_scores",
                         "nested_choices"):  # fmt: skip
                assert getattr(after, kind)[str(subject)] == getattr(before, kind)[str(subject)]
            moved += after.nested_choices != before.nested_choices
    assert moved > 0, "the corruption must be able to change what others get"


def with_trained(found: Compared, trained: list[Setting]) -> Compared:
    """With ways that were trained wherever corruption has chosen others."""
    of_test = {test: [base for base in own if base in trained] or trained[:1] for test, own in found.of_test.items()}
    return found._replace(kept=trained[:1], of_test=of_test)


@pytest.mark.parametrize("grid", ["quick", "extended"])
def test_an_encoder_of_ones_own_is_not_asked_for_what_is_eegnets(grid: str) -> None:
    options = RunOptions(source="x", grid=grid, encoder="mine")
    assert all(setting.encoder == "mine" for setting in options.settings())
    for name in PREPROCESSINGS:
        tried = ways_to_try(name, options.settings()[0])
        assert {setting.network for setting in tried} == {options.settings()[0].network}
        assert len({setting.preprocessing for setting in tried}) == len(tried) / 2 == len(PREPROCESSINGS[name])
        assert {setting.training.schedule for setting in tried} == {"inverse_sqrt", "constant"}, "no matter of networks"


@pytest.mark.parametrize(("name", "kinds"), [("zero-shot", 4), ("online", 6), ("transductive", 6)])
def test_every_way_is_tried_with_published_training_and_at_a_constant_rate(name: str, kinds: int) -> None:
    plain = Setting(patience=3)
    tried = ways_to_try(name, plain)
    assert len(set(tried)) == len(tried) == kinds
    assert tried[0] == plain
    published, steady = tried[: kinds // 2], tried[kinds // 2 :]
    assert {(own.schedule, own.checkpoint) for own in published} == {("inverse_sqrt", "best")}
    assert {(own.schedule, own.checkpoint) for own in steady} == {("constant", "last")}
    assert [own.replace(schedule="inverse_sqrt", checkpoint="best", patience=3) for own in steady] == published
    assert len({setting.name_beside(plain) for setting in tried}) == kinds
    wanted = {"zero-shot": {"none"}, "online": {"none", "online"}, "transductive": {"none", "transductive"}}
    assert {setting.adaptation for setting in tried} == wanted[name]


@pytest.mark.parametrize(
    "options",
    [{"grid": "paper"}, {"grid": "extended"}, {"standardise": "train"}, {"align": "online"}, {"search": "tpe"},
     {"nested": "full"}],
)  # fmt: skip
def test_auto_leaves_alone_what_says_itself_how_windows_are_prepared(options: dict[str, str]) -> None:
    assert RunOptions(source="x", preprocessing="auto", **options).preprocessing is None
    assert RunOptions(source="x", preprocessing="auto").preprocessing == "zero-shot"
    assert RunOptions(source="x", preprocessing="auto", search="halving").preprocessing == "zero-shot"
    assert RunOptions(source="x", preprocessing="auto", grid="uncensored").preprocessing == "zero-shot"
    assert RunOptions(source="x", preprocessing="none").preprocessing is None
    assert RunOptions(source="x").preprocessing is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preprocessing": "some"}, "zero-shot"),
        ({"preprocessing": "online", "standardise": "train"}, "either preprocessing or those"),
        ({"preprocessing": "online", "align": "online"}, "either preprocessing or those"),
        ({"preprocessing": "zero-shot", "grid": "extended"}, "another grid"),
        ({"preprocessing": "zero-shot", "search": "tpe"}, "search grid"),
        ({"preprocessing": "zero-shot", "nested": "full"}, "nested fast"),
        ({"grid": "uncensored", "search": "tpe"}, "tpe search samples censors"),
    ],
)
def test_contradictions_are_told_before_anything_starts(options: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        RunOptions(source="watch", **options)


def test_a_run_without_censors_has_none_among_its_candidates(tmp_path: Path) -> None:
    options = RunOptions(
        source=str(tiny_file(tmp_path)), epochs=1, batch_size=8, device="cpu", preprocessing="auto", grid="uncensored"
    )
    choice = conduct(Run.create(tmp_path / "run", options), lambda _: None, shown=False)
    assert not choice.censor_tried
    assert choice.preprocessings
