"""The answer of a run in a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..runs.choice import Choice

NO_BETTER = "No setting is clearly better than the plain network"
ADAPTS = {
    "online": "online: adapts to each new person from their unlabelled windows so far",
    "transductive": "transductive: uses all unlabelled windows of a new person",
}


def answer(choice: Choice, n_classes: int | None = None) -> list[str]:
    """The chosen setting, and its scores beside the baseline's. n_classes: to say what guessing would score."""
    lines = [f"chosen: {choice.chosen.name}"]
    if choice.adaptation in ADAPTS:
        lines.append(f"  {ADAPTS[choice.adaptation]}; these are not zero-shot scores")
    if choice.baseline_won and (choice.lead is not None or not choice.censor_tried):
        lines.append(f"{NO_BETTER}, so it was kept")
    elif choice.baseline_won:
        lines.append("Censoring did not help on these recordings, so the plain network was kept")
    chance = "" if n_classes is None else f" (chance {1 / n_classes:.3f})"
    tests, ensembles = choice.test_scores, choice.delivered_test_scores
    lines += [
        f"balanced accuracy on {len(choice.nested_test_scores)} test subjects{chance}:",
        f"  test, as published   {_numbers(tests['chosen'])}",
        f"  test, nested choice  {_numbers(choice.nested_test_scores)}",
        f"  baseline             {_numbers(tests['baseline'])}",
    ]
    best = choice.best_uncensored.name
    if best != choice.baseline.name and "best_uncensored" in tests:
        lines.append(f"  best uncensored      {_numbers(tests['best_uncensored'])} ({best})")
    if "nested" in ensembles and "baseline" in ensembles:
        lines.append(f"  ensemble, nested     {_numbers(ensembles['nested'])}")
        lines.append(f"  ensemble, baseline   {_numbers(ensembles['baseline'])}")
    if choice.nested_full_test_scores:
        lines.append(f"  test, nested full    {_numbers(choice.nested_full_test_scores)}")
    return lines


def _numbers(scores: Mapping[str, float]) -> str:
    values = list(scores.values())
    return f"mean {np.mean(values):.3f}, lower quartile {np.percentile(values, 25):.3f}, minimum {np.min(values):.3f}"
