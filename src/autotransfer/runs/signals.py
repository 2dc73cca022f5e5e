"""SIGINT, SIGTERM and SIGHUP: a run ends with a checkpoint, and its last line says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Ctrl-C, a scheduler, a terminal that closes


class Stopped(BaseException):
    """A signal has ended the work. No Exception: nobody may take it for a fault of a training."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class _State:
    asked: int | None = None  # the signal that came during an epoch
    waiting = False  # whether signals wait for the end of an epoch


@contextmanager
def signals_stop() -> Iterator[None]:
    """Here signals raise `Stopped`. One that is ignored stays so: nohup and shells' background jobs mean it."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    before = {}
    for name in NAMES:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _State.asked, _State.waiting = None, False


@contextmanager
def signals_wait() -> Iterator[None]:
    """Here the first signal waits for `raise_if_asked`, so that it meets no half of an epoch; a second one does not."""
    _State.waiting = True
    try:
        yield
    finally:
        _State.waiting = False
    raise_if_asked()


def asked_to_stop() -> bool:
    return _State.asked is not None


def raise_if_asked() -> None:
    if _State.asked is not None:
        number, _State.asked = _State.asked, None
        raise Stopped(number)


def _stop(number: int, _: FrameType | None) -> None:
    raise_if_asked()
    if not _State.waiting:
        raise Stopped(number)
    _State.asked = number
