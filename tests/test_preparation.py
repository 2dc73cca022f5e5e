"""Preparation first: chosen by validation alone, remade for each subject, and the search then stands on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotransfer import Setting
from autotransfer.errors import UserError
from autotransfer.report.collect import collect
from autotransfer.report.comparison import validation_table
from autotransfer.report.outcomes import settled, tried_once
from autotransfer.report.search_figures import candidates
from autotransfer.report.terminal import answer, no_censor_tried
from autotransfer.report.wording import verdict
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search import preparation, procedure
from autotransfer.search.estimate import count_trainings
from autotransfer.search.preparation import PREPARATIONS, Preparations, Traits, chosen
from autotransfer.search.procedure import conduct, decide
from autotransfer.search.stages import Score
from report_outline import light
from tiny import tiny_file

TRIED = [Setting(**own._asdict()) for own in PREPARATIONS["zero-shot"]]
ADAPTIVE = [Setting(**own._asdict()) for own in PREPARATIONS["adaptive"]]
TRAITS = list(Traits._fields)


def scores_of(table: list[list[float]]) -> list[Score]:
    """Rows: preparations in their order; columns: subjects."""
    return [
        Score(setting.key, subject, value)
        for setting, row in zip(TRIED, table, strict=False)
        for subject, value in enumerate(row)
    ]


def test_the_best_is_kept_alone_where_every_subject_agrees() -> None:
    found = chosen(TRIED[:2], scores_of([[0.5, 0.6, 0.7], [0.7, 0.8, 0.9]]), [0, 1, 2])
    assert found.kept == [TRIED[1]]
    assert found.of_test == dict.fromkeys(range(3), TRIED[1])


def test_half_a_standard_error_is_lead_enough() -> None:
    plain, lead = [0.5, 0.6, 0.7, 0.8], [0.53, 0.59, 0.73, 0.79]  # 0.01 ± 0.0115
    assert chosen(TRIED[:2], scores_of([plain, lead]), []).kept == [TRIED[1]]
    less = [0.53, 0.583, 0.73, 0.77]  # 0.00325 ± 0.0146
    assert chosen(TRIED[:2], scores_of([plain, less]), []).kept == [TRIED[0]]


def test_a_subject_whose_scores_decide_gets_the_other() -> None:
    """The first preparation is the best only thanks to subject 0."""
    found = chosen(TRIED[:2], scores_of([[0.9, 0.5, 0.5], [0.1, 0.6, 0.6]]), [0, 1, 2])
    assert found.kept == TRIED[:2]
    assert found.of_test[0] == TRIED[1]
    assert found.of_test[1] == TRIED[0]
    censored = [replace(base, method="mmd", mode="marginal", strength=1.0) for base in TRIED[:2]]
    plain, other_one = TRIED[:2]
    candidates = [plain, other_one, *censored]
    assert found.prepared([plain, censored[0]]) == [plain, censored[0], other_one, censored[1]]
    other = chosen(TRIED[:2], scores_of([[0.5, 0.6, 0.7], [0.7, 0.8, 0.9]]), [0, 1, 2])
    assert other.prepared([Setting(), censored[0]]) == [Setting(), TRIED[1], censored[1]], "the plain network stays"
    assert found.allowed(candidates, 0) == [plain.key, TRIED[1].key, censored[1].key], "and the plain network"
    assert found.allowed(candidates, 1) == [plain.key, censored[0].key]
    assert found.allowed(candidates) == [plain.key, censored[0].key], "for everybody the best one"


def test_a_subjects_scores_never_reach_their_own_preparation() -> None:
    draw = np.random.default_rng(0)
    changed = 0
    for _ in range(200):
        table = draw.random((len(TRIED), 6))
        before = chosen(TRIED, scores_of(table.tolist()), range(6))
        table[:, 0] = draw.random(len(TRIED))
        after = chosen(TRIED, scores_of(table.tolist()), range(6))
        assert after.of_test[0] == before.of_test[0]
        changed += after.of_test != before.of_test
    assert changed > 0, "the corruption must be able to change what others get"


def prepared_rows(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return list(table[TRAITS].astype(str).itertuples(index=False, name=None))


def prepared(table: pd.DataFrame) -> set[tuple[str, ...]]:
    return set(prepared_rows(table))


def by_person(table: pd.DataFrame) -> pd.DataFrame:
    """Validation score of the plain network, seeds averaged, a row a person, a column a preparation."""
    table = table[(table["method"] == "none") & (table["batches"] == "shuffled")]
    own = table[[*TRAITS, "validation_subject", "validation_score"]]
    twin = table[[*TRAITS, "test_subject", "swapped_validation_score"]]
    names = [*TRAITS, "on", "score"]
    both = pd.concat([part.set_axis(names, axis=1) for part in (own, twin)]).astype(dict.fromkeys(TRAITS, str))
    return both.astype({"score": float}).groupby([*TRAITS, "on"])["score"].mean().unstack(TRAITS)


def words(own: Traits) -> tuple[str, ...]:
    return tuple("none" if value is None else str(value) for value in own)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, object]]:
    folder = tmp_path_factory.mktemp("prepared")
    options = RunOptions(
        source=str(tiny_file(folder)), epochs=4, batch_size=8, device="cpu", prepare="adaptive", seeds=2
    )
    run = Run.create(folder / "run", options)
    return run, conduct(run, lambda _: None, shown=False)


def test_every_candidate_stands_on_what_was_found(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    first = table[table["stage"] == "prepare"]
    assert prepared(first) == {words(own) for own in PREPARATIONS["adaptive"]}
    assert len(first) == len(ADAPTIVE) * 4 * 2, "four folds, two seeds"
    assert (first["method"] == "none").all()
    told = pd.DataFrame(choice["preparations"])
    told["compress"] = [row["compress"] or "none" for row in choice["preparations"]]
    plain = words(Traits("trial"))
    assert prepared(table[table["stage"] != "prepare"]) - {plain} == prepared(told[told["kept"]]) - {plain}
    assert prepared(table[table["method"] != "none"]) == prepared(told[told["kept"]])
    assert choice["baseline"]["name"] == "baseline", "the plain network, as without preparation"
    values = by_person(table)
    assert list(told["validation_mean"]) == pytest.approx([values[row].mean() for row in prepared_rows(told)])
    best = max(prepared_rows(told), key=lambda row: values[row].mean())
    short = (values[best].to_numpy() - values[row].to_numpy() for row in prepared_rows(told))
    near = [gap.mean() <= 0.5 * gap.std(ddof=1) / np.sqrt(len(gap)) for gap in short]
    assert told["kept"][near.index(True)], "the first that is as good as the best, up to half a standard error"
    assert not table.duplicated(["setting", "test_subject", "seed"]).any()
    assert [entry.starts for entry in run.ledger.entries()] == [1] * len(table)
    if len(prepared(told[told["kept"]])) == 1:
        assert len(table) == count_trainings(run.recordings, run.options)[2]


def test_a_nested_choice_is_made_among_settings_of_the_subjects_own_preparation(
    finished: tuple[Run, dict[str, object]],
) -> None:
    run, _ = finished
    plain = run.options.settings()[0]
    tried = [replace(plain, **own._asdict()) for own in PREPARATIONS["adaptive"]]
    scores = [Score(setting.key, 0, 0.5) for setting in tried]
    for own in tried:
        others = [setting for setting in tried if setting != own]
        found = decide(run, tried, Preparations(tried, scores, [own, *others], dict.fromkeys(range(4), own)))
        mine = {run.options.name_of(own), run.options.name_of(tried[0])}
        assert set(found["nested_choices"].values()) <= mine
        assert {found[role]["name"] for role in ("chosen", "best_uncensored", "careful")} <= mine
        assert set(found["shortlist"]) == {run.options.name_of(setting) for setting in tried}
        assert set(found["validation_q25"]) <= mine, "less those that nothing speaks for"
        assert run.options.name_of(tried[0]) in found["validation_q25"]
        best = max(found["validation_q25"], key=lambda name: found["validation_q25"][name])
        assert found["validation_q25"][found["chosen"]["name"]] == found["validation_q25"][best]


def test_the_lower_quartiles_are_those_of_the_table(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    values = by_person(pd.read_csv(run.folder / "results.csv", keep_default_na=False))
    for told in choice["preparations"]:
        wanted = values[words(Traits(*(told[name] for name in TRAITS)))].quantile(0.25)
        assert told["validation_q25"] == pytest.approx(wanted)


def test_a_resumed_run_finds_the_same(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    before = len(run.ledger.entries())
    assert conduct(run, lambda _: None, shown=False) == choice
    assert len(run.ledger.entries()) == before


def test_the_plain_network_stays_with_halving(tmp_path: Path) -> None:
    """It was trained before stage one, which must not take it for one that gave up."""
    options = RunOptions(
        source=str(tiny_file(tmp_path)), epochs=4, batch_size=8, device="cpu", prepare="zero-shot", search="halving"
    )
    choice = conduct(Run.create(tmp_path / "run", options), lambda _: None, shown=False)
    assert choice["baseline"]["name"] == "baseline"
    assert choice["shortlist"][0] == "baseline"


def test_corrupting_scores_measured_on_a_subject_changes_nothing_chosen_for_them(
    finished: tuple[Run, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither their preparation, nor for which settings the plain network may be left, nor the choice. The scores are
    drawn: those of a run so small are all about chance, and every choice the plain network."""
    run, choice = finished
    plain = run.options.settings()[0]
    known = {replace(s, **own._asdict()) for s in run.options.settings() for own in PREPARATIONS["adaptive"]}
    trained = [s for s in known if run.options.name_of(s) in choice["shortlist"]]  # type: ignore[operator]
    trained.sort(key=lambda setting: (setting != plain, setting.key))  # the plain network first
    clean = preparation.preparation_stage(run, lambda _: None, shown=False)
    assert clean is not None
    draw = np.random.default_rng(0)
    moved = 0
    for subject in range(4):
        for _ in range(20):
            table = {(setting.key, person): draw.random() for setting in known for person in range(4)}
            chosen_for = []
            for _ in range(2):
                scores = [Score(*place, value) for place, value in table.items()]
                for module in (preparation, procedure):
                    monkeypatch.setattr(module, "validation_scores", lambda *_, found=scores, **__: found)
                found = preparation.preparation_stage(run, lambda _: None, shown=False)
                assert found is not None
                chosen_for.append(decide(run, trained, replace_kept(found, set(clean.kept))))
                table |= {(key, person): draw.random() for key, person in table if person == subject}
            before, after = chosen_for
            for kind in ("nested", "nested_uncensored", "nested_careful"):
                own = f"{kind}_test_scores"
                assert after[own][str(subject)] == before[own][str(subject)]
            assert after["nested_choices"][str(subject)] == before["nested_choices"][str(subject)]
            moved += after["nested_choices"] != before["nested_choices"]
    assert moved > 0, "the corruption must be able to change what others get"


def replace_kept(found: Preparations, trained: set[Setting]) -> Preparations:
    """With a preparation that was trained wherever corruption has chosen one that was not."""
    some = next(iter(trained))
    of_test = {test: own if own in trained else some for test, own in found.of_test.items()}
    return found._replace(kept=[some], of_test=of_test)


def test_the_report_draws_those_among_which_was_chosen(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    summary = settled(collect(run))
    figure = candidates(summary)
    assert figure is not None
    among, every = set(choice["validation_q25"]), set(choice["shortlist"])  # type: ignore[call-overload]
    assert {row[0] for row in figure.rows} == among < every, "in this run some are left out"
    assert set(validation_table(summary).index) == every
    assert f"{len(every) - len(among)} more were trained and could not be chosen" in figure.caption


def test_a_run_without_censors_says_nothing_about_them(tmp_path: Path) -> None:
    options = RunOptions(
        source=str(tiny_file(tmp_path)), epochs=1, batch_size=8, device="cpu", prepare="auto", grid="uncensored"
    )
    assert options.prepare == "zero-shot"
    choice = conduct(Run.create(tmp_path / "run", options), lambda _: None, shown=False)
    assert no_censor_tried(choice)
    choice |= {"baseline_won": True}
    assert "censoring" not in " ".join(answer(choice))
    assert "No censor was tried" in verdict(choice, None).sentence
    assert not no_censor_tried({"shortlist": ["baseline", "mmd marginal 1 median with power"]})
    with pytest.raises(UserError, match="tpe search samples censors"):
        RunOptions(source="x", grid="uncensored", search="tpe")


@pytest.mark.parametrize("grid", ["quick", "extended"])
def test_an_encoder_of_ones_own_is_not_asked_for_what_is_eegnets(grid: str) -> None:
    options = RunOptions(source="x", grid=grid, encoder="mine")
    assert all(setting.encoder == "mine" for setting in options.settings())
    for name in PREPARATIONS:
        assert {own.power or own.levels for own in preparation.preparations_of(name, options.settings()[0])} == {False}


def test_the_report_has_networks_that_were_trained_for_the_preparation(tmp_path: Path) -> None:
    """With one seed all of their jobs stand under "prepare"."""
    options = RunOptions(source=str(tiny_file(tmp_path)), epochs=2, batch_size=8, device="cpu", prepare="zero-shot")
    run = Run.create(tmp_path / "run", options)
    conduct(run, lambda _: None, shown=False)
    summary = settled(collect(run))
    assert set(validation_table(summary).index) >= set(summary.choice["shortlist"])
    assert "baseline" in set(tried_once(summary.results)["setting"])
    assert len(tried_once(summary.results)) >= 13
    assert not tried_once(summary.results).duplicated(["setting"]).any()


@pytest.mark.parametrize(
    "options",
    [{"grid": "paper"}, {"grid": "extended"}, {"standardise": "channel"}, {"align": "running"}, {"search": "tpe"},
     {"nested": "full"}],
)  # fmt: skip
def test_auto_leaves_alone_what_says_itself_how_windows_are_prepared(options: dict[str, str]) -> None:
    assert RunOptions(source="x", prepare="auto", **options).prepare is None
    assert RunOptions(source="x", prepare="auto").prepare == "zero-shot"
    assert RunOptions(source="x", prepare="auto", search="halving").prepare == "zero-shot"
    assert RunOptions(source="x", prepare="none").prepare is None
    assert RunOptions(source="x").prepare is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prepare": "some"}, "zero-shot"),
        ({"prepare": "adaptive", "standardise": "channel"}, "either prepare or those"),
        ({"prepare": "adaptive", "align": "running"}, "either prepare or those"),
        ({"prepare": "zero-shot", "grid": "extended"}, "another grid"),
        ({"prepare": "zero-shot", "search": "tpe"}, "search grid"),
        ({"prepare": "zero-shot", "nested": "full"}, "nested fast"),
    ],
)
def test_contradictions_are_told_before_anything_starts(options: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        RunOptions(source="watch", **options)


def test_the_report_shows_what_was_compared(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    summary = collect(run)
    page = light(summary)
    assert "How windows are prepared" in page
    for told in choice["preparations"]:
        assert f"{told['validation_q25']:.3f}" in page
    for odd in (None, [], ["text", {"standardise": "<b>", "validation_q25": "much"}], [{}]):
        light(replace(summary, choice=choice | {"preparations": odd}))
