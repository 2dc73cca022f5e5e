"""The report: one HTML file that needs only a browser. templates/ has its layout."""

from __future__ import annotations

import base64
import gzip
import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from ..censoring import CENSORS
from ..files import write_atomically
from ..recordings.optional import need
from ..runs.choice import Choice
from ..tasks import label_of
from ..words import count, range_words, score, signed
from .comparison import find_model, list_methods
from .escaping import mute_brackets, replace_unshowable, script_json
from .findings import describe_missing, headline, notes
from .model_figures import (
    draw_adaptation,
    draw_confusion,
    draw_curves,
    draw_labels,
    draw_leakage,
    draw_reliability,
    mean_of,
)
from .plot import Figure
from .score_figures import draw_differences, draw_stages, draw_subjects
from .statistics import compare_paired, holm, summarize
from .summary import Summary
from .wording import duration, probability, share

# The page may not fetch or send anything, and runs only the scripts inside it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
PAIRED = ", and the difference to {}. p: Wilcoxon signed-rank test; penalty methods with Holm's correction"
T = TypeVar("T")
MOST_ROWS = 300  # rows of the table of a figure


class Table(NamedTuple):
    """Table with names in the first column and numbers in the others."""

    caption: str
    heads: Sequence[str]
    rows: list[list[Any]]


class Section(NamedTuple):
    """Folded part of the page, left out if the run has no data for it."""

    title: str
    inside: str
    figures: tuple[Callable[[Summary], Figure | None], ...] = ()
    tables: tuple[Callable[[Summary], Table | None], ...] = ()


def write(summary: Summary, path: str | os.PathLike[str]) -> Path:
    """Write the report to `path`, atomically."""
    target = Path(path)
    write_atomically(target, document(summary))
    return target


def document(run: Summary, *, plotly: Markup | None = None) -> str:
    """Return the page as text. plotly: base64 of a gzipped library that replaces the installed one."""
    filled = [
        (section, _build(section.figures, run), _build(section.tables, run)) for section in SECTIONS if section.inside
    ]
    shown = [(section, figures, tables) for section, figures, tables in filled if figures or tables]
    first = _build(SECTIONS[0].figures, run)
    drawn = [*first, *(figure for _, figures, _ in shown for figure in figures)]
    fields = ("key", "title", "data", "layout", "height", "legend")
    data, choice = run.data, run.choice
    target = f"target: {run.options.target}"
    predicted = target if run.options.task.is_numeric else count(len(data.classes), "class", "classes")
    return _environment().get_template("report.html").render(
        policy=POLICY,
        most_rows=MOST_ROWS,
        title=f"{run.title_prefix}{run.name} – AutoTransfer report",
        run=run,
        size=[
            count(len(data.whole_subjects), "subject"), count(data.n_windows, "window"),
            predicted, count(data.n_channels, "channel"),
            count(data.n_times, "sample") + (f" at {data.sfreq:g} Hz" if data.sfreq else ""),
        ],
        first=first,
        sections=shown,
        drawn=drawn,
        figure_data=script_json([{name: getattr(figure, name) for name in fields} for figure in drawn]),
        headline=[] if choice is None else headline(choice),
        missing=[] if choice is None else describe_missing(choice),
        notes=[] if choice is None else notes(choice),
        standing=rate_result(choice),
        failed=sum(fit.failed for fit in run.fits),
        facts=_facts(run),
        plotly=plotly_library() if plotly is None else plotly,
    )  # fmt: skip


def _build(makers: Sequence[Callable[[Summary], T | None]], run: Summary) -> list[T]:
    return [made for make in makers if (made := make(run)) is not None]


def rate_result(choice: Choice | None) -> str:
    """Return the CSS class of the result: guessing, better, similar, worse, few or unknown."""
    if choice is None:
        return "incomplete"
    if choice.is_guessing:
        return "guessing"
    return "unknown" if choice.best_baseline is None else choice.best_baseline.comparison.removeprefix("too ")


def text_of(template: str, **values: Any) -> str:
    """Return a filled template of plain text, with each paragraph in one line."""
    paragraphs = _environment().get_template(template).render(values).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Return the environment of templates, which escapes every value in HTML."""
    found = Environment(
        loader=PackageLoader("autotransfer.report"), autoescape=select_autoescape(["html"]), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else replace_unshowable(value),
    )  # fmt: skip
    found.filters |= {"mute_brackets": mute_brackets, "number": number_words, "count": count}
    return found


def number_words(value: Any) -> str:
    """Return a value of a figure's table with three decimals, or four digits above 10."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if not isinstance(value, float):
        return str(value)
    return score(value) if abs(value) < 10 else f"{value:.4g}"


def import_plotly() -> Any:
    """Import the part of plotly that a page needs. A run calls it before its first fit."""
    return need("plotly.offline", "the report", "plotly")


@lru_cache(maxsize=1)
def plotly_library() -> Markup:
    """Return plotly.js compressed, which makes the page less than half as large."""
    # mtime=0 makes reports of equal runs equal
    packed = gzip.compress(import_plotly().get_plotlyjs().encode(), 9, mtime=0)
    return Markup(base64.b64encode(packed).decode())


def tabulate_models(summary: Summary) -> Table | None:
    """Compare the delivered model, the baselines and every penalty method with the paper's network."""
    rows = list_methods(summary)
    base = find_model(rows, "none")
    if summary.choice is None:
        return None
    pairs = {row.key: compare_paired(row.scores, base.scores) for row in rows if row is not base} if base else {}
    corrected = holm({row.key: pair.p for row in rows if row.key in CENSORS and (pair := pairs.get(row.key))})
    lines: list[list[Any]] = []
    for row in rows:
        described, pair = summarize(list(row.scores.values())), pairs.get(row.key)
        against = ["–"] * 4
        if pair is not None:
            signs, p = f"{pair.wins} / {pair.ties} / {pair.losses}", corrected.get(row.key, pair.p)
            against = [signed(pair.mean), range_words(pair.interval), signs, probability(p)]
        lines.append([row.label, *map(score, (described.mean, described.lower_quartile, described.minimum)), *against])
    metric, chance = summary.metric, summary.options.task.chance_words(summary.chance)
    return Table(
        f"{metric[0].upper()}{metric[1:]} ({chance}) on the test subjects{PAIRED.format(base.label) if base else ''}",
        ("", "mean", "lower quartile", "worst subject", "difference", "95 % interval", "gain / tie / loss", "p"),
        lines,
    )


def tabulate_sets(summary: Summary) -> Table | None:
    """List how often prediction sets contain the true class."""
    scores = None if summary.choice is None else summary.choice.prediction_sets
    if scores is None or not scores.coverage:
        return None
    rows = [
        [asked, share(mean_of(held)), share(min(held.values())), f"{mean_of(scores.set_size[asked]):.1f}"]
        for asked, held in scores.coverage.items()
    ]
    heads = ("required coverage", "windows whose set contains the true class", "worst subject", "classes per set")
    return Table("Prediction sets: means over subjects, with thresholds from the other subjects", heads, rows)


def tabulate_abstention(summary: Summary) -> Table | None:
    """List the accuracy of answered windows if the model may leave windows unanswered."""
    scores = None if summary.choice is None else summary.choice.prediction_sets
    if scores is None or not scores.answered_accuracy:
        return None
    rows = [
        [asked, share(1 - mean_of(scores.answered_share[asked])), score(mean_of(right)),
         score(min(right.values()))]
        for asked, right in scores.answered_accuracy.items()
    ]  # fmt: skip
    heads = ("required abstention", "unanswered windows", "accuracy on answered windows", "worst subject")
    return Table("Abstention: means over subjects, with thresholds from the other subjects", heads, rows)


def tabulate_intervals(summary: Summary) -> Table | None:
    """List the scores of each subject, and the share of targets inside 90 % intervals."""
    choice = summary.choice
    if choice is None or not choice.task.is_numeric:
        return None
    held = {} if choice.intervals is None else choice.intervals.coverage
    others = list(choice.other_metrics)
    rows = [
        [who, score(value), *(score(choice.other_metrics[name].get(who)) for name in others),
         score(choice.guessing.get(who)), score(held.get(who))]
        for who, value in choice.estimate.items()
    ]  # fmt: skip
    heads = ("subject", summary.metric, *map(label_of, others), choice.task.guess, "in 90 % interval")
    return Table("Scores of every held-out subject", heads, rows)


SECTIONS = (
    Section("", "", (draw_subjects,)),
    Section("A few labels or unlabeled windows of a new subject", "gains in score", (draw_labels, draw_adaptation)),
    Section("Results on held-out subjects", "every subject, stage and method", (draw_differences, draw_stages),
            (tabulate_models,)),
    Section("Mistakes and confidence", "confused classes, overconfidence, abstention",
            (draw_confusion, draw_reliability), (tabulate_intervals, tabulate_sets, tabulate_abstention)),
    Section("How networks were trained", "learning curves", (draw_curves,)),
    Section("Subject information in latent features", "accuracy of predicting the subject", (draw_leakage,)),
)  # fmt: skip


def _facts(run: Summary) -> dict[str, dict[str, object]]:
    """Return what is needed to repeat the run, by heading."""
    data = run.data
    given = run.options.to_dict() | {"source": run.source}
    options = {name: value for name, value in given.items() if value is not None}
    return {
        "Options and seeds": options,
        "Data": {
            "channel names": ", ".join(data.channels),
            "classes": "none" if run.options.task.is_numeric else ", ".join(data.classes),
            "windows per subject": ", ".join(
                f"{s}: {n}" for s, n in zip(data.subjects, data.windows_by_unit, strict=True)
            ),
        },
        "Time and place": {"started": run.started, "computing time": duration(run.seconds), "device": run.device},
        "Versions": dict(run.versions),
    }
