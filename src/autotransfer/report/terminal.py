"""The answer of a run in a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..runs.choice import Average, Choice, Playback
from .escaping import short
from .outcomes import finite
from .wording import NO_BETTER, average_words, guessing_words, kind_label, metric_words, peer_words, score

PEER_NAMES = {"Tangent space, LDA": "tangent space, LDA", "Shrinkage LDA": "shrinkage LDA",
              "pyRiemann, tangent space, LDA": "pyRiemann"}  # fmt: skip
ADAPTS = {
    "online": "online: adapts to each new person from their unlabelled windows so far",
    "transductive": "transductive: uses all unlabelled windows of a new person",
}


def answer(choice: Choice) -> list[str]:
    """What is delivered, and its scores beside the baseline's and its peers'; before all else, whether it is better
    than guessing."""
    guesses = [guessing_words(choice)] if choice.guesses else []
    left_out = [f"left out, for want of time: {'; '.join(choice.left_out)}"] if choice.left_out else []
    return [*guesses, *_delivered(choice), *peer_words(choice), *left_out]


def _peers(choice: Choice) -> list[str]:
    return [f"  {PEER_NAMES.get(name, short(name, 20)):20} {_numbers(own)}" for name, own in choice.peers.items()]


def _delivered(choice: Choice) -> list[str]:
    adapts = [f"  {ADAPTS[choice.adaptation]}; these are not zero-shot scores"] if choice.adaptation in ADAPTS else []
    metric = f"{metric_words(choice)}:"
    left_out = [f"not scored, for want of a second class: {_names(choice.not_scored)}"] if choice.not_scored else []
    if choice.average is not None:
        return [*_averaged(choice, choice.average, adapts, metric), *left_out]
    lines = [f"chosen: {choice.chosen.name}", *adapts]
    if choice.baseline_won and not choice.censor_tried:
        lines.append(f"{NO_BETTER}, so it was kept")
    elif choice.baseline_won:
        lines.append(f"Censoring did not help on these recordings: {NO_BETTER[0].lower()}{NO_BETTER[1:]}")
    tests, ensembles = choice.test_scores, choice.delivered_test_scores
    lines += [
        metric,
        f"  test, as published   {_numbers(tests['chosen'])}",
        f"  test, nested choice  {_numbers(choice.nested_test_scores)}",
        f"  baseline             {_numbers(tests['baseline'])}",
    ]
    lines += _peers(choice)
    best = choice.best_uncensored.name
    if best != choice.baseline.name and "best_uncensored" in tests:
        lines.append(f"  best uncensored      {_numbers(tests['best_uncensored'])} ({best})")
    if "nested" in ensembles and "baseline" in ensembles:
        lines.append(f"  ensemble, nested     {_numbers(ensembles['nested'])}")
        lines.append(f"  ensemble, baseline   {_numbers(ensembles['baseline'])}")
    if choice.nested_full_test_scores:
        lines.append(f"  test, nested full    {_numbers(choice.nested_full_test_scores)}")
    return [*lines, *left_out]


def _names(people: Sequence[str]) -> str:
    return ", ".join(short(name, 40) for name in people[:10]) + (f" and {len(people) - 10} more" * (len(people) > 10))


def _averaged(choice: Choice, average: Average, adapts: list[str], metric: str) -> list[str]:
    used = {short(kind_label(kind), 40): own for kind, own in average.kinds.items() if own > 0}
    shares = ", ".join(f"{label} {100 * own:.0f} %" for label, own in used.items())
    found = average.calibration
    lines = [
        f"{average_words(average)}: {shares}",
        *adapts,
        metric,
        f"  average, nested      {_numbers(choice.nested_test_scores)}",
        f"  baseline             {_numbers(choice.test_scores['baseline'])}",
    ]
    if "baseline" in choice.delivered_test_scores:
        lines.append(f"  ensemble, baseline   {_numbers(choice.delivered_test_scores['baseline'])}")
    lines.append(f"  best single, nested  {_numbers(average.choosing_test_scores)}")
    lines += _peers(choice)
    if choice.nested_full_test_scores:
        lines.append(f"  average, nested full {_numbers(choice.nested_full_test_scores)}")
    lines.append(
        f"temperature {average.temperature:.2f}: expected calibration error {score(found.error)}, without it "
        f"{score(found.error_before)}"
    )
    lines.append(f"best single candidate: {choice.chosen.name}")
    return [*lines, *_played(choice.playback)]


def _played(played: Playback | None) -> list[str]:
    """What labels and adaptation gave held-out people."""
    if played is None:
        return []
    gain = np.mean([_mean(played.adapted[order]) - _mean(own) for order, own in played.zero_shot.items()])
    verdict = ": not worth it here" if played.follows == "none" else f" (by {played.follows})"
    lines = [
        f"following {len(next(iter(played.zero_shot.values())))} held-out people without labels: {gain:+.3f}{verdict}"
    ]
    if played.calibrated:
        pairs = [f"{k}: {_mean(own):.3f} ({_mean(played.before[k]):.3f})" for k, own in played.calibrated.items()]
        lines.append(f"calibrated with labels of each class (without): {', '.join(pairs)}")
    return lines


def _mean(scores: Mapping[str, float]) -> float:
    return float(np.mean(list(scores.values())))


def _numbers(scores: Mapping[str, float]) -> str:
    values = list(finite(scores).values())
    if not values:
        return "no scores"
    return f"mean {np.mean(values):.3f}, lower quartile {np.percentile(values, 25):.3f}, minimum {np.min(values):.3f}"
