"""Before a run: inspect, plan-study, datasets."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from .options import (
    Decimal,
    Events,
    Filter,
    Hop,
    Offset,
    Pattern,
    Rate,
    Sep,
    Source,
    TimeColumn,
    Window,
    read_recordings,
)
from .voice import say


def inspect(
    context: Context,
    data: Source,
    window: Window = None,
    hop: Hop = None,
    offset: Offset = None,
    events: Events = None,
    pattern: Pattern = None,
    sfreq: Rate = None,
    sep: Sep = None,
    decimal: Decimal = None,
    time_column: TimeColumn = None,
    filter: Filter = None,
) -> None:
    """Show subjects, classes, sessions and counts of recordings, and what looks wrong."""
    from ..recordings.overview import overview

    say(*overview(read_recordings(data, context)))


def plan_study(
    context: Context,
    data: Source,
    people: Annotated[int, Option(help="How many more people to expect the gain of.")] = 10,
    window: Window = None,
    hop: Hop = None,
    offset: Offset = None,
    events: Events = None,
    pattern: Pattern = None,
    sfreq: Rate = None,
    sep: Sep = None,
    decimal: Decimal = None,
    time_column: TimeColumn = None,
    filter: Filter = None,
) -> None:
    """What more people, and more windows of each, would gain: learning curves of models in closed form."""
    from ..recordings import Recordings
    from ..search.study_size import check_more_people
    from ..search.study_size import plan_study as plan

    check_more_people(people, "--people")
    study = plan(Recordings.of(read_recordings(data, context)), more_people=people)
    say(*study.lines())


def datasets() -> None:
    """What can be loaded by name, and how."""
    from ..recordings.sources import catalogue

    say(*catalogue())
