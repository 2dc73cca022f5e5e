"""Preparation first: chosen by validation alone, remade for each subject, and the search then stands on it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotransfer import Setting
from autotransfer.errors import UserError
from autotransfer.report.collect import _roles, collect
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
from autotransfer.settings import PREPARED
from report_outline import light
from tiny import tiny_file

TRIED = [Setting(**own._asdict()) for own in PREPARATIONS["adaptive"]]
TRAITS = list(Traits._fields)


def scores_of(table: list[list[float]]) -> list[Score]:
    """Rows: preparations in their order; columns: subjects."""
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
        found = chosen(TRIED[: len(table)], scores_of(table), [0, 1])
        assert found.kept == kept
        assert found.of_test[0] == kept


def test_a_subject_whose_scores_decide_gets_the_other() -> None:
    """That the second preparation is not clearly ahead is due to subject 0."""
    found = chosen(TRIED[:2], scores_of([[0.9, 0.5, 0.5], [0.1, 0.6, 0.6]]), [0, 1, 2])
    plain, other_one = TRIED[:2]
    assert found.kept == found.needed == [plain, other_one]
    assert found.of_test == {0: [other_one], 1: [plain, other_one], 2: [plain, other_one]}
    censored = [replace(base, method="mmd", mode="marginal", strength=1.0) for base in TRIED[:2]]
    candidates = [plain, other_one, *censored]
    assert found.prepared([plain, censored[0]]) == [plain, censored[0], other_one, censored[1]]
    alone = chosen(TRIED[:2], scores_of([[0.5, 0.6, 0.7], [0.7, 0.8, 0.9]]), [0, 1, 2])
    assert alone.prepared([plain, censored[0]]) == [plain, other_one, censored[1]], "the plain network stays"
    assert found.allowed(candidates, 0) == [plain.key, other_one.key, censored[1].key]
    assert found.allowed(candidates, 1) == found.allowed(candidates) == [setting.key for setting in candidates]


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
    assert len(first) == len(TRIED) * 4 * 2, "four folds, two seeds"
    assert (first["method"] == "none").all()
    told = pd.DataFrame(choice["preparations"])
    told["compress"] = [row["compress"] or "none" for row in choice["preparations"]]
    plain = words(Traits("trial"))
    assert prepared(table[table["stage"] != "prepare"]) - {plain} == prepared(told[told["kept"]]) - {plain}
    assert prepared(table[table["method"] != "none"]) == prepared(told[told["kept"]])
    assert choice["baseline"]["name"] == "baseline", "the plain network, as without preparation"
    values = by_person(table)
    assert list(told["validation_mean"]) == pytest.approx([values[row].mean() for row in prepared_rows(told)])
    assert prepared_rows(told)[0] == plain
    best = max(prepared_rows(told)[1:], key=lambda row: values[row].mean())
    gain = values[best].to_numpy() - values[plain].to_numpy()
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    kept = [plain] * int(gain.mean() <= 2 * error) + [best] * int(gain.mean() >= -2 * error)
    found = preparation.preparation_stage(run, lambda _: None, shown=False)
    assert found is not None
    assert [words(preparation.traits(base)) for base in found.kept] == kept
    assert set(kept) <= prepared(told[told["kept"]])
    assert not table.duplicated(["setting", "test_subject", "seed"]).any()
    assert [entry.starts for entry in run.ledger.entries()] == [1] * len(table)
    needed = prepared(told[told["kept"]])
    only_tried = len(prepared(told) - needed)
    assert len(table) == (13 * len(needed) + only_tried) * 4 * 2
    feared = found._replace(kept=found.tried).prepared(run.options.settings())
    assert len(feared) == 13 * len(TRIED)
    trainings = count_trainings(run.recordings, run.options)[2]
    assert trainings == len(feared) * 4 * 2 >= len(table), "the estimate has to fear that somebody needs every one"


def test_a_nested_choice_is_made_among_settings_of_the_subjects_own_preparation(
    finished: tuple[Run, dict[str, object]],
) -> None:
    run, _ = finished
    plain = run.options.settings()[0]
    tried = [replace(plain, **own._asdict()) for own in PREPARATIONS["adaptive"]]
    scores = [Score(setting.key, 0, 0.5) for setting in tried]
    for own in tried:
        found = decide(run, tried, Preparations(tried, scores, [own], {test: [own] for test in range(4)}))
        mine = {run.options.name_of(own), "baseline"}
        assert set(found["nested_choices"].values()) <= mine
        assert {found[role]["name"] for role in ("chosen", "best_uncensored", "careful")} <= mine
        assert found["baseline"]["name"] == "baseline"
        assert set(found["shortlist"]) == {run.options.name_of(setting) for setting in tried}
        assert set(found["validation_q25"]) == mine, "others are trained for other people"


@pytest.mark.parametrize("prepared", [False, True])
def test_after_a_preparation_the_plain_network_is_left_only_for_what_is_clearly_ahead(
    finished: tuple[Run, dict[str, object]], monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    run, choice = finished
    names = {run.options.name_of(setting): setting for setting in run.options.settings()}
    trained = [names[name] for name in choice["shortlist"] if name in names]  # type: ignore[attr-defined]
    plain, doubtful, clear, better = [own for own in trained if own.method or own is trained[0]][:4]
    balanced = next(setting for setting in trained[1:] if setting.method is None)
    gains = {
        doubtful: [0.06, 0.06, 0.06, 0.9], clear: [0.02] * 4, better: [0.0, 0.1, 0.1, 0.06],
        balanced: [0.01, 0.01, 0.01, 0.5],
    }  # fmt: skip
    none = [0.0] * 4
    scores = [Score(own.key, person, 0.5 + gains.get(own, none)[person]) for own in trained for person in range(4)]
    monkeypatch.setattr(procedure, "validation_scores", lambda *_, **__: scores)
    told = {(own.key, test): place + test / 10 for place, own in enumerate(trained) for test in range(4)}  # who is who
    monkeypatch.setattr(procedure, "scores_on_test", lambda _: told)
    first = Preparations([plain], scores, [plain], {test: [plain] for test in range(4)})
    found = decide(run, trained, first if prepared else None)
    # for everybody: doubtful 0.27 ± 0.21, with a lower quartile of 0.56; better 0.065 ± 0.024, with 0.545
    assert found["careful"]["name"] == run.options.name_of(better)
    assert found["chosen"]["name"] == run.options.name_of(better if prepared else doubtful)
    picks = found["nested_choices"]
    # without subject 0: better 0.087 ± 0.013, with a lower quartile of 0.58
    assert picks["0"] == run.options.name_of(better)
    # without subject 2: doubtful 0.34 ± 0.28, better 0.053 ± 0.029, clear 0.02 ± 0
    assert picks["2"] == run.options.name_of(clear if prepared else doubtful)
    assert found["best_uncensored"]["name"] == run.options.name_of(balanced), "which need not be clearly ahead"
    assert found["nested_uncensored_test_scores"] == {str(test): told[balanced.key, test] for test in range(4)}


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
                chosen_for.append(decide(run, trained, with_trained(found, clean.needed)))
                table |= {(key, person): draw.random() for key, person in table if person == subject}
            before, after = chosen_for
            for kind in ("nested", "nested_uncensored", "nested_careful"):
                own = f"{kind}_test_scores"
                assert after[own][str(subject)] == before[own][str(subject)]
            assert after["nested_choices"][str(subject)] == before["nested_choices"][str(subject)]
            moved += after["nested_choices"] != before["nested_choices"]
    assert moved > 0, "the corruption must be able to change what others get"


def with_trained(found: Preparations, trained: list[Setting]) -> Preparations:
    """With preparations that were trained wherever corruption has chosen others."""
    of_test = {test: [base for base in own if base in trained] or trained[:1] for test, own in found.of_test.items()}
    return found._replace(kept=trained[:1], of_test=of_test)


def test_the_report_draws_those_among_which_was_chosen(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    summary = settled(collect(run))
    figure = candidates(summary)
    assert figure is not None
    among, every = choice["validation_q25"], set(choice["shortlist"])  # type: ignore[call-overload]
    assert {row[0] for row in figure.rows} == set(among)
    assert "unless others have a mean (cross) above its own by more than two standard errors" in figure.caption
    fewer = dict(list(among.items())[:-2])  # type: ignore[attr-defined]
    figure = candidates(replace(summary, choice={**summary.choice, "validation_q25": fewer}))
    assert figure is not None
    assert {row[0] for row in figure.rows} == set(fewer) < every
    assert set(validation_table(summary).index) == every
    assert f"{len(every) - len(fewer)} more were trained for subjects whose own nested choice" in figure.caption
    figure = candidates(replace(summary, choice={**summary.choice, "lead": None}))
    assert figure is not None
    assert "The highest lower quartile (diamond) is chosen" in figure.caption


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
        kinds = preparation.preparations_of(name, options.settings()[0])
        assert {(own.compress, own.levels, own.power) for own in kinds} == {(None, False, False)}
        windows = list(dict.fromkeys((own.standardise, own.align) for own in PREPARATIONS[name]))
        assert kinds == [Traits(*own) for own in windows] + [
            Traits(*own, schedule="constant", keep="last") for own in windows
        ], "how long is learned is no matter of the network"


@pytest.mark.parametrize(("name", "kinds"), [("zero-shot", 4), ("adaptive", 6), ("transductive", 6)])
def test_every_preparation_is_tried_with_published_and_with_steady_training(name: str, kinds: int) -> None:
    plain = Setting(patience=3)
    tried = preparation.preparations_of(name, plain)
    assert len(set(tried)) == len(tried) == kinds
    assert Traits._fields == PREPARED, "the report tells all of them"
    assert tried[0] == preparation.traits(plain) == Traits("trial")
    published, steady = tried[: kinds // 2], tried[kinds // 2 :]
    assert {(own.schedule, own.keep) for own in published} == {("inverse_sqrt", "best")}
    assert {(own.schedule, own.keep) for own in steady} == {("constant", "last")}
    assert [own._replace(schedule="inverse_sqrt", keep="best") for own in steady] == published
    settings = [replace(plain, **own._asdict()) for own in tried]
    assert len({setting.name_beside(plain) for setting in settings}) == kinds
    wanted = {"zero-shot": {"none"}, "adaptive": {"none", "running"}, "transductive": {"none", "transductive"}}
    assert {setting.adaptation for setting in settings} == wanted[name]


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


def test_leakage_before_a_censor_is_that_of_the_same_preparation(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    entries = [entry for entry in run.ledger.entries() if entry.record]
    plain = run.options.settings()[0]
    needed = [Setting(**{name: told[name] for name in TRAITS}) for told in choice["preparations"] if told["kept"]]
    for base in needed:
        own_traits = preparation.traits(base)._asdict()
        censored = replace(plain, method="mmd", mode="marginal", strength=0.3, batches="auto", **own_traits)
        named = {"baseline": choice["baseline"], "chosen": {"name": run.options.name_of(censored)}}
        roles = _roles(named, entries, run.options)
        own = {role: {Setting.from_json(entry.setting) for entry in found} for role, found in roles.items()}
        twin = replace(plain, batches="balanced", **own_traits)
        assert own == {"baseline": {plain}, "chosen": {censored}, "uncensored": {twin}}
        # Where nobody trained it in balanced batches, in shuffled ones; where that is the baseline, there is no third.
        fewer = [entry for entry in entries if Setting.from_json(entry.setting) != twin]
        third = _roles(named, fewer, run.options).get("uncensored", [])
        shuffled = replace(twin, batches="shuffled")
        assert {Setting.from_json(entry.setting) for entry in third} == ({shuffled} if shuffled != plain else set())
        # Nor one that was trained on a single split.
        once = [entry for entry in entries if Setting.from_json(entry.setting).method is not None or not entry.test]
        assert "uncensored" not in _roles(named, [*once, *roles["baseline"]], run.options)
    nothing_gained = {"baseline": choice["baseline"], "chosen": choice["baseline"]}
    assert "uncensored" not in _roles(nothing_gained, entries, run.options)


def test_a_report_of_an_older_run_is_completed(finished: tuple[Run, dict[str, object]]) -> None:
    """A version before read leakage of two settings alone."""
    run, _ = finished
    whole = collect(run).leakage
    story = run.ledger.recall("weights story")
    run.ledger.remember(**{"weights story": story | {"leakage": {"chosen": [{"fold": 0.0, "accuracy": 0.123}]}}})
    try:
        found = collect(run).leakage
        assert found.keys() == whole.keys()
        assert found["baseline"] == whole["baseline"]
        assert found["chosen"] == [{"fold": 0.0, "accuracy": 0.123}], "what is known is not read anew"
        assert run.ledger.recall("weights story")["leakage"].keys() == whole.keys()
    finally:
        run.ledger.remember(**{"weights story": story})


def compared(page: str) -> list[tuple[str, ...]]:
    """What the report's table of preparations says of each, field by field."""
    (found,) = re.findall(r"<table><caption>How windows are prepared.*?</table>", page, re.DOTALL)
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", found.partition("</thead>")[0])
    assert heads == [*TRAITS, "went on", "lower quartile", "mean"]
    rows = re.findall(r"<tr>(.*?)</tr>", found.partition("<tbody>")[2], re.DOTALL)
    return [tuple(re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row)[: len(TRAITS)]) for row in rows]


def test_the_report_shows_what_was_compared(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    summary = collect(run)
    page = light(summary)
    assert "How windows are prepared" in page
    for told in choice["preparations"]:
        assert f"{told['validation_q25']:.3f}" in page
    tried = [tuple(told[name] for name in TRAITS) for told in choice["preparations"]]
    assert tried == list(PREPARATIONS["adaptive"])
    assert compared(page) == [tuple(str(value or "none") for value in row) for row in tried]
    later = ("schedule", "keep")
    before = [{name: told[name] for name in told if name not in later} for told in choice["preparations"]]
    page = light(replace(summary, choice=choice | {"preparations": before}))
    published = {row[TRAITS.index("schedule") :] for row in compared(page)}
    assert published == {("inverse_sqrt", "best")}, "runs from before there was a choice trained as published"
    for odd in (None, [], ["text", {"standardise": "<b>", "validation_q25": "much"}], [{}]):
        light(replace(summary, choice=choice | {"preparations": odd}))
