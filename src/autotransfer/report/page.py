"""The report: one HTML file for a browser, from the templates in templates/."""

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
from ..runs.choice import Choice
from ..tasks import label_of
from ..words import count, range_words, score, signed
from .comparison import find_model, list_methods
from .escaping import mute_brackets, replace_unshowable, script_json
from .findings import describe_missing, notes, write_summary
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

# Content security policy of the page: no data are loaded or sent, and only scripts inside the page run.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
COMPARED = " Differences are to {}. p: Wilcoxon signed-rank test, with Holm's correction for penalty methods"
T = TypeVar("T")
MOST_ROWS = 300  # maximum number of rows in the table of a figure


class Table(NamedTuple):
    """Table with names in the first column and numbers in the other columns."""

    caption: str
    heads: Sequence[str]
    rows: list[list[Any]]


class Section(NamedTuple):
    """Collapsible section of the page. A section without data for its figures and tables is left out."""

    title: str
    contents: str  # short list of the contents, next to the title
    figures: tuple[Callable[[Summary], Figure | None], ...] = ()
    tables: tuple[Callable[[Summary], Table | None], ...] = ()


def write_page(summary: Summary, path: str | os.PathLike[str]) -> Path:
    """Write the report to `path`, atomically."""
    target = Path(path)
    write_atomically(target, render_page(summary))
    return target


def render_page(run: Summary, *, plotly: Markup | None = None) -> str:
    """Return the page as text. plotly: base64 of a gzipped library to use instead of the installed plotly.js."""
    all_sections = [
        (section, _build(section.figures, run), _build(section.tables, run)) for section in SECTIONS if section.contents
    ]
    sections = [(section, figures, tables) for section, figures, tables in all_sections if figures or tables]
    first = _build(SECTIONS[0].figures, run)
    drawn = [*first, *(figure for _, figures, _ in sections for figure in figures)]
    fields = ("key", "title", "data", "layout", "height", "legend")
    data, choice = run.data, run.choice
    target = f"target: {run.options.target}"
    predicted = target if run.options.task.is_numeric else count(len(data.classes), "class", "classes")
    return _make_environment().get_template("report.html").render(
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
        sections=sections,
        drawn=drawn,
        figure_data=script_json([{name: getattr(figure, name) for name in fields} for figure in drawn]),
        headline=[] if choice is None else write_summary(choice),
        missing=[] if choice is None else describe_missing(choice),
        notes=[] if choice is None else notes(choice),
        standing=rate_result(choice),
        failed=sum(fit.failed for fit in run.fits),
        facts=_list_facts(run),
        plotly=plotly_library() if plotly is None else plotly,
    )  # fmt: skip


def _build(makers: Sequence[Callable[[Summary], T | None]], run: Summary) -> list[T]:
    return [made for make in makers if (made := make(run)) is not None]


def rate_result(choice: Choice | None) -> str:
    """Return the CSS class of the result: incomplete, guessing, better, similar, worse, few or unknown."""
    if choice is None:
        return "incomplete"
    if choice.is_guessing:
        return "guessing"
    return "unknown" if choice.best_baseline is None else choice.best_baseline.comparison.removeprefix("too ")


def fill_text_template(template: str, **values: Any) -> str:
    """Return a filled template of plain text, with each paragraph in one line."""
    paragraphs = _make_environment().get_template(template).render(values).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


@lru_cache(maxsize=1)
def _make_environment() -> Environment:
    """Return the environment of templates, which escapes every value in HTML."""
    environment = Environment(
        loader=PackageLoader("autotransfer.report"), autoescape=select_autoescape(["html"]), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else replace_unshowable(value),
    )  # fmt: skip
    environment.filters |= {"mute_brackets": mute_brackets, "number": number_words, "count": count}
    return environment


def number_words(value: Any) -> str:
    """Return a value of a figure's table with three decimals, or with four digits from 10 on."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if not isinstance(value, float):
        return str(value)
    return score(value) if abs(value) < 10 else f"{value:.4g}"


@lru_cache(maxsize=1)
def plotly_library() -> Markup:
    """Return plotly.js compressed, which makes the page less than half as large."""
    from plotly.offline import get_plotlyjs

    # With mtime=0, reports of equal runs are equal.
    compressed = gzip.compress(get_plotlyjs().encode(), 9, mtime=0)
    return Markup(base64.b64encode(compressed).decode())


def tabulate_models(summary: Summary) -> Table | None:
    """Return a table that compares all models with the paper's network."""
    rows = list_methods(summary)
    reference = find_model(rows, "none")
    if summary.choice is None:
        return None
    reference_scores = {} if reference is None else reference.scores
    pairs = {row.key: compare_paired(row.scores, reference_scores) for row in rows if row is not reference}
    corrected = holm({row.key: pair.p for row in rows if row.key in CENSORS and (pair := pairs.get(row.key))})
    lines: list[list[Any]] = []
    for row in rows:
        scores, pair = summarize(list(row.scores.values())), pairs.get(row.key)
        comparison = ["–"] * 4
        if pair is not None:
            signs, p = f"{pair.wins} / {pair.ties} / {pair.losses}", corrected.get(row.key, pair.p)
            comparison = [signed(pair.mean), range_words(pair.interval), signs, probability(p)]
        lines.append([row.label, *map(score, (scores.mean, scores.lower_quartile, scores.minimum)), *comparison])
    metric = f"{summary.metric[0].upper()}{summary.metric[1:]} ({summary.options.task.chance_words(summary.chance)})"
    caption = f"{metric} on the test subjects. A candidate is one model of the ensemble."
    caption += "" if reference is None else COMPARED.format(reference.label)
    return Table(
        caption,
        ("", "mean", "lower quartile", "worst subject", "difference", "95 % interval", "gain / tie / loss", "p"),
        lines,
    )


def tabulate_sets(summary: Summary) -> Table | None:
    """Return a table of the shares of windows whose prediction set contains the true class."""
    scores = None if summary.choice is None else summary.choice.prediction_sets
    if scores is None or not scores.coverage:
        return None
    rows = []
    for level, coverage in scores.coverage.items():
        shares = map(share, (float(level), mean_of(coverage), min(coverage.values())))
        rows.append([*shares, f"{mean_of(scores.set_size[level]):.1f}"])
    heads = ("required coverage", "windows whose set contains the true class", "worst subject", "classes per set")
    return Table("Prediction sets: means over subjects, with thresholds from the other subjects", heads, rows)


def tabulate_abstention(summary: Summary) -> Table | None:
    """Return a table of the accuracy on answered windows, by the share of windows on which the model abstains."""
    scores = None if summary.choice is None else summary.choice.prediction_sets
    if scores is None or not scores.answered_accuracy:
        return None
    rows = [
        [share(float(required)), share(1 - mean_of(scores.answered_share[required])), score(mean_of(accuracy)),
         score(min(accuracy.values()))]
        for required, accuracy in scores.answered_accuracy.items()
    ]  # fmt: skip
    heads = ("required abstention", "unanswered windows", "accuracy on answered windows", "worst subject")
    return Table("Abstention: means over subjects, with thresholds from the other subjects", heads, rows)


def tabulate_intervals(summary: Summary) -> Table | None:
    """Return a table of the scores of each subject, and the share of targets inside 90 % intervals."""
    choice = summary.choice
    if choice is None or not choice.task.is_numeric:
        return None
    coverage = {} if choice.intervals is None else choice.intervals.coverage
    metrics = list(choice.other_metrics)
    rows = [
        [subject, score(value), *(score(choice.other_metrics[name].get(subject)) for name in metrics),
         score(choice.guessing.get(subject)), score(coverage.get(subject))]
        for subject, value in choice.estimate.items()
    ]  # fmt: skip
    heads = ("subject", summary.metric, *map(label_of, metrics), choice.task.guess, "in 90 % interval")
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


def _list_facts(run: Summary) -> dict[str, dict[str, object]]:
    """Return the facts that are needed to repeat the run, by heading."""
    data = run.data
    all_options = run.options.to_dict() | {"source": run.source}
    options = {name: value for name, value in all_options.items() if value is not None}
    return {
        "Options and seeds": options,
        "Data": {
            "channel names": ", ".join(data.channels),
            "classes": "none" if run.options.task.is_numeric else ", ".join(data.classes),
            "windows per subject": ", ".join(
                f"{s}: {n}" for s, n in zip(data.subjects, data.windows_by_unit, strict=True)
            ),
        },
        "Time and device": {"started": run.started, "computing time": duration(run.seconds), "device": run.device},
        "Versions": dict(run.versions),
    }
