"""What a finished run has lost is made again from its ledger, equal to what it was, and nothing is trained again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.export import export_model
from autotransfer.models.loading import MARK
from autotransfer.runs.ledger import Ledger
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search import planning, stopping
from autotransfer.search.procedure import conduct
from faults import few_closed_forms, quiet
from tiny import tiny_file

pytestmark = pytest.mark.usefixtures("brief_answers")

FILES = ("model/model.safetensors", "model/model.json", "choice.json", "plan.json", "results.csv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that ended before all of its plan was trained: no more gain was expected."""
    folder = tmp_path_factory.mktemp("finished")
    options = RunOptions(
        source=str(tiny_file(folder, n_subjects=4)), epochs=2, batch_size=8, lr=1e-2, device="cpu", grid="uncensored",
        seeds=1, adaptation="zero-shot", time="1h", final="refit",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, few_closed_forms():
        patch.setattr(planning, "SHORT", -1.0)  # a stage for every network, however short it is
        patch.setattr(stopping, "expects_gain", lambda scores, without=frozenset(): len(scores) < 2)
        patch.setattr("autotransfer.search.procedure.expects_gain", stopping.expects_gain)
        run = Run.create(folder / "run", options)
        choice = conduct(run, quiet, shown=False)
        run.ledger.close()
        assert choice.ended == "no more gain was expected"
        yield run.folder


def call(*words: object) -> str:
    result = CliRunner().invoke(app, list(map(str, words)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def trainings(folder: Path) -> list[tuple[str, str, int]]:
    with closing(Ledger(folder / "ledger.sqlite", read_only=True)) as ledger:
        return [(entry.key, entry.status, entry.starts) for entry in ledger.entries(records=False)]


def lose_model(folder: Path) -> None:
    shutil.rmtree(folder / "model")


def damage_card(folder: Path) -> None:
    (folder / "model" / "model.json").write_text("garbage")


def lose_model_and_choice(folder: Path) -> None:
    lose_model(folder)
    (folder / "choice.json").unlink()


def damage_choice(folder: Path) -> None:
    (folder / "choice.json").write_text("{}")


def lose_tables(folder: Path) -> None:
    (folder / "plan.json").unlink()
    (folder / "results.csv").write_text("")


@pytest.mark.parametrize("lose", [lose_model, damage_card, lose_model_and_choice, damage_choice, lose_tables])
def test_what_is_lost_is_made_again_as_it_was(tmp_path: Path, finished: Path, lose: Callable[[Path], None]) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    lose(folder)
    told = call("resume", folder)
    assert told.count("made again from the ledger") == 1
    for name in FILES:
        assert (folder / name).read_bytes() == (finished / name).read_bytes(), name
    refit = "model/refit/model.safetensors"  # the ledger has no weights of it, so a lost one is trained once more
    assert (folder / refit).read_bytes() == (finished / refit).read_bytes()
    assert ("refit: " in told) == (lose in (lose_model, lose_model_and_choice))
    assert trainings(folder) == trainings(finished)
    assert "is finished" in call("resume", folder)


def test_exports_of_a_former_model_are_named_when_the_model_is_replaced(tmp_path: Path, finished: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    export_model(folder, "safetensors")
    lose_model(folder)
    assert "former model" not in call("resume", folder), "the same model is there again"
    former = folder / "model.onnx"
    former.write_bytes(MARK.encode())
    lose_model(folder)
    assert f"{former} is of a former model" in call("resume", folder)
    assert former.exists()


def test_a_run_from_before_the_ledger_kept_the_choice_is_mended_too(tmp_path: Path, finished: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    with closing(Ledger(folder / "ledger.sqlite")) as ledger, ledger.transaction() as connection:
        connection.execute("DELETE FROM facts WHERE name = 'choice'")
    lose_model_and_choice(folder)
    call("resume", folder)
    for name in ("model/model.safetensors", "results.csv"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes(), name
    assert trainings(folder) == trainings(finished)


def test_without_weights_one_line_says_so(tmp_path: Path, finished: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    lose_model(folder)
    with closing(Ledger(folder / "ledger.sqlite")) as ledger, ledger.transaction() as connection:
        connection.execute(
            "UPDATE jobs SET tensors = NULL, "
            "checksum = checksum(key, number, stage, setting, validation, test, seed, record, NULL)"
        )
    with pytest.raises(
        UserError, match=r"has a job without weights .*; restore the run's folder from a copy, or start"
    ):
        call("resume", folder)


def test_a_finished_run_without_its_model_is_not_called_unfinished(tmp_path: Path, finished: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    lose_model(folder)
    with pytest.raises(
        UserError, match=f"{folder} has no model: .* lost its model, makes it with: autotransfer resume"
    ):
        call("predict", folder, finished.parent / "tiny.npz")
