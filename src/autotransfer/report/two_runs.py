"""Two runs on the same recordings, person by person."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ..errors import UserError
from ..runs.choice import Choice, read_choice
from ..runs.ledger import Ledger
from .escaping import short
from .result_words import guessing_words, metric_words
from .statistics import paired
from .wording import interval, probability, signed


def _finished(folder: Path) -> tuple[str, Choice]:
    """The fingerprint of a finished run's recordings, and its choice."""
    with closing(Ledger(folder / "ledger.sqlite", read_only=True)) as ledger:
        windows = ledger.recall("windows", str) or ledger.recall("fingerprint", str) or ""
        complete = ledger.recall("complete", bool)
    if not complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    return windows, read_choice(folder)


def comparison_lines(first: Path, second: Path) -> list[str]:
    """Lines on how the second run differs from the first; runs on different recordings are refused."""
    runs = [_finished(folder) for folder in (first, second)]
    choices = [choice for _, choice in runs]
    if runs[0][0] != runs[1][0]:
        raise UserError(f"{first} and {second} are runs on different data; compare runs on the same recordings")
    if choices[0].metric != choices[1].metric:
        raise UserError(f"{first} has {choices[0].metric}, {second} {choices[1].metric}; compare runs of one metric")
    pair = paired(choices[1].estimate, choices[0].estimate)
    if pair is None:
        raise UserError(f"{first} and {second} have scored no person in common")
    names = [short(folder.name or folder, 30) for folder in (first, second)]
    names = names if names[0] != names[1] else [short(folder, 60) for folder in (first, second)]
    width = max(map(len, names))
    lines = [f"{metric_words(choices[0])}:"]
    if {len(choice.estimate) for choice in choices} != {pair.n}:
        lines = [f"{metric_words(choices[0])}, the {pair.n} that both runs scored:"]
    for name, scores, choice in zip(names, (pair.second, pair.first), choices, strict=True):
        doubt = f"; {guessing_words(choice.chance).lower()}" if choice.guesses else ""
        lines.append(f"  {name:{width}}  {scores}{doubt}")
    limits = f", 95 % interval {interval(pair)}" if pair.interval else ""
    tested = "" if pair.p is None else f", p {probability(pair.p, equals=True)}"
    lines.append(f"{names[1]} minus {names[0]}: {signed(pair.mean)}{limits}{tested}")
    lines.append(f"of {pair.n} people {pair.wins} gained, {pair.ties} tied, {pair.losses} lost")
    if pair.interval is None or pair.interval[0] <= 0 <= pair.interval[1]:
        lines.append("No clear difference: the interval includes zero" if pair.interval else "Too few people to tell")
    else:
        lines.append(f"{names[1] if pair.mean > 0 else names[0]} is better on these people")
    return lines
