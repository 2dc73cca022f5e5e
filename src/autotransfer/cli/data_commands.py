"""The commands inspect, plan-study and datasets."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from .console import print_lines
from .options import Source, add_cutting_options, read_recordings


@add_cutting_options
def inspect(data: Source, cutting: dict[str, Any]) -> None:
    """Show subjects, classes, sessions and counts of windows, and warn of probable mistakes."""
    from ..recordings.overview import summarize

    print_lines(*summarize(read_recordings(data, cutting)))


@add_cutting_options
def plan_study(
    data: Source,
    cutting: dict[str, Any],
    subjects: Annotated[int, Option(help="Number of additional subjects.")] = 10,
) -> None:
    """Estimate the gain from more subjects, or from more windows per subject, by learning curves of linear models."""
    from ..recordings import Recordings
    from ..search.study_size import check_more_subjects
    from ..search.study_size import plan_study as plan

    check_more_subjects(subjects, "--subjects")
    study = plan(Recordings.from_raw(read_recordings(data, cutting)), more_subjects=subjects)
    print_lines(*study.lines())


def datasets() -> None:
    """List recordings that can be loaded by name."""
    from ..recordings.sources import SET_LINES

    print_lines(*SET_LINES)
