"""Handling of SIGINT, SIGTERM and SIGHUP: a run writes its checkpoint file and stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # sent by Ctrl-C, by a scheduler, and by a terminal that closes


class StopSignal(BaseException):
    """Raised when a signal stops a run. The base class is not `Exception`, which is handled as a failed fit."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class _State:
    pending: int | None = None  # signal that arrived during an epoch
    is_delayed = False  # whether signals wait for the end of the epoch


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `StopSignal` on signals inside this context, except signals that are ignored, for example by nohup."""
    if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread only
        yield
        return
    handlers = {}
    for name in NAMES:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            handlers[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _State.pending, _State.is_delayed = None, False


@contextmanager
def delay_signals() -> Iterator[None]:
    """Delay the first signal until the end of the epoch (`raise_if_stop_requested`); a second signal stops at once."""
    _State.is_delayed = True
    try:
        yield
    finally:
        _State.is_delayed = False
    raise_if_stop_requested()


def is_stop_requested() -> bool:
    return _State.pending is not None


def raise_if_stop_requested() -> None:
    if _State.pending is not None:
        number, _State.pending = _State.pending, None
        raise StopSignal(number)


def _stop(number: int, _: FrameType | None) -> None:
    raise_if_stop_requested()
    if not _State.is_delayed:
        raise StopSignal(number)
    _State.pending = number
