"""Figures of scores: subjects, differences to the best baseline, and stages."""

from __future__ import annotations

import math
from itertools import chain

from ..folds import SUBJECT
from ..tasks import label_of
from ..training.intervals import mean_interval
from ..words import range_words, score, signed
from . import plot
from .comparison import DELIVERED, best_baseline, find_model, finite_scores, list_models
from .escaping import format_label
from .plot import ACCENT, GREY, MUTED, SOFT, Figure, Json
from .statistics import compare_paired
from .summary import Summary
from .wording import duration


def draw_subjects(summary: Summary) -> Figure | None:
    """Draw the scores of all subjects by the delivered model, the baselines (best first) and the paper's network."""
    if summary.choice is None:
        return None
    rows = list_models(summary.choice)
    delivered, paper = find_model(rows, DELIVERED), find_model(rows, "none")
    baselines = sorted((row for row in rows if row.is_baseline), key=lambda row: -row.mean)
    models = [row for row in (delivered, *baselines, paper) if row is not None]
    lowest = plot.LOWEST_SHOWN if delivered is not None and delivered.mean > 0 else -math.inf
    values = [[max(value, lowest) for value in row.scores.values()] for row in models]
    x_axis = plot.score_axis(f"{summary.metric} on the test subject", chain(*values), summary.chance)
    titles, means = [format_label(row.label, 40) for row in models], [score(row.mean) for row in models]
    subjects = sorted(models[0].scores, key=models[0].scores.__getitem__)
    titles[0], means[0] = "<b>AutoTransfer, delivered</b>", f"<b>{means[0]}</b>"
    names = [f"{titles[0]}; worst: subject {format_label(subjects[0], 12)}", *titles[1:]]
    heights, layout, height = plot.dot_rows(values, x_axis, names, means)
    data, bands, limits = [], [], summary.choice.task.metric(summary.choice.metric).limits
    for i, row in enumerate(models):
        fill, soft = (ACCENT, SOFT) if row is delivered else (GREY, plot.GREY_SOFT)
        texts = [f"{titles[i]}<br>subject {format_label(name)}: {score(value)}" for name, value in row.scores.items()]
        look = {"opacity": 0.85, "size": plot.DOT}
        data.append(plot.points(values[i], heights[i], titles[i], fill=fill, text=texts, marker=look))
        interval = mean_interval(list(row.scores.values()), limits)
        bands += _draw_band(row.mean, interval, fill, soft, y0=i - 0.3, y1=i + 0.3)
    tables = {row.label: row.scores for row in models}
    tables |= {label_of(name): finite_scores(scores) for name, scores in summary.choice.other_metrics.items()}
    head = {"annotations": [plot.note("mean", x=1, y=-0.5, fill=MUTED, xshift=12)], "shapes": bands}
    return Figure(
        key="subjects",
        title="Score of every held-out subject" if summary.options.hold_out == SUBJECT else "Score of every subject",
        caption="Dots are subjects, lines are means, bands are 95 % intervals of the means.",
        data=data,
        layout=plot.merge_layouts(layout, plot.dashed_line(summary.chance, vertical=True), head),
        columns=("subject", *tables),
        rows=[[subject, *(scores.get(subject) for scores in tables.values())] for subject in subjects],
        height=height,
    )


def _draw_band(mean: float, limits: tuple[float, float] | None, fill: str, soft: str, **ends: float) -> list[Json]:
    """Return shapes behind the dots of a row: a line at the mean, and a band for its interval."""
    look: Json = {"layer": "below", **ends}
    line = {**look, "type": "line", "x0": mean, "x1": mean, "line": {"color": fill, "width": 2.5}}
    if limits is None:
        return [line]
    return [{**look, "type": "rect", "x0": limits[0], "x1": limits[1], "fillcolor": soft, "line": {"width": 0}}, line]


def draw_differences(summary: Summary) -> Figure | None:
    """Draw the difference between the delivered model and the best baseline by subject."""
    rows = [] if summary.choice is None else list_models(summary.choice)
    delivered, baseline = find_model(rows, DELIVERED), best_baseline(rows)
    pair = None if delivered is None or baseline is None else compare_paired(delivered.scores, baseline.scores)
    if pair is None or baseline is None or pair.ties == pair.n:
        return None
    names = sorted(pair.differences, key=baseline.scores.__getitem__)
    values = [pair.differences[name] for name in names]
    fills = list(map(plot.gain_color, values))
    texts = [f"subject {format_label(name)}: {signed(value)}" for name, value in zip(names, values, strict=True)]
    stems = [plot.line([i, i], [0, value], "", stroke=fills[i], width=3) for i, value in enumerate(values)]
    limits = pair.interval
    band: list[Json] = []
    if limits is not None:
        look: Json = {"xref": "x domain", "x0": 0, "x1": 1, "layer": "below", "fillcolor": SOFT, "line": {"width": 0}}
        band = [{**look, "type": "rect", "y0": limits[0], "y1": limits[1]}]
    mean, interval = f"The mean is {signed(pair.mean)}", f" (band: 95 % interval {range_words(limits)})" * bool(limits)
    return Figure(
        key="differences",
        title="Gain or loss of every subject",
        caption=f"Score of the delivered model minus the score of {baseline.label}. Subjects with the lowest score of "
        f"{baseline.label} come first. {mean}{interval}. If the band includes zero, the difference may be chance.",
        data=[*stems, plot.points([*range(len(names))], values, "difference", fill=fills, text=texts)],
        layout={
            "xaxis": plot.names_axis(names, "test subject"),
            "yaxis": plot.difference_axis("difference", [*values, *(limits or ())], least=0.05),
            "shapes": band,
        },
        columns=("test subject", "difference"),
        rows=[[name, value] for name, value in zip(names, values, strict=True)],
        height=300,
    )


def draw_stages(summary: Summary) -> Figure | None:
    """Draw the mean score after each stage over the time of the run."""
    stages = [] if summary.choice is None else summary.choice.stages
    stages = [stage for stage in stages if math.isfinite(stage.score) and math.isfinite(stage.seconds)]
    if not stages:
        return None
    unit, size = ("minutes", 60.0) if stages[-1].seconds >= 120 else ("seconds", 1.0)
    x, y = [stage.seconds / size for stage in stages], [stage.score for stage in stages]
    bars = [(time, value) for time, stage in zip(x, stages, strict=True) for value in (*stage.interval, None)]
    names = [f"{number}. {stage.name} ({duration(stage.seconds)})" for number, stage in enumerate(stages, 1)]
    texts = [f"{format_label(name)}<br>mean {score(value)}" for name, value in zip(names, y, strict=True)]
    x_axis = plot.plain_axis(f"{unit} since the start of the run", range=[0, 1.06 * max(x) or 1.0])
    numbers = {"mode": "markers+text", "textposition": "top right", "texttemplate": "%{customdata}"}
    return Figure(
        key="stages",
        title="Score after each stage",
        caption="Mean over subjects after each stage, with 95 % intervals. If the last stages gained little, a longer "
        f"run would not help. Stages: {'; '.join(names)}.",
        data=[
            plot.line([t for t, _ in bars], [value for _, value in bars], "95 % interval", stroke=MUTED, width=1.5),
            plot.line(x, y, "mean", stroke=SOFT, line={"shape": "hv"}),
            plot.points(x, y, "stage", fill=ACCENT, text=texts, customdata=[*range(1, len(stages) + 1)], **numbers),
        ],
        layout=plot.scores_layout(x_axis, "mean score", [*y, *(value for _, value in bars)], summary.chance),
        columns=("stage", "seconds", "score", "low", "high"),
        rows=[[stage.name, stage.seconds, stage.score, *(stage.interval or (None, None))] for stage in stages],
        height=300,
    )
