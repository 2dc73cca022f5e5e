"""How the score grew from stage to stage."""

from __future__ import annotations

import math

from . import plot
from .escaping import plot_text
from .plot import ACCENT, MUTED, SOFT, Figure
from .result_words import unseen
from .summary import Summary
from .wording import duration, score


def stages(summary: Summary) -> Figure | None:
    """The score on people not seen when each stage had ended, against the time since the run began."""
    known = [] if summary.choice is None else summary.choice.stages
    ended = [stage for stage in known if math.isfinite(stage.score) and math.isfinite(stage.seconds)]
    if not ended:
        return None
    unit, size = ("minutes", 60.0) if ended[-1].seconds >= 120 else ("seconds", 1.0)
    x, y = [stage.seconds / size for stage in ended], [stage.score for stage in ended]
    ends = [(stage.interval[0], stage.interval[1]) if len(stage.interval) == 2 else None for stage in ended]
    bars = [(at, value) for at, end in zip(x, ends, strict=True) if end for value in (*end, None)]
    named = [f"{number} {stage.name} ({duration(stage.seconds)})" for number, stage in enumerate(ended, 1)]
    texts = [
        f"{plot_text(name)}<br>mean {score(stage.score)}"
        + (f", 95 % {score(end[0])} to {score(end[1])}" if end else "")
        for name, stage, end in zip(named, ended, ends, strict=True)
    ]
    across = plot.plain_axis(f"{unit} since the run began", range=[0, 1.06 * max(x) or 1.0])
    numbers = {"mode": "markers+text", "textposition": "top right", "texttemplate": "%{customdata}"}
    return Figure(
        key="stages",
        title="What every stage was worth",
        caption=f"The mean score {unseen(summary)} when a stage had ended, with everything trained up to then; bars "
        "are 95 % intervals over people. Each person's score was decided without them. Stages: "
        + "; ".join(named) + ".",
        data=[
            plot.line([at for at, _ in bars], [value for _, value in bars], "95 % interval", stroke=MUTED, width=1.5),
            plot.line(x, y, "mean", stroke=SOFT, line={"shape": "hv"}),
            plot.points(x, y, "stage", fill=ACCENT, text=texts, customdata=list(range(1, len(ended) + 1)), **numbers),
        ],
        layout=plot.scores_over(across, "mean score", [*y, *(value for _, value in bars)], summary.chance),
        columns=("stage", "seconds", "score", "low", "high"),
        rows=[
            [stage.name, stage.seconds, stage.score, *(end or (None, None))]
            for stage, end in zip(ended, ends, strict=True)
        ],
        height=300,
        legend=False,
    )  # fmt: skip
