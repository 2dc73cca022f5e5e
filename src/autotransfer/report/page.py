"""The report: one HTML file that needs nothing but a browser. Its layout is in templates/."""

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
from .comparison import find, list_methods
from .escaping import muted_brackets, plain, script_json
from .findings import describe_missing, headline, notes
from .model_figures import adaptation, confusion, curves, labels, leakage, mean_of, reliability
from .plot import Figure
from .score_figures import differences, draw_subjects, stages
from .statistics import holm, paired, spread
from .summary import Summary
from .wording import count, duration, interval, probability, score, share, signed

# Nothing may be fetched, sent or framed; scripts are only those written in this file.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
PAIRED = ", and the difference to {}. p: Wilcoxon signed-rank test, for methods with Holm's correction"
T = TypeVar("T")
MOST_ROWS = 300  # of the numbers of a figure


class Table(NamedTuple):
    """Table whose first column has names, and whose other columns have numbers."""

    caption: str
    heads: Sequence[str]
    rows: list[list[Any]]


class Section(NamedTuple):
    """A folded part of the page, left out if the run has no data for it."""

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
    """Return the page as text. plotly: base64 of the gzipped library in the place of the installed one."""
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
        failed=sum(training.failed for training in run.fits),
        facts=_facts(run),
        plotly=plotly_library() if plotly is None else plotly,
    )  # fmt: skip


def _build(makers: Sequence[Callable[[Summary], T | None]], run: Summary) -> list[T]:
    return [made for make in makers if (made := make(run)) is not None]


def rate_result(choice: Choice | None) -> str:
    """Return the class of the answer: guessing, better, level, worse, few or unknown."""
    if choice is None:
        return "incomplete"
    if choice.is_guessing:
        return "guessing"
    return "unknown" if choice.best_baseline is None else choice.best_baseline.comparison


def text_of(template: str, **values: Any) -> str:
    """Fill a template of plain text and write each of its paragraphs in one line."""
    paragraphs = _environment().get_template(template).render(values).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Replace characters that cannot be shown, and escape every value in HTML."""
    found = Environment(
        loader=PackageLoader("autotransfer.report"), autoescape=select_autoescape(["html"]), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else plain(value),
    )  # fmt: skip
    found.filters |= {"muted_brackets": muted_brackets, "number": number_words, "count": count}
    return found


def number_words(value: Any) -> str:
    """Write a value of a figure's table with at most four digits."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def import_plotly() -> Any:
    """Import the part of plotly that a page needs; called before a run too, so that an absence is noticed early."""
    return need("plotly.offline", "the report", "plotly")


@lru_cache(maxsize=1)
def plotly_library() -> Markup:
    """Return plotly.js, packed: the page unpacks it in memory, which makes the file less than half as large."""
    # without a time, equal runs give equal files
    packed = gzip.compress(import_plotly().get_plotlyjs().encode(), 9, mtime=0)
    return Markup(base64.b64encode(packed).decode())


def estimates(summary: Summary) -> Table | None:
    """Compare what is delivered, baselines and every penalty method with the paper's network."""
    rows = list_methods(summary)
    base = find(rows, "none")
    if summary.choice is None:
        return None
    pairs = {row.key: paired(row.scores, base.scores) for row in rows if row is not base} if base else {}
    corrected = holm({row.key: pair.p for row in rows if row.key in CENSORS and (pair := pairs.get(row.key))})
    lines: list[list[Any]] = []
    for row in rows:
        described, pair = spread(list(row.scores.values())), pairs.get(row.key)
        against = ["–"] * 4
        if pair is not None:
            signs, p = f"{pair.wins} / {pair.ties} / {pair.losses}", corrected.get(row.key, pair.p)
            against = [signed(pair.mean), interval(pair), signs, probability(p)]
        lines.append([row.label, *map(score, (described.mean, described.lower_quartile, described.minimum)), *against])
    metric, chance = summary.metric, summary.options.task.chance_words(summary.chance)
    return Table(
        f"{metric[0].upper()}{metric[1:]} ({chance}) on the test subjects{PAIRED.format(base.label) if base else ''}",
        ("", "mean", "lower quartile", "worst subject", "difference", "95 % interval", "gain / tie / loss", "p"),
        lines,
    )


def sets(summary: Summary) -> Table | None:
    """List how often prediction sets hold the true class."""
    scores = None if summary.choice is None else summary.choice.prediction_sets
    if scores is None or not scores.coverage:
        return None
    rows = [
        [asked, share(mean_of(held)), share(min(held.values())), f"{mean_of(scores.set_size[asked]):.1f}"]
        for asked, held in scores.coverage.items()
    ]
    heads = ("coverage asked for", "windows whose set holds the true class", "worst person", "classes in a set")
    return Table("Prediction sets, mean over people; thresholds come from the other people", heads, rows)


def abstention(summary: Summary) -> Table | None:
    """List the accuracy of what is answered if the model may leave windows unanswered."""
    scores = None if summary.choice is None else summary.choice.prediction_sets
    if scores is None or not scores.answered_accuracy:
        return None
    rows = [
        [asked, share(1 - mean_of(scores.answered_share[asked])), score(mean_of(right)),
         score(min(right.values()))]
        for asked, right in scores.answered_accuracy.items()
    ]  # fmt: skip
    heads = ("to be left unanswered", "left unanswered", "accuracy of the answers", "worst person")
    return Table("Abstention, mean over people; thresholds come from the other people", heads, rows)


def intervals(summary: Summary) -> Table | None:
    """List errors of predicted numbers, and how many windows of each person 90 % intervals hold."""
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
    heads = ("person", summary.metric, *map(label_of, others), choice.task.guess, "in 90 % interval")
    return Table("Every person that it has not seen", heads, rows)


SECTIONS = (
    Section("", "", (draw_subjects,)),
    Section(
        "Results on what was held out", "every subject, every stage and every method", (differences, stages),
        (estimates,),
    ),
    Section("Mistakes and confidence", "confused classes, overconfidence, abstention",
            (confusion, reliability), (intervals, sets, abstention)),
    Section("A new person with a minute of their own", "what labels and unlabeled windows are worth",
            (labels, adaptation)),
    Section("How networks were trained", "learning curves", (curves,)),
    Section("What the representation tells about people", "whether the subject can be read from it", (leakage,)),
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
