"""A plan in words: what is fitted, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator

from ..recordings import Recordings
from ..runs.options import RunOptions
from ..words import clock, count
from .plan import Plan


def limit_words(options: RunOptions) -> list[str]:
    """Return when a run ends, if it has a limit."""
    if options.seconds is None:
        return []
    sooner = ", or sooner if no more gain is expected" if options.staged else ""
    return [f"it ends after {clock(options.seconds)}{sooner}, but not before its first result (--time none: never)"]


def stage_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for each stage."""
    for number, stage in enumerate(plan.stages, 1):
        fits = plan.folds * (len(stage.trainings) + len(stage.online))
        yield f"  {number}. {stage.name}: {count(fits, 'fit')}"


def work_words(plan: Plan) -> str:
    """How many trainings of what."""
    options = plan.options
    seeds = f"{options.seeds} seed{'s' * (options.seeds != 1)}"
    if plan.searched:
        return (
            f"{plan.trainings} trainings of up to {options.max_epochs} epochs: {plan.searched} settings on one split, "
            f"then at most {plan.candidates} candidates on {plan.folds} folds with {seeds}"
        )
    settings = list(dict.fromkeys(s for stage in plan.stages for s in stage.settings))
    solved = sum(s.network.closed_form for s in settings)
    closed = f"{solved} model{'s' * (solved != 1)} in closed form"
    again = len({s for stage in plan.stages for s, _ in stage.online})  # centred, and counted in a stage's trainings
    online = f", {again} of them once more for sessions" if again else ""
    n = len(settings) - solved
    if not n:
        return f"{closed} on {plan.folds} folds{online}"
    more = f", and {closed}{online}" if solved else ""
    return (
        f"{plan.trainings} training{'s' * (plan.trainings != 1)} of up to {options.max_epochs} epochs: {n} "
        f"candidate{'s' * (n != 1)} on {plan.folds} folds with {seeds}{more}"
    )


def why_folds(recordings: Recordings, asked: int | str | None, plan: Plan) -> list[str]:
    """Return why there are fewer folds than subjects, if nobody asked for it."""
    people, folds = recordings.n_subjects, plan.folds
    if recordings.units is not None:
        return []
    if isinstance(asked, int) or folds >= people:
        return []
    return [
        f"{folds} folds, because there are {people} people: leaving out each alone would take {people / folds:.1f} "
        "times as long; everybody is tested once all the same (--folds all: each alone)"
    ]
