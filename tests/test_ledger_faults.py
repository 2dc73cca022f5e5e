"""A ledger under random faults: after a full disk, a kill inside a transaction or a torn log it holds what was
committed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import autotransfer as at
from autotransfer.runs.ledger import FINISHED, Entry, Ledger
from test_schema import record

KEYS = [f"job{n}" for n in range(8)]
SETTING = at.Setting()
RECORDS = {failed: record(failure="it diverged" if failed else None) for failed in (False, True)}
FACTS = ("fact a", "fact b")
State = dict[str, Any]  # jobs: key -> [status, starts, weights]; facts; populations: number -> keys of open ones

some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
faults = st.sampled_from([None, None, "full", "killed before", "killed after"])


def state_of(ledger: Ledger) -> State:
    jobs = {entry.key: [entry.status, entry.starts, ledger.tensors(entry.key)] for entry in ledger.entries()}
    populations = {found.number: found.keys for found in ledger.open_populations()}
    known = {name: ledger.recall(name, str) for name in FACTS}
    facts = {name: value for name, value in known.items() if value is not None}
    return {"jobs": jobs, "facts": facts, "populations": populations}


class Ledgers(RuleBasedStateMachine):
    """The oracle is a dict that changes when a method has returned, and not when it has failed."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.number = 0
        Ledger(self.place() / "ledger.sqlite", create=True).close()  # as in a run: its tables are in the file itself
        self.ledger = Ledger(self.place() / "ledger.sqlite")
        self.state: State = {"jobs": {}, "facts": {}, "populations": {}}
        self.committed = [deepcopy(self.state)]  # since the file was last whole without its log

    def place(self) -> Path:
        path = self.folder / str(self.number)
        path.mkdir(exist_ok=True)
        return path

    def copy(self) -> Path:
        """The files as a kill at this moment would leave them."""
        self.number += 1
        for path in self.ledger.path.parent.iterdir():
            shutil.copy(path, self.place() / path.name)
        return self.place()

    def move_to(self, folder: Path) -> None:
        """Somebody resumes from files that a killed process has left."""
        self.ledger.close()
        self.ledger = Ledger(folder / "ledger.sqlite")

    def change(self, method: Callable[[], object], done: Callable[[State], object], fault: str | None) -> None:
        after = deepcopy(self.state)
        done(after)
        if fault == "full":
            ((pages,),) = self.ledger.connection.execute("PRAGMA page_count").fetchall()
            self.ledger.connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
            try:
                method()
            except OSError:
                after = self.state
            self.ledger.connection.execute("PRAGMA max_page_count = 1000000").fetchall()
        elif fault == "killed before":
            left: list[Path] = []
            self.ledger.connection.set_trace_callback(
                lambda text: left.append(self.copy()) if text == "COMMIT" else None
            )
            method()
            self.ledger.connection.set_trace_callback(None)
            self.move_to(left[-1])
            after = self.state
        else:
            method()
        self.state = after
        self.committed.append(deepcopy(after))
        if fault == "killed after":
            self.move_to(self.copy())

    @rule(keys=some_keys, fault=faults)
    def add(self, keys: list[str], fault: str | None) -> None:
        entries = [Entry(key, "folds", SETTING, 0, 1, 0) for key in keys]
        self.change(
            lambda: self.ledger.add(entries),
            lambda state: [state["jobs"].setdefault(key, ["waiting", 0, b""]) for key in keys],
            fault,
        )

    @rule(keys=some_keys, fault=faults)
    def begin_jobs(self, keys: list[str], fault: str | None) -> None:
        own = [key for key in keys if self.state["jobs"].get(key, ["done"])[0] not in FINISHED]

        def done(state: State) -> None:
            for key in own:
                state["jobs"][key][:2] = ["running", state["jobs"][key][1] + 1]

        self.change(lambda: self.ledger.begin(own), done, fault)

    @rule(key=st.sampled_from(KEYS), failed=st.booleans(), size=st.integers(1, 30_000), fault=faults)
    def finish(self, key: str, failed: bool, size: int, fault: str | None) -> None:
        """A job that is finished or unknown stays as it is."""

        def done(state: State) -> None:
            if state["jobs"].get(key, ["done"])[0] not in FINISHED:
                state["jobs"][key][0], state["jobs"][key][2] = "failed" if failed else "done", bytes(size)

        self.change(lambda: self.ledger.finish(key, RECORDS[failed], bytes(size)), done, fault)

    @rule(name=st.sampled_from(FACTS), size=st.integers(0, 20_000), fault=faults)
    def remember(self, name: str, size: int, fault: str | None) -> None:
        self.change(
            lambda: self.ledger.remember(**{name: "x" * size}),
            lambda state: state["facts"].update({name: "x" * size}),
            fault,
        )

    @rule(parts=st.lists(some_keys, min_size=1, max_size=3), fault=faults)
    def add_populations(self, parts: list[list[str]], fault: str | None) -> None:
        ((last,),) = self.ledger.connection.execute("SELECT coalesce(max(number), 0) FROM populations").fetchall()
        self.change(
            lambda: self.ledger.add_populations(parts),
            lambda state: state["populations"].update({last + 1 + place: keys for place, keys in enumerate(parts)}),
            fault,
        )

    @rule(which=st.integers(0, 5), fault=faults)
    def end_population(self, which: int, fault: str | None) -> None:
        self.change(
            lambda: self.ledger.end_population(which), lambda state: state["populations"].pop(which, None), fault
        )

    @rule(keys=some_keys, fault=faults)
    def drop(self, keys: list[str], fault: str | None) -> None:
        def done(state: State) -> None:
            jobs = state["jobs"]
            state["jobs"] = {key: job for key, job in jobs.items() if key not in keys}
            state["populations"] = {n: own for n, own in state["populations"].items() if not set(keys) & set(own)}

        self.change(lambda: self.ledger.drop(keys), done, fault)

    @rule()
    def reopen(self) -> None:
        self.ledger.close()  # which empties the log into the file
        self.ledger = Ledger(self.ledger.path)
        self.committed = [deepcopy(self.state)]

    @rule(share=st.floats(0, 1), cut=st.booleans())
    def torn_log(self, share: float, cut: bool) -> None:
        """Power fails: the log ends early, or holds something else from some byte on. An earlier commit counts."""
        folder = self.copy()
        log = folder / "ledger.sqlite-wal"
        if not log.exists() or not log.stat().st_size:
            return
        (folder / "ledger.sqlite-shm").unlink(missing_ok=True)  # is made from the log
        data = log.read_bytes()
        keep = int(share * len(data))
        log.write_bytes(data[:keep] + (b"" if cut else bytes(len(data) - keep)))
        self.move_to(folder)
        found = state_of(self.ledger)
        assert found in self.committed, "a state that never was"
        self.state = found

    @invariant()
    def holds_what_was_committed(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.check()
            assert state_of(self.ledger) == self.state

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            shutil.rmtree(self.folder)


QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_a_ledger_holds_what_was_committed() -> None:
    run_state_machine_as_test(Ledgers, settings=settings(max_examples=12, stateful_step_count=15, **QUICK))


@pytest.mark.slow
def test_a_ledger_holds_what_was_committed_however_long() -> None:
    run_state_machine_as_test(Ledgers, settings=settings(max_examples=300, stateful_step_count=40, **QUICK))
