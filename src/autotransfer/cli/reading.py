"""Before a run: inspect, plan-study, datasets."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from .options import UNSAID, Source, Windowing
from .voice import say


def inspect(
    data: Source,
    windowing: Windowing = UNSAID,
) -> None:
    """Show subjects, classes, sessions and counts of recordings, and what looks wrong."""
    from ..recordings.overview import overview

    say(*overview(windowing.read(data)))


def plan_study(
    data: Source,
    people: Annotated[int, Option(help="How many more people to expect the gain of.")] = 10,
    windowing: Windowing = UNSAID,
) -> None:
    """What more people, and more windows of each, would gain: learning curves of models in closed form."""
    from ..recordings import Recordings
    from ..search.study_size import check_more_people
    from ..search.study_size import plan_study as plan

    check_more_people(people, "--people")
    study = plan(Recordings.of(windowing.read(data)), more_people=people)
    say(*study.lines())


def datasets() -> None:
    """What can be loaded by name, and how."""
    from ..recordings.sources import catalogue

    say(*catalogue())
