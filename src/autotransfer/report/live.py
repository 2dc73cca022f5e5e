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
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, one_line
from ..runs.choice import read_choice
from ..runs.follower import RunFollower, Seen
from ..runs.results import Trained
from ..words import clock
from .escaping import plain, script_json, short
from .outcomes import mean_scores
from .page import asset
from .terminal import answer_lines
from .training_figures import one_table

HOSTS = ("127.0.0.1", "localhost", "[::1]")  # with any port, as a tunnel may have another
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
LINES = 6  # curves that are drawn
RANKED = 30  # settings that are listed
FRESH = 1.0  # seconds for which an answer is given again
LAST_LOOK = 3.0  # seconds in which an open page may fetch the end of a run


def state_of(seen: Seen) -> dict[str, Any]:
    """What the page draws, as JSON values."""
    standing, data = seen.standing, seen.data
    ranking = rank(seen.trainings)
    lines = [] if not standing.complete else answer_lines(read_choice(standing.folder), standing.folder)
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
        "curves": leading_curves(seen, [row["name"] for row in ranking]),
        "failures": [short(failure, 200) for failure in standing.failures[:10]],
    }


def rank(trainings: list[Trained]) -> list[dict[str, Any]]:
    """Settings by their mean validation score, the best first: over the people who validated, each the mean over
    trainings. A failed training counts 0. Test scores decide nothing, and are not shown before the end."""
    rows: list[tuple[str, str, float]] = []
    counts = Counter[str]()
    for training in trainings:
        if training.stage != "sessions":
            counts[training.name] += 1
            halves = (training.validation_subject, training.record), (training.test_subject, training.record.swapped)
            for person, record in halves:
                if record is not None:
                    rows.append((training.name, str(person), 0.0 if training.failed else record.validation_score))
    ranking: list[dict[str, Any]] = []
    for name, by_person in mean_scores(rows).items():
        values = list(by_person.values())
        mean, quartile = float(np.mean(values)), float(np.percentile(values, 25))
        counted = {"people": len(values), "trainings": counts[name]}
        ranking.append({"name": name, "mean": mean, "quartile": quartile} | counted)
    return sorted(ranking, key=lambda row: (-row["mean"], row["name"]))


def leading_curves(seen: Seen, ranked: list[str]) -> list[dict[str, Any]]:
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


def _mean(histories: list[list[float]]) -> list[float]:
    """By epoch, over the trainings that reached it."""
    table = one_table(histories)
    return [float(value) for value in np.nanmean(table[:, np.isfinite(table).any(0)], axis=0)]


def _curve(name: str, values: list[float], every: int, *, running: bool = False) -> dict[str, Any]:
    step = max(1, len(values) // 100)
    points = [[1 + every * place, values[place]] for place in range(0, len(values), step)]
    return {"name": name, "running": running, "points": points}


def render_live_page(nonce: str) -> str:
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
        self.server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"page": self}))
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        nonce, host = secrets.token_urlsafe(12), self.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        key, _, resource = self.path.partition("?")[0].removeprefix("/").partition("/")
        status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", b"there is nothing here"
        if name not in HOSTS:
            status, body = HTTPStatus.FORBIDDEN, b"this page is for its own machine alone"
        elif not secrets.compare_digest(key.encode(errors="replace"), self.page.key.encode()):
            body = b"there is nothing here; use the whole address"
        elif resource == "":
            status, kind, body = HTTPStatus.OK, "text/html; charset=utf-8", render_live_page(nonce).encode()
        elif resource == "state":
            status, kind, body = HTTPStatus.OK, "application/json", self.page.state()
            self.page.asked = time.monotonic()
        self.send_response(status)
        for header, value in {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "Content-Security-Policy": POLICY.format(nonce=nonce), "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
        }.items():  # fmt: skip
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the terminal belongs to the run."""
