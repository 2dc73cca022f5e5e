"""Before a run: inspect, plan-study, datasets."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from .options import Source, read_recordings, takes_cutting
from .voice import say


@takes_cutting
def inspect(data: Source, cutting: dict[str, Any]) -> None:
    """Show subjects, classes, sessions and counts of recordings, and what looks wrong."""
    from ..recordings.overview import overview

    say(*overview(read_recordings(data, cutting)))


@takes_cutting
def plan_study(
    data: Source,
    cutting: dict[str, Any],
    people: Annotated[int, Option(help="How many more people to expect the gain of.")] = 10,
) -> None:
    """Estimate what more people, and more windows of each, would gain, by learning curves of linear models."""
    from ..recordings import Recordings
    from ..search.study_size import check_more_people
    from ..search.study_size import plan_study as plan

    check_more_people(people, "--people")
    study = plan(Recordings.of(read_recordings(data, cutting)), more_people=people)
    say(*study.lines())


def datasets() -> None:
    """List what can be loaded by name, and how."""
    from ..recordings.sources import catalogue

    say(*catalogue())
