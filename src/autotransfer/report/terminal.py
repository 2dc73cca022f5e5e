"""The answer of a run in a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..runs.choice import OVER, Average, Choice
from ..runs.verdict import follow_words, headline, metric_words, skipped_words
from ..training.scoring import BALANCED_ACCURACY
from .escaping import short
from .outcomes import finite
from .statistics import spread
from .wording import NO_BETTER, average_words, kind_label, score

ADAPTS = {
    "online": "online: adapts to each new person from their unlabelled windows so far",
    "transductive": "transductive: uses all unlabelled windows of a new person",
}

Rows = dict[str, Mapping[str, float]]  # by label: scores by person


def answer(choice: Choice) -> list[str]:
    """The headline first; then what is delivered, and its scores beside those of simple models and the plain
    network."""
    left_out = [f"left out, for want of time: {'; '.join(choice.left_out)}"] if choice.left_out else []
    ended = [f"ended: {choice.ended}"] if choice.ended is not None else []
    return [*headline(choice), *_delivered(choice), *skipped_words(choice), *left_out, *ended]


def _delivered(choice: Choice) -> list[str]:
    adapts = [f"  {ADAPTS[choice.adaptation]}; these are not zero-shot scores"] if choice.adaptation in ADAPTS else []
    average = choice.average
    what, after = _chosen(choice) if average is None else _averaged(choice, average)
    rows = _rows_of_choice(choice) if average is None else _rows_of_average(choice, average)
    left_out = [f"not scored, for want of a second class: {_names(choice.not_scored)}"] if choice.not_scored else []
    return [*what, *adapts, f"{metric_words(choice)}:", *_table(rows), *after, *left_out]


def _chosen(choice: Choice) -> tuple[list[str], list[str]]:
    lines = [f"chosen: {choice.chosen.name}"]
    if choice.baseline_won:
        lines.append(f"{NO_BETTER}, so it was kept" + ("; censoring did not help" if choice.censor_tried else ""))
    return lines, []


def _rows_of_choice(choice: Choice) -> Rows:
    tests, ensembles = choice.test_scores, choice.delivered_test_scores
    rows: Rows = {"nested choice": choice.nested_test_scores, "as published": tests["chosen"]}
    if choice.nested_full_test_scores:
        rows["nested full"] = choice.nested_full_test_scores
    rows |= choice.peers
    if "nested" in ensembles and "baseline" in ensembles:
        rows |= {"ensemble, nested": ensembles["nested"], "ensemble, plain networks": ensembles["baseline"]}
    best = choice.best_uncensored.name
    if best != choice.baseline.name and "best_uncensored" in tests:
        rows[f"best uncensored ({short(best, 40)})"] = tests["best_uncensored"]
    return rows | {"plain network (baseline)": tests["baseline"]}


def _averaged(choice: Choice, average: Average) -> tuple[list[str], list[str]]:
    used = {short(kind_label(kind), 40): weight for kind, weight in average.kinds.items() if weight > 0}
    shares = ", ".join(f"{label} {100 * weight:.0f} %" for label, weight in used.items())
    calibration = average.calibration
    after = [
        f"temperature {average.temperature:.2f}: expected calibration error {score(calibration.error)}, without it "
        f"{score(calibration.error_before)}",
        f"best single candidate: {choice.chosen.name}",
        *(_played(choice) or _not_played(choice)),
    ]
    return [f"{average_words(average)}: {shares}"], after


def _rows_of_average(choice: Choice, average: Average) -> Rows:
    rows: Rows = {"average, nested": choice.nested_test_scores}
    if choice.nested_full_test_scores:
        rows["average, nested full"] = choice.nested_full_test_scores
    rows |= choice.peers
    rows["best single, nested"] = average.choosing_test_scores
    if not choice.has_plain_network:
        return rows
    if "baseline" in choice.delivered_test_scores:
        rows["ensemble, plain networks"] = choice.delivered_test_scores["baseline"]
    return rows | {"plain network (baseline)": choice.test_scores["baseline"]}


def _table(rows: Rows) -> list[str]:
    labels = [short(label, 60) for label in rows]
    width = max(map(len, labels))
    return [f"  {label:{width}}  {_numbers(scores)}" for label, scores in zip(labels, rows.values(), strict=True)]


def _names(people: Sequence[str]) -> str:
    return ", ".join(short(name, 40) for name in people[:10]) + (f" and {len(people) - 10} more" * (len(people) > 10))


def _not_played(choice: Choice) -> list[str]:
    if choice.playback is not None or choice.adaptation == "transductive":
        return []
    why = f": {OVER}" if choice.ended == OVER else ""
    return [f"neither adaptation nor labels were tried on held-out people{why}"]


def _played(choice: Choice) -> list[str]:
    """What labels and adaptation gave held-out people. Not all need be played back, nor on all their windows, and
    always in balanced accuracy: these are not the scores of the table."""
    played = choice.playback
    if played is None:
        return []
    people = len(next(iter(played.zero_shot.values())))
    metric = "" if choice.metric == BALANCED_ACCURACY else ", in balanced accuracy"
    lines = [f"on the {people} people played back{metric}, no labels: {follow_words(played.session, played.gain)}"]
    if played.online:
        before, session, whole = (
            _mean(scores) for scores in (played.zero_shot["recorded"], played.adapted["recorded"], played.all_windows)
        )
        lines[0] += f" (as recorded: zero-shot {before:.3f}, in a session {session:.3f}, all windows {whole:.3f})"
    if played.calibrated:
        pairs = [f"{k}: {_mean(played.before[k]):.3f} → {_mean(scores):.3f}" for k, scores in played.calibrated.items()]
        lines.append(f"with labels of each class, on the windows left: {', '.join(pairs)}")
    return lines


def _mean(scores: Mapping[str, float]) -> float:
    return float(np.mean(list(scores.values())))


def _numbers(scores: Mapping[str, float]) -> str:
    values = list(finite(scores).values())
    return str(spread(values)) if values else "no scores"
