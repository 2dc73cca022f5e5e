"""Shared settings of the suite."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Helpers of the tests, benchmarks/, and the browser that draws pictures of reports.
sys.path[:0] = [str(HERE), str(HERE.parent)]


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


# The table of injected faults: every campaign has one case in `make test` and more in `make test-slow`.
CAMPAIGNS = ("kills", "failing writes", "damaged checkpoints", "fuzzing", "streams", "sessions", "sanitizers")


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that adds the faults of a test to the table: how many were injected, lost work or a process,
    and gave a wrong result silently. It fails if nothing was injected, or if anything was lost or wrong."""
    start = time.monotonic()

    def count(name: str, injected: int, lost: int = 0, silent: int = 0) -> None:
        nonlocal start
        assert name in CAMPAIGNS
        assert injected > 0, f"{name}: nothing was injected"
        row = (name, injected, lost, silent, time.monotonic() - start)
        start += row[-1]
        request.node.user_properties.append(("campaign", row))
        assert (lost, silent) == (0, 0), f"{name}: {lost} lost, {silent} silently wrong, of {injected}"

    return count


EVERYTHING = "slow or faults"  # what `make test-slow` selects


def rows_of(config: pytest.Config) -> dict[str, list[float]]:
    """Return the sums over tests: injected, lost, silent and seconds of each campaign."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    is_complete = config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.option.markexpr == EVERYTHING
    rows = {name: [0.0] * 4 for name in CAMPAIGNS if is_complete}
    reports = [one for group in reporter.stats.values() for one in group if getattr(one, "when", None) == "call"]
    for name, *numbers in (value for report in reports for key, value in report.user_properties if key == "campaign"):
        rows[name] = [sum(pair) for pair in zip(rows.get(name, [0.0] * 4), numbers, strict=True)]
    return {name: rows[name] for name in CAMPAIGNS if name in rows}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail `make test-slow` if a campaign has injected nothing, as without a compiler."""
    if not hasattr(session.config, "workerinput") and not all(row[0] for row in rows_of(session.config).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if rows := rows_of(config):
        lines = [f"{'campaign':20} {'injected':>8} {'lost':>5} {'silent':>6} {'seconds':>7}"]
        lines += [f"{name:20} {row[0]:8.0f} {row[1]:5.0f} {row[2]:6.0f} {row[3]:7.0f}" for name, row in rows.items()]
        terminalreporter.write_line("\n".join(lines))
