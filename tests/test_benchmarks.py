"""The benchmarks run and divide by the right number of steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.encoder import build_tables
from benchmarks.steps import build_plain_step, build_population_step, build_skorch_step, make_jobs, make_noise
from benchmarks.tables import describe_machine, write
from benchmarks.timing import Options, Step

import autotransfer as at

MAY_BE_NOTHING = ("peak MiB", "faults", "system ms")


@pytest.mark.slow
def test_tables(tmp_path: Path) -> None:
    options = Options(size="tiny", rounds=2)
    tables = list(build_tables(options))
    stored = json.loads(write(tmp_path, "encoder", options, describe_machine("cpu"), tables).read_text())
    assert stored["machine"]["torch"] == torch.__version__
    assert [table["title"] for table in stored["tables"]] == [table.title for table in tables]
    for table in tables:
        assert table.rows
        for row in table.rows:
            numbers = {name: value for name, value in row.items() if isinstance(value, (int, float))}
            assert numbers
            assert all(map(math.isfinite, numbers.values()))
            assert all(value > 0 for name, value in numbers.items() if name not in MAY_BE_NOTHING)
        assert len(table.markdown().splitlines()) >= 4 + len(table.rows)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every step of torch's AdamW."""
    steps: list[int] = []
    real = torch.optim.AdamW.step

    def counted(self: torch.optim.AdamW, closure: Callable[[], float] | None = None) -> float | None:
        steps.append(1)
        return real(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    return steps


@pytest.mark.parametrize("make", [build_plain_step, build_skorch_step])
def test_one_call_is_one_step(make: Callable[..., Step | None], taken: list[int]) -> None:
    step = make(2, 32, 8, "cpu")
    if step is None:
        pytest.skip("skorch is not installed")
    step.run()
    step.run()
    assert len(taken) == 2 * step.units


def test_members_share_minibatches_unless_alone() -> None:
    recordings = make_noise(2, 32, 32, steps=2)
    for alone, batches in ((False, 10), (True, 25)):
        jobs = make_jobs(recordings, at.Setting(batch_size=32), 25, alone=alone)
        assert len({job.fit_key for job in jobs}) == 25
        assert len({(job.fold.training_key, job.seed) for job in jobs}) == batches
    step = build_population_step(recordings, at.Setting(batch_size=32), 25, "cpu")
    assert step.units == 50
    step.run()


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--members", "0"], "at least 1"), (["--device", "cuda"], "no CUDA device")]
)
def test_mistakes_end_before_anything_is_measured(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    start = time.process_time()
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--out", str(tmp_path / "results")])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
    assert time.process_time() - start < 5
