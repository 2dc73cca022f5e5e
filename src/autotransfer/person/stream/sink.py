"""Sinks of decisions: a CSV file, standard output, or a stream of the Lab Streaming Layer."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from ...csv_tables import escape_formula
from ...errors import UserError, shown
from ...words import printable
from ..events import Activation


class Sink(Protocol):
    def send(
        self, time: float, window: int, probability: NDArray[np.float64], activation: Activation | None = None
    ) -> None:
        """Send the decision for the window that ended at `time`: probabilities (classes,), and an activation."""

    def close(self) -> None: ...


def open_sink(text: str | None, classes: Sequence[object], source: str, *, events: bool = False) -> Sink:
    """Open lsl:NAME, FILE.csv, or None for standard output. events: whether to add a column for activations."""
    names = [str(name) for name in classes]
    if text is None:
        return CsvSink(sys.stdout, names, events)
    if text.startswith("lsl:"):
        from .lsl import LslSink

        return LslSink(text.removeprefix("lsl:"), names, source, events)
    if not text.lower().endswith(".csv"):
        raise UserError(f"the output is {shown(text)}; give lsl:NAME or a .csv file")
    try:
        Path(text).touch(exist_ok=False)
    except FileExistsError:
        raise UserError(f"{text} exists; choose another file, or remove it") from None
    except OSError as error:
        raise UserError(f"cannot write {text} ({error.strerror or error}); choose another file") from None
    try:
        return CsvSink(Path(text).open("w", encoding="utf-8", errors="backslashreplace", newline=""), names, events)
    except OSError:  # the disk is full
        Path(text).unlink()
        raise


class CsvSink:
    """Sink that writes a CSV row per decision at once, because a stream can run for hours and be interrupted."""

    def __init__(self, file: TextIO, classes: Sequence[str], events: bool = False) -> None:
        names = [printable(name) for name in classes] if file is sys.stdout else classes  # no escape sequences
        self.file, self.events, self.classes = file, events, [escape_formula(name) for name in names]
        self.cells = dict(zip(classes, self.classes, strict=True))
        self.rows = csv.writer(file)
        self.rows.writerow(["time", "window", "prediction", *["event"] * events, *(f"p_{name}" for name in names)])
        file.flush()

    def send(
        self, time: float, window: int, probability: NDArray[np.float64], activation: Activation | None = None
    ) -> None:
        shown = [f"{value:.6f}" for value in probability]
        event = ["" if activation is None else self.cells[str(activation.label)]] * self.events
        self.rows.writerow([f"{time:.6f}", window, self.classes[int(probability.argmax())], *event, *shown])
        self.file.flush()

    def close(self) -> None:
        if self.file is not sys.stdout:
            self.file.close()
