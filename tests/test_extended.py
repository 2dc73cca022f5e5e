"""The extended search from end to end on tiny data: what it compares, what it calls a baseline, what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.models.loading import load_model
from autotransfer.report.terminal import answer_lines
from autotransfer.runs.choice import read_choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.planning import plan_of
from autotransfer.search.procedure import conduct
from tiny import tiny, tiny_file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("extended")
    source = str(tiny_file(folder))
    made = Run.create(
        folder / "run",
        RunOptions(source=source, grid="extended", epochs=2, batch_size=8, device="cpu", rule="published"),
    )
    conduct(made, lambda _: None, shown=False)
    return made


def test_the_baseline_is_the_plain_network_and_the_best_uncensored_stands_beside_it(run: Run) -> None:
    choice = read_choice(run.folder)
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    assert table.loc[table["stage"] == "search", "setting"].is_unique
    assert (table["stage"] == "search").sum() == 72
    assert choice.baseline.name == choice.shortlist[0].name == "baseline"
    plain = table[(table["method"] == "none") & table["setting"].isin([named.name for named in choice.shortlist])]
    names = list(plain["setting"].unique())
    assert len(names) in (3, 4)
    q25 = choice.validation_q25
    assert q25[choice.best_uncensored.name] == max(q25[name] for name in names)
    own = table[(table["setting"] == choice.best_uncensored.name) & (table["stage"] != "nested")]
    scores = dict(zip(own["test_subject"].astype(str), own["test_score"], strict=True))
    assert choice.test_scores["best_uncensored"] == pytest.approx(scores)
    trainings = plan_of(run.prepared).trainings
    assert trainings - 3 <= len(table) <= trainings


def test_the_choice_says_how_it_treats_new_people(run: Run) -> None:
    choice = read_choice(run.folder)
    assert choice.adaptation == choice.chosen.setting.adaptation
    assert choice.transductive is False
    for subject, name in choice.nested_choices.items():
        assert choice.nested_adaptations[subject] == choice.settings[name].adaptation
    assert any("zero-shot" in line for line in answer_lines(replace(choice, adaptation="online")))
    shown = "\n".join(answer_lines(choice))
    assert ("best uncensored" in shown) == (choice.best_uncensored.name != "baseline")


def test_what_the_user_fixes_is_not_varied() -> None:
    options = RunOptions(source="watch", grid="extended", standardise="train", align="online", lr=0.01)
    settings = options.settings()
    assert len(set(settings)) == len(settings) < 63
    assert {(s.standardise, s.align, s.lr) for s in settings} == {("train", "online", 0.01)}
    assert options.name_of(settings[0]) == "baseline"
    assert len({options.name_of(s) for s in settings}) == len(settings)
    with pytest.raises(UserError, match="unknown align 'x'"):
        RunOptions(source="watch", align="x")


@pytest.mark.slow
def test_an_aligned_run_from_the_command_line(tmp_path: Path) -> None:
    """Run, report, predict and export with alignment: the ensemble predicts what training evaluated."""
    source, out = tiny_file(tmp_path), tmp_path / "run"
    arguments = ["run", str(source), "--out", str(out), "--epochs", "3", "--batch-size", "8", "--device", "cpu"]
    done = CliRunner().invoke(
        app,
        [
            *arguments,
            "--standardise",
            "online",
            "--align",
            "online",
            "--final",
            "refit",
            "--rule",
            "published",
            "--seeds",
            "1",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "zero-shot" in done.stdout
    choice = read_choice(out)
    assert (choice.adaptation, choice.transductive) == ("online", False)
    assert set(choice.nested_adaptations.values()) == {"online"}
    assert "Adapts to each new person" in (out / "report.html").read_text()
    table = pd.read_csv(out / "results.csv")
    assert set(table["align"]) == {"online"}

    rec = tiny()
    outcomes = at.train(rec, [at.Job(choice.chosen.setting, fold) for fold in at.leave_one_subject_out(rec)], "cpu")
    _, logits = at.encode(rec, outcomes, np.arange(rec.n_trials))
    held = [np.union1d(o.job.fold.validation, o.job.fold.test) for o in outcomes]
    model = load_model(out / "model")
    z = model.latents(rec.X, rec.subject)
    got = model.classifier(z).detach()
    for member, rows in enumerate(held):  # to a member these are strangers, as they were in its training
        np.testing.assert_allclose(got[member, rows].numpy(), logits[member, rows].numpy(), atol=1e-3)
    file = CliRunner().invoke(app, ["predict", str(out), str(source), "--out", str(tmp_path / "p.csv")])
    assert file.exit_code == 0
    predicted = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(predicted[["p_left", "p_right"]], model.predict_proba(rec.X, rec.subject), atol=1e-6)
    refit = load_model(out / "model" / "refit")
    assert refit.predict_proba(rec.X, rec.subject).shape == (48, 2)
