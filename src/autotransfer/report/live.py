"""The live page: how far a run is, what leads at the moment, and learning curves, served to this machine alone.

A browser asks for the state every two seconds and draws it. The server listens on 127.0.0.1, answers only requests
that name this machine (so that no web site can reach it through a name of its own) and know the address's key (so that
no other user of the machine can), and changes nothing.
"""

from __future__ import annotations

import math
import secrets
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import UserError, one_line
from ..runs.choice import read_choice
from ..runs.follower import RunFollower, Seen
from ..runs.results import Trained
from ..words import clock
from .escaping import plain, script_json, short
from .page import asset
from .terminal import answer

HOSTS = ("127.0.0.1", "localhost", "[::1]")  # with any port, as a tunnel may have another
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
LINES = 6  # curves that are drawn
RANKED = 30  # settings that are listed
FRESH = 1.0  # seconds for which an answer is given again
LAST_LOOK = 3.0  # seconds in which an open page may fetch the end of a run
NAME = 120  # letters of a name


def state_of(seen: Seen) -> dict[str, Any]:
    """What the page draws, as JSON values."""
    standing, data = seen.standing, seen.data
    ranking = rank(seen.trainings)
    lines = [] if not standing.complete else answer(read_choice(standing.folder))
    return {
        "name": plain(data.name),
        "state": plain(standing.state),
        "complete": standing.complete,
        "working": standing.working,
        "jobs": standing.jobs,
        "share": 1.0 if standing.complete else standing.share,
        "spent": clock(standing.spent),
        "left": None if standing.left is None or standing.complete else clock(standing.left),
        "started": plain(standing.started),
        "chance": data.chance,
        "people": len(data.people),
        "answer": [plain(line) for line in lines],
        "ranking": ranking[:RANKED],
        "more": max(0, len(ranking) - RANKED),
        "curves": curves(seen, [row["name"] for row in ranking]),
        "failures": [short(failure, 200) for failure in standing.failures[:10]],
    }


def rank(trainings: list[Trained]) -> list[dict[str, Any]]:
    """Settings by their mean validation score, the best first: over the people who validated, each the mean over
    trainings. A failed training counts 0. Test scores decide nothing, and are not shown before the end."""
    scores: dict[str, dict[str, list[float]]] = {}
    counts: dict[str, int] = {}
    for training in trainings:
        if training.stage in ("sessions", "nested"):
            continue
        counts[training.name] = counts.get(training.name, 0) + 1
        twin = training.record.swapped
        halves = ((training.validation_subject, training.record), (training.test_subject, twin))
        for person, record in ((person, record) for person, record in halves if record is not None):
            value = 0.0 if training.failed else record.validation_score
            if math.isfinite(value):
                scores.setdefault(training.name, {}).setdefault(str(person), []).append(value)
    ranking = []
    for name, by_person in scores.items():
        values = [float(np.mean(repeats)) for repeats in by_person.values()]
        ranking.append(
            {
                "name": name,
                "mean": float(np.mean(values)),
                "quartile": float(np.percentile(values, 25)),
                "people": len(values),
                "trainings": counts[name],
            }
        )
    return sorted(ranking, key=lambda row: (-float(str(row["mean"])), str(row["name"])))


def curves(seen: Seen, ranked: list[str]) -> list[dict[str, Any]]:
    """Validation scores by epoch, mean over trainings: of the settings that lead, then of those being trained."""
    histories: dict[str, list[list[float]]] = {}
    for training in seen.trainings:
        if not training.failed and training.record.epochs > 1:
            histories.setdefault(training.name, []).append(training.record.history["validation_score"])
    drawn = [_curve(name, _mean(histories[name]), 1) for name in ranked if name in histories][:LINES]
    pulse = seen.standing.pulse
    if pulse is not None:
        running = {seen.names.get(key, key): values for key, values in pulse.curves.items() if len(values) > 1}
        running = {name: values for name, values in running.items() if name not in histories}
        best = sorted(running, key=lambda name: -running[name][-1])
        drawn += [_curve(name, running[name], pulse.every, running=True) for name in best[: LINES - len(drawn)]]
    return drawn


def _curve(name: str, values: list[float], every: int, *, running: bool = False) -> dict[str, Any]:
    step = max(1, len(values) // 100)
    return {
        "name": name,
        "running": running,
        "points": [[1 + every * place, values[place]] for place in range(0, len(values), step)],
    }


def _mean(histories: list[list[float]]) -> list[float]:
    """By epoch, over the trainings that reached it."""
    longest = max(len(history) for history in histories)
    table = np.full((len(histories), longest), np.nan)
    for row, history in zip(table, histories, strict=True):
        row[: len(history)] = history
    count = np.isfinite(table).sum(0)
    return [float(np.nansum(column) / n) for column, n in zip(table.T, count, strict=True) if n]


def page(nonce: str) -> str:
    """The page without any state, which its script requests. Colours and fonts are those of the report."""
    style = asset("page.css") + asset("live.css")
    return asset("live.html").replace("{nonce}", nonce).replace("{style}", style).replace("{script}", asset("live.js"))


class LivePage:
    """Serves the page of one run from a thread, until the block ends.

    with LivePage(folder) as live:
        print(live.url)
    """

    def __init__(self, folder: Path) -> None:
        self.follower = RunFollower(folder)
        self.key = secrets.token_urlsafe(12)
        self._lock = threading.Lock()
        self._state, self._when = b"", -math.inf
        self.asked = -math.inf  # when somebody last looked
        live = self

        class Handler(_Handler):
            page = live

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{self.key}/"

    def state(self) -> bytes:
        """The state as JSON, cached for a second; if the run cannot be read now, the JSON says why."""
        with self._lock:
            if time.monotonic() - self._when > FRESH:
                try:
                    state = state_of(self.follower.look())
                except (UserError, OSError) as error:
                    state = {"problem": plain(one_line(error))}
                self._state, self._when = script_json(state).encode(), time.monotonic()
            return self._state

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = time.monotonic()
        self._when = -math.inf  # what is shown last is the end
        if kind is None and now - self.asked < LAST_LOOK:  # somebody is looking: they shall see it
            while self.asked < now and time.monotonic() - now < LAST_LOOK:
                time.sleep(0.05)
            time.sleep(0.2)
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes its connection is nothing to tell."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    page: LivePage
    server_version, sys_version = "autotransfer", ""
    timeout = 10  # seconds for a request

    def do_GET(self) -> None:
        nonce = secrets.token_urlsafe(12)
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name not in HOSTS:
            self._answer(HTTPStatus.FORBIDDEN, b"this page is for its own machine alone", "text/plain", nonce)
            return
        key, _, what = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not secrets.compare_digest(key.encode(errors="replace"), self.page.key.encode()):
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here; use the whole address", "text/plain", nonce)
        elif what == "":
            self._answer(HTTPStatus.OK, page(nonce).encode(), "text/html; charset=utf-8", nonce)
        elif what == "state":
            body = self.page.state()
            self.page.asked = time.monotonic()
            self._answer(HTTPStatus.OK, body, "application/json", nonce)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here", "text/plain", nonce)

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, nonce: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "Content-Security-Policy": POLICY.format(nonce=nonce), "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the terminal belongs to the run."""
