"""Who is compared with whom: the rows of the results figure, each a test score per subject."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..settings import METHODS
from .outcomes import chosen_name, numbers, scores_on_test, scores_on_validation, tried_everywhere
from .summary import Summary
from .wording import METHOD_NAMES


@dataclass(frozen=True)
class Contender:
    """One row of the results figure."""

    key: str  # "none", "uncensored", a method, "published", "nested" or "nested_full": decides the colour
    label: str
    setting: str | None  # None: it differs between subjects
    scores: dict[str, float]  # test score by subject, mean over seeds

    @property
    def is_autotransfer(self) -> bool:
        return self.key in ("published", "nested", "nested_full")


def validation_table(summary: Summary) -> pd.DataFrame:
    """Per candidate of stage two: method, q25 and mean over subjects of its validation scores, the best first.

    Test scores are not in it. What the choice recorded goes before what can be computed here.
    """
    rows = tried_everywhere(summary.results)
    methods = dict(zip(rows["setting"], rows["method"], strict=True))
    choice = summary.choice or {}
    q25, mean = numbers(choice.get("validation_q25")), numbers(choice.get("validation_mean"))
    table = pd.DataFrame(
        [
            (name, methods[name], q25.get(name, np.percentile(values, 25)), mean.get(name, np.mean(values)))
            for name, own in scores_on_validation(summary.results).items()
            if (values := list(own.values()))
        ],
        columns=pd.Index(["setting", "method", "q25", "mean"]),
    )
    return table.set_index("setting").sort_values(["q25", "mean"], ascending=False, kind="stable")


def best_settings(validation: pd.DataFrame) -> dict[str, str]:
    """Method -> the setting that stands for it, by validation alone. validation: as from `validation_table`."""
    return {str(method): str(name) for name, method in reversed(list(validation["method"].items()))}


def contenders(summary: Summary) -> list[Contender]:
    """Baseline, the methods in their usual order, then AutoTransfer as published and as estimated honestly."""
    best = best_settings(validation_table(summary))
    order = ["none", *METHODS, *(m for m in best if m not in METHODS and m != "none")]
    scores = scores_on_test(summary.results)
    rows = [Contender(m, METHOD_NAMES.get(m, m), best[m], scores.get(best[m], {})) for m in order if m in best]
    choice = summary.choice or {}
    tests = choice.get("test_scores") or {}
    if rows and rows[0].key == "none" and tests.get("baseline"):
        plain = str((choice.get("baseline") or {}).get("name", rows[0].setting))
        rows[0] = replace(rows[0], setting=plain, scores=numbers(tests["baseline"]))
    elif tests.get("baseline"):
        rows.insert(0, Contender("none", METHOD_NAMES["none"], "baseline", numbers(tests["baseline"])))
    uncensored = (choice.get("best_uncensored") or {}).get("name")
    if uncensored is not None and uncensored != (choice.get("baseline") or {}).get("name"):
        found = numbers(tests.get("best_uncensored"))
        rows.insert(1, Contender("uncensored", "Best uncensored", str(uncensored), found))
    published = numbers(tests.get("chosen"))
    rows.append(Contender("published", "AutoTransfer, published", chosen_name(summary), published))
    rows.append(Contender("nested", "AutoTransfer, nested", None, numbers(choice.get("nested_test_scores"))))
    full = numbers(choice.get("nested_full_test_scores"))
    rows.append(Contender("nested_full", "AutoTransfer, nested full", None, full))
    return [row for row in rows if row.scores]


def find(rows: list[Contender], *keys: str) -> Contender | None:
    """The first of `keys` that is there."""
    return next((row for key in keys for row in rows if row.key == key), None)


def honest(rows: list[Contender]) -> Contender | None:
    """The estimate that the headline rests on: the strictest there is."""
    return find(rows, "nested_full", "nested", "published")


def subject_order(rows: list[Contender]) -> list[str]:
    """Test subjects from worst to best under the baseline; those it was not tested on come last."""
    base = find(rows, "none")
    first = base.scores if base else {}
    others = dict.fromkeys(s for row in rows for s in row.scores if s not in first)
    return sorted(first, key=lambda s: first[s]) + list(others)
