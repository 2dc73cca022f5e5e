"""Figures of a run, drawn as in its report, for notebooks and papers.

The functions return figures of plotly: a notebook shows them, and `figure.write_html("figure.html")` saves them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError, shown

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from .report import plot
    from .report.summary import Summary

__all__ = ["confusion", "learning_curve", "subjects"]


def subjects(run: Any) -> Figure:
    """Plot the scores of all held-out subjects by the delivered model and by the baselines.

    Dots are subjects, lines are means, and bands are 95 % intervals of the means.

    Parameters
    ----------
    run : str, Path or estimator
        Folder of a run, or a fitted `AutoTransferClassifier` or `AutoTransferRegressor`.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.

    Examples
    --------
    >>> at.plot.subjects("study-run").show()
    """
    from .report.score_figures import draw_subjects

    return _draw(draw_subjects, run, "scores of held-out subjects")


def learning_curve(run: Any) -> Figure:
    """Plot the mean score over held-out subjects against the number of labeled windows of each class.

    The labeled windows calibrate the delivered model, or train a model on their own. Scores are of the other windows.

    Parameters
    ----------
    run : str, Path or estimator
        Folder of a run, or a fitted `AutoTransferClassifier`.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.

    Examples
    --------
    >>> at.plot.learning_curve(classifier).write_html("labels.html")
    """
    from .report.model_figures import draw_labels

    return _draw(draw_labels, run, "scores with labeled windows")


def confusion(run: Any) -> Figure:
    """Plot the confusion matrix of the delivered model over all held-out subjects. Rows are true classes.

    Parameters
    ----------
    run : str, Path or estimator
        Folder of a run, or a fitted `AutoTransferClassifier`.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.

    Examples
    --------
    >>> at.plot.confusion("study-run").show()
    """
    from .report.model_figures import draw_confusion

    return _draw(draw_confusion, run, "confusion matrix")


def _draw(draw: Callable[[Summary], plot.Figure | None], run: Any, content: str) -> Figure:
    """Return a figure of the report for plotly; raise if the run has no data for it."""
    from plotly.graph_objects import Figure

    summary = _summary(run)
    figure = draw(summary)
    if figure is None:
        reason = "it has no result yet" if summary.choice is None else "its target or its data do not allow them"
        raise UserError(f"{shown(run)} has no {content}, because {reason}; choose another run or another figure")
    colors, text = _light_colors(), {"size": 12}
    layout = {
        "margin": {"l": 44, "r": 14, "t": 44 if figure.legend else 28, "b": 46},
        **_replace_colors(figure.layout, colors),
        "height": figure.height,
        "font": text | {"color": colors["--ink"]},
        "paper_bgcolor": colors["--background"],
        "plot_bgcolor": colors["--background"],
        "hovermode": "closest",
        "showlegend": figure.legend,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
    }
    return Figure(data=_replace_colors(figure.data, colors), layout=layout)


def _summary(run: Any) -> Summary:
    """Return the summary of a fitted estimator, or of the run in a folder."""
    from .report.collect import read_summary
    from .report.summary import Summary

    if isinstance(run, str | Path):
        return read_summary(Path(run))
    summary = getattr(run, "summary_", None)
    if not isinstance(summary, Summary):
        raise UserError(f"cannot plot {shown(run)}; give the folder of a run, or a fitted AutoTransferClassifier")
    return summary


@cache
def _light_colors() -> dict[str, str]:
    """Return the light colors of the report by CSS variable."""
    page = files("autotransfer.report").joinpath("templates/page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", page.partition("}")[0]))


def _replace_colors(value: Any, colors: dict[str, str], key: str = "") -> Any:
    """Replace CSS variables in entries that hold colors, so that a subject called "var(--ink)" keeps its name."""
    if isinstance(value, dict):
        return {name: _replace_colors(item, colors, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_colors(item, colors, key) for item in value]
    is_color = isinstance(value, str) and "color" in key and value.startswith("var(")
    return colors[value[4:-1]] if is_color else value
