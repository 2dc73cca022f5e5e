"""Results of one run, and of two runs compared, as lines for a terminal."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ..errors import UserError
from ..runs.choice import Choice, read_choice
from ..runs.database import RunDatabase
from ..runs.progress import resume_hint
from .comparison import list_models
from .escaping import short
from .findings import ADAPTATIONS, NO_BETTER, describe_ensemble, describe_metric, describe_missing, headline
from .statistics import paired, spread
from .wording import family_label, interval, probability, score, signed


def result_lines(choice: Choice, folder: Path | None = None) -> list[str]:
    """Return the headline, the delivered model, and its scores with those of baselines and the paper's network.

    folder: of the run, to say how it can continue.
    """
    lines, ensemble = headline(choice), choice.ensemble
    if ensemble is None:
        lines.append(f"chosen: {choice.chosen.name}")
        if choice.paper_network_won:
            lines.append(f"{NO_BETTER}, so it was kept.")
    else:
        used = {short(family_label(kind), 40): weight for kind, weight in ensemble.families.items()}
        shares = ", ".join(f"{label} {100 * weight:.0f} %" for label, weight in used.items())
        lines.append(f"{describe_ensemble(ensemble)}: {shares}")
    if choice.adaptation in ("online", "transductive"):
        lines.append(f"  {ADAPTATIONS[choice.adaptation]}")
    rows = {short(row.label, 60): spread(list(row.scores.values())) for row in list_models(choice)}
    width = max(map(len, rows))
    lines += [f"{describe_metric(choice)}:", *(f"  {label:{width}}  {scores}" for label, scores in rows.items())]
    if ensemble is not None and choice.calibration is not None:
        error, before = choice.calibration.error, choice.calibration.error_before
        lines.append(
            f"temperature {ensemble.temperature:.2f}: expected calibration error {score(error)}, without it "
            f"{score(before)}"
        )
        lines.append(f"best single candidate: {choice.chosen.name}")
    longer = "" if folder is None else resume_hint(choice.end_reason, folder)
    ended = [] if choice.end_reason is None else [f"ended: {choice.end_reason}{longer}"]
    return [*lines, *describe_missing(choice), *ended]


def comparison_lines(first: Path, second: Path) -> list[str]:
    """Return lines on how the second run differs from the first; runs on different recordings are refused."""
    (data, before), (other_data, after) = (_finished(folder) for folder in (first, second))
    if data != other_data:
        raise UserError(f"{first} and {second} are runs on different data; compare runs on the same recordings")
    if before.metric != after.metric:
        raise UserError(f"{first} has {before.metric}, {second} {after.metric}; compare runs of one metric")
    pair = paired(after.estimate, before.estimate)
    if pair is None:
        raise UserError(f"{first} and {second} have scored no person in common")
    names = [short(folder.name or folder, 30) for folder in (first, second)]
    names = names if names[0] != names[1] else [short(folder, 60) for folder in (first, second)]
    everybody = len(before.estimate) == len(after.estimate) == pair.n
    lines = [f"{describe_metric(before)}{'' if everybody else f', the {pair.n} that both runs scored'}:"]
    for name, scores, choice in zip(names, (pair.second, pair.first), (before, after), strict=True):
        doubt = f"; not clearly better than {choice.task.guess}" if choice.is_guessing else ""
        lines.append(f"  {name:{max(map(len, names))}}  {scores}{doubt}")
    limits = f", 95 % interval {interval(pair)}" if pair.interval else ""
    tested = "" if pair.p is None else f", p {probability(pair.p, equals=True)}"
    lines.append(f"{names[1]} minus {names[0]}: {signed(pair.mean)}{limits}{tested}")
    lines.append(f"of {pair.n} people {pair.wins} gained, {pair.ties} tied, {pair.losses} lost")
    if pair.interval is None:
        lines.append("Too few people to tell")
    elif pair.interval[0] <= 0 <= pair.interval[1]:
        lines.append("No clear difference: the interval includes zero")
    else:
        lines.append(f"{names[1] if pair.mean > 0 else names[0]} is better on these people")
    return lines


def _finished(folder: Path) -> tuple[str, Choice]:
    """Return the fingerprint of a finished run's recordings, and its choice."""
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        windows = database.recall("fingerprint", str) or ""
        complete = database.recall("complete", bool)
    if not complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    return windows, read_choice(folder)
