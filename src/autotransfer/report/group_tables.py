"""For whom the delivered model works: scores by group of the columns beside the data."""

from __future__ import annotations

from ..runs.choice import GroupScore
from ..words import range_words
from .escaping import Html, joined, tag
from .summary import Summary
from .tables import table
from .wording import score

CONCERNS = {"worse": "clearly worse", "few": "too few people to say", "": ""}


def groups(summary: Summary) -> Html | None:
    """A row for each group, and a sentence that names those which are much worse."""
    scores = [] if summary.choice is None else summary.choice.groups
    if not scores:
        return None
    worse = [f"{row.column} {row.group}" for row in scores if row.concern == "worse"]
    sentence = (
        f"Clearly worse than the others: {', '.join(worse)}."
        if worse
        else "No group is clearly worse than the others. That says little of groups of few people."
    )
    heads = ("column", "group", "people", summary.metric, "95 % interval", "minus the others", "")
    caption = (
        "Each person is scored by what was decided without them. The last interval is of the difference to other "
        "people, or to the same people's other windows where a column varies within people"
    )
    return joined(tag("p", sentence), table(caption, heads, map(_row, scores), numeric=2, less="4 5"))


def _row(row: GroupScore) -> list[object]:
    interval = f"{score(row.interval[0])} to {score(row.interval[1])}" if row.interval else "–"
    difference = range_words(tuple(row.difference)) if row.difference else "–"
    return [row.column, row.group, row.people, score(row.mean), interval, difference, CONCERNS.get(row.concern, "")]
