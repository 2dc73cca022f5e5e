"""A plan in words: what is trained, how long it takes, what was left out."""

from __future__ import annotations

from collections.abc import Iterator

from ..recordings import Recordings
from ..words import clock
from .plan import Plan

SURE = 1.4  # estimates are this factor off, up or down


def span(seconds: float) -> str:
    """Return an estimate as a range."""
    return f"{clock(seconds / SURE)} to {clock(seconds * SURE)}"


def cost_words(plan: Plan) -> list[str]:
    """How long, to what limit, and what is left out for it."""
    if not plan.seconds:
        return []
    lines = [f"about {span(plan.seconds)} for everything on this machine"]
    if len(plan.stages) > 1:
        lines = [f"first answer after about {span(plan.spent + plan.stages[0].seconds)}; {lines[0]}"]
    if plan.limit is not None:
        sooner = ", or sooner if no more gain is expected" if plan.stops else ""
        lines.append(f"it ends after {clock(plan.limit)}{sooner}, but not before its first answer (--time none: never)")
    if plan.left_out:
        lines.append(f"shortened, so that networks fit into that: {'; '.join(plan.left_out)}")
    if all(stage.solved for stage in plan.expected) and not all(stage.solved for stage in plan.ahead):
        lines.append("no network fits into that: the answer will be of closed forms alone")
    return lines


def stage_lines(plan: Plan) -> Iterator[str]:
    """A line for each stage, with the time at which its answer is expected."""
    spent, done = plan.spent, plan.expected
    for number, stage in enumerate(plan.ahead, 1):
        many = plan.folds * (len(stage.trainings) + len(stage.online))
        if stage in done:
            spent += stage.seconds
            when = f"answer after {span(spent)}" if stage.seconds else "not timed"
        else:
            when = f"takes {span(stage.seconds)}: not in this time"
        yield f"  {number}. {stage.words}: {many} training{'s' * (many != 1)}, {when}"


def left_out_words(plan: Plan) -> list[str]:
    """Return the stages that were not trained, with the reason."""
    return [f"{stage.name} ({stage.left_out})" for stage in plan.stages if stage.left_out]


def work_words(plan: Plan) -> str:
    """How many trainings of what."""
    options = plan.options
    seeds = f"{options.seeds} seed{'s' * (options.seeds != 1)}"
    if plan.searched:
        return (
            f"{plan.trainings} trainings of up to {options.max_epochs} epochs: {plan.searched} settings on one split, "
            f"then at most {plan.candidates} candidates on {plan.folds} folds with {seeds}"
        )
    settings = list(dict.fromkeys(s for stage in plan.ahead for s in stage.settings))
    solved = sum(s.network.closed_form for s in settings)
    more = f", and {solved} model{'s' * (solved != 1)} in closed form" if solved else ""
    again = len({s for stage in plan.ahead for s, _ in stage.online})  # centred, and counted in a stage's trainings
    more += f", {again} of them once more for sessions" if again else ""
    n = len(settings) - solved
    return (
        f"{plan.trainings} training{'s' * (plan.trainings != 1)} of up to {options.max_epochs} epochs: {n} "
        f"candidate{'s' * (n != 1)} on {plan.folds} folds with {seeds}{more}"
    )


def why_folds(recordings: Recordings, asked: int | str | None, plan: Plan) -> list[str]:
    """Why there are fewer folds than people, where nobody asked for it and no limit is the reason."""
    people, folds = recordings.n_subjects, plan.folds
    if recordings.units is not None:
        return []
    if isinstance(asked, int) or folds >= people or any("folds" in words for words in plan.left_out):
        return []
    return [
        f"{folds} folds, because there are {people} people: leaving out each alone would take {people / folds:.1f} "
        "times as long; everybody is tested once all the same (--folds all: each alone)"
    ]
