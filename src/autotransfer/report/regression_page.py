"""The page of a run with a continuous target, and the files of such a run."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError
from ..files import write_atomically
from ..runs.csv_tables import csv_of
from ..runs.regression import CONSTANT, PEER, RegressionChoice, write_regression_choice
from ..runs.verdict import mean
from ..search.regression import AVERAGE, Regression
from .escaping import plot_text
from .findings import regression_headline
from .page import Table, plotly_library, render_page, standing
from .plot import ACCENT, GREY, MUTED, Figure, dashed_line, merge_layouts, names_axis, plain_axis, points
from .wording import count, score

REPORT, RESULTS = "report.html", "results.csv"
NOTES = (
    "Groups of people were held out in turn. What predicted a person was neither trained on their windows nor given "
    "strengths or weights by them.",
    f"The baseline is {PEER} (means of stretches and log power of bands of each channel), on the same folds; the "
    "constant is the mean of the training people's targets.",
    "R² is computed for each person against their own mean: an offset lowers it even if ups and downs are predicted "
    "well. Correlation does not depend on offsets.",
    "Intervals are calibrated by person: errors on other held-out people give their half-width.",
)
LOWEST_SHOWN = -1.0  # R²: who is below it is told in words and tables, and would flatten everybody else


def write_run(folder: str | os.PathLike[str], regression: Regression) -> Path:
    """Write model, results.csv, choice.json and report to a run's folder, each atomically; return the report's path.

    The lock of the folder is held.
    """
    home = Path(folder)
    try:
        regression.model.save(home / "model")
        write_atomically(home / RESULTS, csv_of(regression.table))
        write_regression_choice(home, regression.choice)
        return write_page(home, regression.choice)
    except OSError as error:
        raise UserError(
            f"cannot write to {home} ({error.strerror or error}); make room, and go on with resume"
        ) from None


def write_page(folder: Path, choice: RegressionChoice) -> Path:
    path = folder / REPORT
    write_atomically(path, render_regression(choice))
    return path


def render_regression(choice: RegressionChoice) -> str:
    """Return the whole page as text."""
    return render_page(
        "regression.html",
        drawn=[r2_by_person(choice)],
        title=f"{choice.name} – AutoTransfer report",
        name=choice.name,
        size=[count(len(choice.nested_test_scores), "person", "people"), f"target: {choice.target}", choice.adaptation],
        standing=standing(choice),
        headline=regression_headline(choice),
        notes=NOTES,
        tables={"Every person": _people(choice), "What is delivered": _parts(choice)},
        plotly=plotly_library(),
    )


def r2_by_person(choice: RegressionChoice) -> Figure:
    """Draw R² of every person under the delivered model, the baseline and the constant."""
    order = sorted(choice.nested_test_scores, key=lambda who: choice.nested_test_scores[who])
    series = {
        "the model": (choice.nested_test_scores, ACCENT, "circle"),
        PEER: (choice.test_scores[PEER], GREY, "diamond-open"),
        CONSTANT: (choice.test_scores[CONSTANT], MUTED, "x"),
    }
    data = [
        points(
            list(range(len(order))), [max(scores[who], LOWEST_SHOWN) for who in order], name, fill=fill, symbol=symbol,
            text=[f"{plot_text(who)}: {name} {score(scores[who])}" for who in order],
        )
        for name, (scores, fill, symbol) in series.items()
    ]  # fmt: skip
    layout = merge_layouts(
        {"xaxis": names_axis(order, "person"), "yaxis": plain_axis("R²", range=[LOWEST_SHOWN - 0.05, 1.05])},
        dashed_line(0.0, "a person's own mean"),
    )
    return Figure(
        key="people",
        title="R² of every person left out",
        caption="1 is perfect; 0 is as good as the person's own mean, which nobody knows beforehand. "
        "Values below −1 are drawn at −1.",
        data=data,
        layout=layout,
        columns=("person", *series),
        rows=[[who, *(scores[who] for scores, _, _ in series.values())] for who in order],
        legend=True,
    )


def _people(choice: RegressionChoice) -> Table:
    rows = [
        [
            who, score(r2), score(choice.correlations[who]), f"{choice.errors[who]:.4g}",
            score(choice.test_scores[PEER][who]), score(choice.test_scores[CONSTANT][who]),
            score(choice.coverage.get(who)),
        ]
        for who, r2 in choice.nested_test_scores.items()
    ]  # fmt: skip
    return Table(
        "R² and errors of every person left out",
        ("person", "R²", "correlation", "error (RMS)", PEER, CONSTANT, "in 90 % interval"),
        rows,
        numeric=1,
    )


def _parts(choice: RegressionChoice) -> Table:
    rows = [[part.name, f"{part.strength:g}", f"{part.weight:.2f}", score(part.r2)] for part in choice.chosen]
    rows.append([CONSTANT, "–", f"{1 - sum(part.weight for part in choice.chosen):.2f}",
                 score(mean(choice.test_scores[CONSTANT]))])  # fmt: skip
    rows.append([AVERAGE, "–", "–", score(mean(choice.nested_test_scores))])
    return Table("The parts of the average", ("linear model", "ridge strength", "weight", "R² alone"), rows, numeric=1)
