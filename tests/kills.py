"""Runs that are killed: each goes on to the same result, loses no job, trains none twice, and predicts meanwhile.

A small run is killed once to eight times: most often at a write where a stage ends (before it, halfway or after it),
else at any write or at a random moment. After each kill `predict` works, or says that there is no model yet. The last
command of a run is not killed, and what it leaves is compared bit for bit with an undisturbed run.
tests/test_failing_writes.py kills AUTOTRANSFER_KILLS runs.
"""

from __future__ import annotations

import random
import shutil

from failing_writes import FAULTS, Ending, Fault, Layer

KINDS = [kind for kind in FAULTS if kind.startswith("killed")]
# Parts of paths: what is written where a stage ends, and how many writes of it the run makes.
ANSWERS = {"choice.json": 3, "plan.json": 3, "model": 12, "results.csv": 6, "report.html": 3}


def killed(layer: Layer, seed: int, first: Ending) -> tuple[int, str]:
    """How often a run was killed, and its outcome: `same`, `lost: …` or `silent: …`. first: the undisturbed run."""
    from autotransfer.runs.database import FINISHED
    from faults import entries_of

    draw = random.Random(f"kills {seed}")
    shutil.rmtree(layer.run, ignore_errors=True)
    most = draw.choice((1, 2, 2, 4, 8))
    kills = 0
    starts: dict[str, int] = {}  # of the finished jobs: how often each was begun
    known: set[str] = set()
    try:
        while True:
            fault, until = _next_fault(draw, first) if kills < most else (Fault(), float("inf"))
            ended = layer.command(*layer.begin(), fault=fault, until=until)
            entries = entries_of(layer.run, layer.folder / "copy")
            assert known <= {entry.key for entry in entries}, "a job was lost"
            known |= {entry.key for entry in entries}
            done = {entry.key: entry.starts for entry in entries if entry.status in FINISHED}
            assert starts.items() <= done.items(), "a finished job was lost or trained again"
            starts |= done
            if ended.code != -9:
                assert ended.code == 0, f"exit code {ended.code}: {ended.said[-500:]}"
                break
            kills += 1
            _check_predicts(layer)
        assert (layer.run / "report.html").exists(), "no report"
    except AssertionError as wrong:
        return kills, f"lost: {wrong}"
    return kills, layer.difference() or "same"


def _next_fault(draw: random.Random, first: Ending) -> tuple[Fault, float]:
    """Where the next command is killed, and after how many seconds at most."""
    place, kind = draw.random(), draw.choice(KINDS)
    if place < 0.6:
        part = draw.choice(list(ANSWERS))
        return Fault(draw.randint(1, ANSWERS[part]), kind, part=part), float("inf")
    if place < 0.8:
        return Fault(draw.randrange(1, first.writes + 1), kind), float("inf")
    return Fault(), draw.random() * first.seconds


def _check_predicts(layer: Layer) -> None:
    """A run that was killed predicts, or one line says why not, and there is no model."""
    out = layer.folder / "predicted.csv"
    out.unlink(missing_ok=True)
    ended = layer.command("predict", layer.run, layer.source, "--out", out)
    if ended.code == 0:
        assert out.read_text().count("\n") > 10, "no predictions"
        return
    assert ended.code == 2, f"predict: exit code {ended.code}: {ended.said[-500:]}"
    assert len(ended.lines) == 1, f"predict: not one line: {ended.said[-500:]}"
    assert not (layer.run / "model" / "model.json").exists(), f"there is a model: {ended.said}"
