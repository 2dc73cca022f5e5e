"""The answer of a run in a few lines of text."""

from __future__ import annotations

from typing import Any

import numpy as np


def answer(choice: dict[str, Any]) -> list[str]:
    """The outcome of a run in words: chosen setting, its scores beside the baseline's."""

    def numbers(scores: dict[str, float]) -> str:
        values = sorted(scores.values())
        mean = sum(values) / len(values)
        return f"mean {mean:.3f}, lower quartile {np.percentile(values, 25):.3f}, minimum {values[0]:.3f}"

    lines = [f"chosen: {choice['chosen']['name']}"]
    if choice["baseline_won"]:
        lines.append("censoring did not help on these recordings: the uncensored baseline was chosen")
    lines += [
        f"  test, as published   {numbers(choice['test_scores']['chosen'])}",
        f"  test, nested choice  {numbers(choice['nested_test_scores'])}",
        f"  baseline             {numbers(choice['test_scores']['baseline'])}",
    ]
    if "nested_full_test_scores" in choice:
        lines.append(f"  test, nested full    {numbers(choice['nested_full_test_scores'])}")
    return lines
