"""A run is summarized for its report, and leakage is computed once."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from autotransfer import Setting
from autotransfer.report.collect import collect
from autotransfer.runs import options as options_module
from autotransfer.runs.choice import NamedSetting, read_choice
from autotransfer.runs.results import FinishedFit
from autotransfer.runs.run import Run
from autotransfer.search import procedure
from autotransfer.search.evidence import ClassificationEvidence
from report_example import finished
from report_outline import Outline, figure_data, light
from tiny import create_run, described, tiny_file

CENSORED = Setting(method="mmd", mode="marginal", strength=0.3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three settings, of which the censored one is chosen whatever they score."""
    folder = tmp_path_factory.mktemp("run")
    options = described(source=str(tiny_file(folder)), max_epochs=2, device="cpu", rule="published")
    few = [Setting(), Setting(batches=CENSORED.training.batches), CENSORED]
    with (
        mock.patch.object(options_module, "grid", return_value=few),
        mock.patch.object(ClassificationEvidence, "best", lambda _, among: among[-1]),
    ):
        found = create_run(folder / "run", options)
        procedure.perform_plan(found, lambda _: None, progress=False)
    return found


def test_a_finished_run_is_summarized(run: Run) -> None:
    summary = collect(run)
    assert summary.complete
    assert summary.choice == read_choice(run.folder)
    assert summary.jobs_done == summary.jobs_total == len(summary.fits) == 12
    assert summary.folds == 4
    assert sum(summary.data.windows_by_unit) == summary.data.n_windows == 48
    assert list(summary.leakage) == ["paper_network", "chosen", "uncensored"]
    text = light(summary)
    assert {figure["key"] for figure in figure_data(text)} >= {"subjects", "leakage", "confusion", "curves"}
    assert "mmd marginal" in Outline(text).text


def test_a_run_that_is_not_complete_claims_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "folder", run.folder / "elsewhere")  # where no choice.json is
    summary = collect(run)
    assert not summary.complete
    assert summary.leakage == {}
    assert Outline(light(summary)).title.startswith("INCOMPLETE")


def test_leakage_before_a_censor_is_that_of_the_same_preprocessing() -> None:
    run = finished(3)
    record, known = run.fits[0].record, run.choice
    plain, own = Setting(), {"standardize": "train"}
    censored = replace(CENSORED, **own)
    twin, shuffled = Setting(**own, batches=CENSORED.training.batches), Setting(**own)

    def found(chosen: Setting, *settings: Setting, folds: int = 3) -> dict[str, Setting]:
        jobs = [(chosen, fold) for fold in range(3)] + [(s, fold) for s in settings for fold in range(folds)]
        fits = tuple(FinishedFit("folds", "", setting, fold, "1", "2", 0, "", record) for setting, fold in jobs)
        named = {"paper_network": NamedSetting("paper_network", plain), "chosen": NamedSetting("chosen", chosen)}
        return replace(run, choice=replace(known, **named), fits=fits).networks

    both = {"paper_network": plain, "chosen": censored}
    assert found(censored, plain, shuffled, twin) == {**both, "uncensored": twin}
    assert found(censored, plain, shuffled) == {**both, "uncensored": shuffled}
    assert found(censored, plain, twin, folds=1) == both, "trained on a single split"
    assert found(CENSORED, plain) == {"paper_network": plain, "chosen": CENSORED}
    assert found(plain) == {"paper_network": plain}
