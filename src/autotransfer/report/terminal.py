"""The answer of a run in a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..runs.choice import Average, Choice
from ..runs.ending import longer_words
from . import result_words as words
from .escaping import short
from .outcomes import finite_scores
from .statistics import spread
from .wording import kind_label, score

ScoreRows = dict[str, Mapping[str, float]]  # by label: scores by person


def answer_lines(choice: Choice, folder: Path | None = None) -> list[str]:
    """The headline, the delivered model, and its scores with those of simple models and the plain network. folder: of
    the run, to say how it goes on."""
    longer = "" if folder is None else longer_words(choice.ended, folder)
    ended = [f"ended: {choice.ended}{longer}"] if choice.ended is not None else []
    missing = [*words.skipped_words(choice), *words.left_out_words(choice)]
    return [*words.headline(choice), *_delivered(choice), *missing, *ended]


def _delivered(choice: Choice) -> list[str]:
    used = words.ADAPTATIONS.get(choice.adaptation)
    adapts = [] if used is None else [f"  {used}; these are not zero-shot scores"]
    lines, rows, after = _chosen(choice) if choice.average is None else _averaged(choice, choice.average)
    return [*lines, *adapts, f"{words.metric_words(choice)}:", *_table(rows), *after, *words.not_scored_words(choice)]


def _chosen(choice: Choice) -> tuple[list[str], ScoreRows, list[str]]:
    """What is delivered, the rows of the table, and what stands below it."""
    lines = [f"chosen: {choice.chosen.name}"]
    if choice.baseline_won:
        lines.append(f"{words.NO_BETTER}, so it was kept" + ("; censoring did not help" if choice.censor_tried else ""))
    tests, ensembles = choice.test_scores, choice.delivered_test_scores
    rows: ScoreRows = {"nested choice": choice.nested_test_scores, "as published": tests["chosen"]}
    rows |= choice.peers
    if "nested" in ensembles and "baseline" in ensembles:
        rows |= {"ensemble, nested": ensembles["nested"], "ensemble, plain networks": ensembles["baseline"]}
    best = choice.best_uncensored.name
    if best != choice.baseline.name and "best_uncensored" in tests:
        rows[f"best uncensored ({short(best, 40)})"] = tests["best_uncensored"]
    return lines, rows | {"plain network (baseline)": tests["baseline"]}, []


def _averaged(choice: Choice, average: Average) -> tuple[list[str], ScoreRows, list[str]]:
    used = {short(kind_label(kind), 40): weight for kind, weight in average.kinds.items() if weight > 0}
    shares = ", ".join(f"{label} {100 * weight:.0f} %" for label, weight in used.items())
    calibration = average.calibration
    after = [
        f"temperature {average.temperature:.2f}: expected calibration error {score(calibration.error)}, without it "
        f"{score(calibration.error_before)}",
        f"best single candidate: {choice.chosen.name}",
        *words.playback_words(choice),
    ]
    rows: ScoreRows = {"average, nested": choice.nested_test_scores}
    rows |= choice.peers
    rows["best single, nested"] = average.choosing_test_scores
    if choice.has_plain_network:
        if "baseline" in choice.delivered_test_scores:
            rows["ensemble, plain networks"] = choice.delivered_test_scores["baseline"]
        rows["plain network (baseline)"] = choice.test_scores["baseline"]
    return [f"{words.average_words(average)}: {shares}"], rows, after


def _table(rows: ScoreRows) -> list[str]:
    labels = [short(label, 60) for label in rows]
    width = max(map(len, labels))
    values = [list(finite_scores(scores).values()) for scores in rows.values()]
    return [
        f"  {label:{width}}  {spread(known) if known else 'no scores'}"
        for label, known in zip(labels, values, strict=True)
    ]
