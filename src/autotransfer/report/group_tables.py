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
    found = [] if summary.choice is None else summary.choice.groups
    if not found:
        return None
    worse = [f"{one.column} {one.group}" for one in found if one.concern == "worse"]
    told = (
        f"Clearly worse than the others: {', '.join(worse)}."
        if worse
        else "No group is clearly worse than the others. That says little of groups of few people."
    )
    heads = ("column", "group", "people", summary.metric, "95 % interval", "minus the others", "")
    caption = (
        "Each person is scored by what was decided without them. The last interval is of the difference to other "
        "people, or to the same people's other windows where a column varies within people"
    )
    return joined(tag("p", told), table(caption, heads, map(_row, found), numeric=2, less="4 5"))


def _row(one: GroupScore) -> list[object]:
    interval = f"{score(one.interval[0])} to {score(one.interval[1])}" if one.interval else "–"
    difference = range_words(tuple(one.difference)) if one.difference else "–"
    return [one.column, one.group, one.people, score(one.mean), interval, difference, CONCERNS.get(one.concern, "")]
