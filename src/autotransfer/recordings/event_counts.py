"""Which events the files of continuous recordings have, and what to type to cut windows at them."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass, field

from ..errors import shown
from ..words import count
from .blocks import Block
from .cutting import Cutting

LONG = 3  # events that last so many windows are worth more than one
MOST_SHOWN = 8  # names of events that a message lists


@dataclass
class EventCounts:
    """Which events files have, and whose."""

    counts: Counter[str] = field(default_factory=Counter)
    people: dict[str, set[str]] = field(default_factory=dict)
    lasting: list[float] = field(default_factory=list)  # s: the usual duration in each file where there is one
    mean_lasting: list[float] = field(default_factory=list)  # s: the mean

    def add(self, block: Block, person: str) -> None:
        self.counts.update(block.events)
        for name in block.events:
            self.people.setdefault(name, set()).add(person)
        self.lasting += [] if block.lasting is None else [block.lasting]
        self.mean_lasting += [] if block.mean_lasting is None else [block.mean_lasting]

    def _whose(self, name: str) -> str:
        return count(len(self.people[name]), "person", "people")

    def listed(self) -> str:
        """'T1' (90, 3 people), ..."""
        common = self.counts.most_common(MOST_SHOWN)
        shared = len({len(who) for who in self.people.values()}) == 1  # then one number says it
        parts = [
            f"{shown(name)} ({n})" if shared else f"{shown(name)} ({n}, {self._whose(name)})" for name, n in common
        ]
        more = f" and {len(self.counts) - MOST_SHOWN} more" if len(self.counts) > MOST_SHOWN else ""
        whose = f", each in {self._whose(common[0][0])}" if shared and common else ""
        return ", ".join(parts) + more + whose

    def options(self, cutting: Cutting) -> str:
        """Options of the command line that cut windows of the events that most people have: as long as the user said or
        as events usually last, with a hop where events last much longer."""
        names = sorted(self.counts, key=lambda name: (-len(self.people[name]), -self.counts[name], name))
        names = sorted(names[:MOST_SHOWN])
        plain = not any(set(name) & set(",={") for name in names)
        text = ",".join(names) if plain else json.dumps({name: name for name in names}, ensure_ascii=False)
        window = cutting.window or _middle(self.lasting) or 1.0
        hop = cutting.hop or (window if (_middle(self.mean_lasting) or 0.0) >= 2 * window else None)
        every = "" if hop is None else f"--hop {hop:.3g} "
        return f"--window {window:.3g} {every}--events {shlex.quote(text)}"

    def guessed(self, cutting: Cutting) -> str:
        """A note where nothing says how long windows should be."""
        return "" if cutting.window or _middle(self.lasting) else " (the length is a guess: events have no duration)"

    def unused(self, cutting: Cutting) -> str | None:
        """A warning where one window of each event leaves most of it unused."""
        mean = _middle(self.mean_lasting)
        if cutting.events is None or cutting.window is None or cutting.hop is not None or mean is None:
            return None
        if mean < LONG * (max(cutting.offset, 0.0) + cutting.window):
            return None
        return (
            f"one window of {cutting.window:g} s is cut of each event, and events last {mean:.3g} s: "
            f"--hop {cutting.window:g} cuts them all"
        )


def _middle(seconds: list[float]) -> float | None:
    return sorted(seconds)[len(seconds) // 2] if seconds else None
