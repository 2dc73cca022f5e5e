"""The answer of a run in a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def no_censor_tried(choice: Mapping[str, Any]) -> bool:
    """Whether the run only looked for a preparation; names of uncensored settings begin with "baseline"."""
    names = [str(name) for name in choice.get("shortlist") or []]
    return bool(names) and all(name.split(" with ")[0] == "baseline" for name in names)


def answer(choice: dict[str, Any]) -> list[str]:
    """The outcome of a run in words: chosen setting, its scores beside the baseline's."""

    def numbers(scores: dict[str, float]) -> str:
        values = sorted(scores.values())
        mean = sum(values) / len(values)
        return f"mean {mean:.3f}, lower quartile {np.percentile(values, 25):.3f}, minimum {values[0]:.3f}"

    lines = [f"chosen: {choice['chosen']['name']}"]
    adapts = {"running": "adapts to each new person from their unlabelled windows so far",
              "transductive": "transductive: uses all unlabelled windows of a new person"}  # fmt: skip
    if choice.get("adaptation") in adapts:
        lines.append(f"  {adapts[choice['adaptation']]}; these are no zero-shot scores")
    if choice["baseline_won"] and (choice.get("lead") or no_censor_tried(choice)):
        lines.append("nothing was clearly better on these recordings: the plain network was chosen")
    elif choice["baseline_won"]:
        lines.append("censoring did not help on these recordings: the uncensored baseline was chosen")
    lines += [
        f"  test, as published   {numbers(choice['test_scores']['chosen'])}",
        f"  test, nested choice  {numbers(choice['nested_test_scores'])}",
        f"  baseline             {numbers(choice['test_scores']['baseline'])}",
    ]
    best = choice.get("best_uncensored")
    if best and best["name"] != choice["baseline"]["name"]:
        lines.append(f"  best uncensored      {numbers(choice['test_scores']['best_uncensored'])} ({best['name']})")
    ensembles = choice.get("delivered_test_scores") or {}
    if "nested" in ensembles and "baseline" in ensembles:
        lines.append(f"  ensemble, nested     {numbers(ensembles['nested'])}")
        lines.append(f"  ensemble, baseline   {numbers(ensembles['baseline'])}")
    if "nested_full_test_scores" in choice:
        lines.append(f"  test, nested full    {numbers(choice['nested_full_test_scores'])}")
    return lines
