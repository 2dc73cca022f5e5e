"""The commands report and compare."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from .console import print_lines, terminal_text
from .options import AtLeast, EncoderFactory, Folder, MovedData, ToTensorBoard, import_encoder

if TYPE_CHECKING:
    from ..runs.run import Run


def write_report(run: Run, at_least: float | None = None) -> Path:
    """Write results.csv, scores.csv and report.html of a run, and return the path of the report."""
    from ..report.collect import collect
    from ..report.comparison import write_scores
    from ..report.page import write_page
    from ..runs.run import PROBE_SECONDS
    from ..search.procedure import write_results

    write_results(run)
    summary = collect(run, until=time.monotonic() + PROBE_SECONDS)
    if summary.choice is not None:
        write_scores(run.folder, summary.choice)
    return write_page(summary.require(at_least), run.folder / "report.html")


def report(
    folder: Folder,
    data: MovedData = None,
    encoder: EncoderFactory = "eegnet",
    tensorboard: ToTensorBoard = None,
    methods: Annotated[bool, Option("--methods", help="Print the methods section of a paper instead.")] = False,
    at_least: AtLeast = None,
) -> None:
    """Write RUN/report.html of a finished or unfinished run. The recordings are not needed.

    With --tensorboard, write event files instead; with --methods, print a draft of a methods section.
    """
    from ..runs.run import Run, check_is_run

    if tensorboard is not None:
        from ..report.tensorboard import EventFiles

        check_is_run(folder)
        n_fits = EventFiles(folder, tensorboard).update()
        print_lines(f"{n_fits} fit{'s' * (n_fits != 1)} written; show them with: tensorboard --logdir {tensorboard}")
        return
    run = Run.open(folder, import_encoder(encoder), source=data, lazy=True, read_only=methods)
    with closing(run.database):
        if not methods:
            print_lines(f"report: {write_report(run, at_least).resolve()}", *_worst_lines(folder, at_least))
            return
        from ..report.collect import collect
        from ..report.methods import methods_paragraph

        print(terminal_text(methods_paragraph(collect(run, weights=False).require(at_least))))


def _worst_lines(folder: Path, at_least: float | None) -> list[str]:
    """Return the worst subject and the subjects below the required score, if there is a result."""
    if at_least is None or not (folder / "choice.json").exists():
        return []
    from ..report.findings import describe_worst, metric_label
    from ..runs.choice import read_choice

    choice = replace(read_choice(folder), at_least=at_least)
    return [describe_worst(choice, metric_label(choice))] if choice.estimate else []


def compare(
    first: Annotated[Path, Argument(metavar="RUN1", help="Folder of a finished run.")],
    second: Annotated[Path, Argument(metavar="RUN2", help="Folder of another run on the same recordings.")],
) -> None:
    """Compare two runs subject by subject: means, lower quartiles, and the difference with its interval."""
    from ..report.terminal import comparison_lines
    from ..runs.run import check_is_run

    for folder in (first, second):
        check_is_run(folder)
    print_lines(*comparison_lines(first, second))
