"""The report: one HTML file that needs nothing but a browser."""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ..files import write_atomically
from ..recordings.optional import need
from ..runs.options import RunOptions
from .answer import answer
from .answering_figures import abstention, coverage
from .averaging import alternatives, contributions, kinds, reliability, shares
from .escaping import Html, join_html, script_json, tag
from .latent_figures import latent_by_class, latent_by_subject, leakage
from .mistake_figures import confusion, mistakes_by_person, recall_by_class, reliability_by_person
from .person_figures import adaptation, labels, windows_seen
from .plot import Figure
from .result_figures import differences, glance, results, scores_by_subject, stages
from .search_figures import candidates, tried_settings
from .summary import Summary
from .tables import estimates, facts, failures, groups, leakages, settings, splits, subjects
from .training_figures import curves
from .wording import count, date_and_time, duration

# Nothing may be fetched, sent or framed; what runs is written in this file.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
NOSCRIPT = tag("noscript", tag("p", "The figures need JavaScript; text and tables do not."))
FOOTER = tag("footer", "Made by AutoTransfer. This file is complete in itself and loads nothing from the network.")


class Section(NamedTuple):
    """A folded part of the page, left out where the run has no data for it."""

    title: str
    inside: str
    figures: tuple[Callable[[Summary], Figure | None], ...] = ()
    tables: tuple[Callable[[Summary], Html | None], ...] = ()


FIRST, LAST = "answer", "details"  # which have their own places
SECTIONS = {
    FIRST: Section("", "", (glance,)),
    "stages": Section("How the score grew with time", "what the run had come to after every stage", (stages,)),
    "results": Section(
        "Results on what was held out", "every method and every subject, with tests",
        (results, scores_by_subject, differences), (estimates, subjects),
    ),
    "mistakes": Section(
        "Which mistakes it makes", "confused classes and overconfidence, by person",
        (confusion, reliability, reliability_by_person), (recall_by_class, mistakes_by_person),
    ),
    "answering": Section(
        "When it should not answer", "prediction sets and abstention, by person", (coverage, abstention)
    ),
    "groups": Section("For whom it works", "scores by group: age, sex, site, session, …", (), (groups,)),
    "average": Section(
        "What each kind contributes", "weights, and what each is worth", (shares, contributions), (kinds, alternatives)
    ),
    "person": Section(
        "A new person with a minute of their own", "what a few labels and adaptation are worth",
        (labels, adaptation, windows_seen),
    ),
    "search": Section(
        "How the setting was found", "what was tried, and how one was chosen", (tried_settings, candidates), (settings,)
    ),
    "people": Section(
        "What the representation still tells about people", "whether the subject can be read from it",
        (leakage, latent_by_subject, latent_by_class), (leakages,),
    ),
    "training": Section("Inside the models", "learning curves", (curves,)),
    LAST: Section("Data, splits and how to repeat it", "command, options, seeds, folds, versions"),
}  # fmt: skip


def write(summary: Summary, path: str | os.PathLike[str]) -> Path:
    """Write the report to `path`, atomically."""
    target = Path(path)
    write_atomically(target, render(summary))
    return target


def render(summary: Summary) -> str:
    """The whole page as text."""
    return document(summary, plotly=plotly_library())


def import_plotly() -> Any:
    """The part of plotly that a page needs. Called before a run too, so that a missing package is noticed early."""
    return need("plotly.offline", "the report", "plotly")


@lru_cache(maxsize=1)
def plotly_library() -> Html:
    """plotly.js, packed: the page unpacks it in memory, which makes the file less than half as large."""
    packed = gzip.compress(
        import_plotly().get_plotlyjs().encode(), 9, mtime=0
    )  # without a time, equal runs give equal files
    return Html(base64.b64encode(packed).decode())


def document(run: Summary, *, plotly: Html) -> str:
    """plotly: base64 of the gzipped library; without it the page still has its text and tables."""
    shown = figures(run)
    title = f"{run.mark}{run.name} – AutoTransfer report"
    parts = {
        key: [*map(figure_html, shown[key]), *(make(run) for make in section.tables)]
        for key, section in SECTIONS.items()
    }
    first = parts.pop(FIRST)
    body = join_html(
        tag("a", "Skip to the figures", href="#figures", class_="skip"),
        header_html(run.name, _size(run)),
        NOSCRIPT,
        tag("main", answer(run, join_html(*first)),
            tag("div", *(_section(key, *inside, opened=not run.complete) for key, inside in parts.items()
                         if any(inside)), _details(run), id="figures"),
            tag("p", tag("button", "Open all", type="button", data_open=True), class_="tools")),
        FOOTER,
    )  # fmt: skip
    return page_html(title, body, [figure for drawn in shown.values() for figure in drawn], plotly=plotly)


def figures(summary: Summary) -> dict[str, list[Figure]]:
    """Section -> its figures."""
    made = {key: [make(summary) for make in section.figures] for key, section in SECTIONS.items()}
    return {key: [figure for figure in drawn if figure is not None] for key, drawn in made.items()}


def page_html(title: str, body: Html, figures: Sequence[Figure], *, plotly: Html) -> str:
    """A page with these figures, each of which has its place in the body (`figure_html`)."""
    everything = [_for_script(figure) for figure in figures]
    return bare_page(
        title,
        body,
        tag("script", script_json(everything), type="application/json", id="figure-data"),
        tag("script", plotly if everything else "", type="text/plain", id="plotly-packed"),
        Html(f"<script>{asset('page.js')}</script>"),
    )


def bare_page(title: str, *content: Html) -> str:
    """A page that looks as the report does."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            tag("title", title),
            f"<style>{asset('page.css')}</style></head><body>",
            *content,
            "</body></html>\n",
        ]
    )


def asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _size(run: Summary) -> list[str]:
    data = run.data
    rate = f" at {data.sfreq:g} Hz" if data.sfreq else ""
    return [
        count(len(data.people), "subject"),
        count(data.n_trials, "trial"),
        count(len(data.classes), "class", "classes"),
        count(data.n_channels, "channel"),
        f"{data.n_times:,} samples{rate}",
    ]


def header_html(name: str, size: Sequence[str]) -> Html:
    return tag("header", tag("p", "AutoTransfer report", class_="brand"), tag("h1", name),
               tag("p", " · ".join(size), class_="size"))  # fmt: skip


def _section(key: str, *content: Html | None, opened: bool = False) -> Html:
    heading = tag("summary", tag("h2", SECTIONS[key].title, id=key), tag("span", SECTIONS[key].inside))
    return tag("section", tag("details", heading, *content, open=opened, class_="part"), aria_labelledby=key)


def figure_html(figure: Figure) -> Html:
    kinds = [(kind, kind.upper()) for kind in ("png", "svg", "csv")]
    label = f"Save “{figure.title}” as"
    buttons = [tag("button", n, type="button", data_save=kind, aria_label=f"{label} {n}") for kind, n in kinds]
    numbers = tag("details", tag("summary", "Numbers"), tag("div", class_="table"))
    return tag(
        "figure",
        tag("h3", figure.title, id=f"{figure.key}-title"),
        tag("figcaption", figure.caption),
        tag("div", class_="plot", role="img", aria_label=f"{figure.title}. {figure.caption}"),
        tag("div", numbers, tag("span", "Save as "), *buttons, class_="tools"),
        id=f"figure-{figure.key}",
        data_figure=figure.key,
        aria_labelledby=f"{figure.key}-title",
    )


def _for_script(figure: Figure) -> dict[str, object]:
    return {
        "key": figure.key, "title": figure.title, "data": figure.data, "layout": figure.layout, "panels": figure.panels,
        "height": figure.height, "square": figure.square, "legend": figure.legend, "axes": figure.axes,
        "table": {"columns": figure.columns, "rows": figure.rows},
    }  # fmt: skip


def _details(run: Summary) -> Html:
    data = {
        "source": run.source,
        "trials": run.data.n_trials,
        "samples per trial": run.data.n_times,
        "sampling rate (Hz)": "unknown" if run.data.sfreq is None else f"{run.data.sfreq:g}",
        "channel names": ", ".join(run.data.channels),
        "classes": ", ".join(run.data.classes),
        "trials per subject": ", ".join(f"{s}: {n}" for s, n in zip(run.data.subjects, run.data.trials, strict=True)),
    }
    time = {"started": date_and_time(run.started), "computing time": duration(run.seconds), "device": run.device,
            "jobs": f"{run.jobs_done:,} of {run.jobs_total:,}"}  # fmt: skip
    return _section(
        LAST,
        failures(run),
        tag("h3", "Repeat this run"),
        tag("pre", tag("code", run.command), tabindex="0"),
        facts("Options and seeds", _shown_options(run.options)),
        splits(run),
        facts("Data", data),
        facts("Time and place", time),
        facts("Versions", run.versions),
    )


def _shown_options(options: RunOptions) -> dict[str, object]:
    """The options that were used."""
    unused = {"source"} | (set() if options.search == "tpe" else {"trials"})
    unused |= {name for name in ("shuffle_subjects", "as_printed") if not getattr(options, name)}
    shown = {field.name: getattr(options, field.name) for field in fields(options) if field.name not in unused}
    return {name: value for name, value in (shown | {"epochs": options.max_epochs}).items() if value is not None}
