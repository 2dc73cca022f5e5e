"""Shared settings of the suite."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Helpers of the tests, benchmarks/, and the browser that draws pictures of reports.
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "docs")]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported stays to the end. Looking through all of it for garbage takes a third of a second each time, a
    fifth of the time to collect the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_forced_to_the_disk() -> Iterator[None]:
    """No test cuts the power, and what is killed leaves its files to the system all the same. A tiny run would wait
    for its two hundred transactions longer than it trains."""
    from autotransfer.runs.database import RunDatabase

    prepare = RunDatabase._prepare

    def prepared(database: RunDatabase, create: bool, read_only: bool) -> None:
        prepare(database, create, read_only)
        database.connection.execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(RunDatabase, "_prepare", prepared)
        yield


@pytest.fixture(scope="module")
def brief_results() -> Iterator[None]:
    """One subject alone uses the model of a run, and no model of another library is scored next to it: both
    together are a third of a tiny run. For modules that say nothing about them."""
    from autotransfer.search import baselines, procedure

    with pytest.MonkeyPatch.context() as patch:
        replay = procedure.replay_subjects

        def of_one(run: Any, selection: Any, log_probs: Any, online: Any) -> Any:
            return replay(run, selection, dict(islice(log_probs.items(), 1)), online)

        patch.setattr(procedure, "replay_subjects", of_one)
        patch.setattr(baselines, "BASELINES", {})
        yield
