"""One person of a run in words: `report --person`. Scores are nested: decided without the person."""

from __future__ import annotations

import math

import numpy as np

from ..errors import UserError
from ..runs.choice import Choice
from ..runs.data_facts import check_person
from ..training.scoring import chance_words, label_of
from ..words import count, printable, score, signed
from .mistake_figures import class_rows
from .person_scores import confusion_lines
from .summary import Summary

ASKED = ("0.9", "0.2")  # coverage of sets, and share of windows left unanswered, that are told


def person_lines(summary: Summary, name: str) -> list[str]:
    """Score and place among the others, mistakes, and how far confidence can be trusted."""
    check_person(name, summary.data.people, summary.name)
    choice, who = summary.choice, printable(name)
    if choice is None:
        raise UserError(f"the run on {summary.name} has no answer yet; resume it, then ask for a person")
    windows = dict(zip(summary.data.people, summary.data.trials_by_person, strict=True))[name]
    if name not in choice.estimate:
        why = "their windows are all of one class" if name in choice.not_scored else "they were not held out"
        return [f"{who}: {count(windows, 'window')}, no score: {why}"]
    lines = [*_place(summary, choice, name, f"{who}, {count(windows, 'window')}"), *_other_scores(choice, name)]
    if name in choice.confusions:
        counts = np.array(choice.confusions[name])
        lines += confusion_lines(counts, summary.data.classes)
        lines += [
            f"  {printable(label)}: recall {recall}, precision {precision}"
            for label, _, _, recall, precision, *_ in class_rows(counts, list(summary.data.classes), choice.metric)
        ]
    return [*lines, *_trust(choice, name), *_answers(choice, name)]


def _place(summary: Summary, choice: Choice, name: str, start: str) -> list[str]:
    """The score, and how many score higher."""
    value, values = choice.estimate[name], list(choice.estimate.values())
    place = 1 + sum(other > value for other in values)
    lines = [
        f"{start}: {summary.metric} {score(value)} ({chance_words(summary.chance)})",
        f"place {place} of {len(values)}: the mean is {score(float(np.mean(values)))}, the median "
        f"{score(float(np.median(values)))}, the lowest {score(min(values))}, the highest {score(max(values))}",
    ]
    if choice.at_least is not None and value < choice.at_least:
        lines += [f"below {choice.at_least:g}, which you need of everybody"]
    return lines


def _other_scores(choice: Choice, name: str) -> list[str]:
    others = {label_of(metric): scores[name] for metric, scores in choice.other_metrics.items() if name in scores}
    lines = [", ".join(f"{label} {score(value)}" for label, value in others.items())] if others else []
    best = choice.best_peer
    if best is not None and name in choice.peers.get(best.name, {}):
        value = choice.peers[best.name][name]
        lines += [f"{printable(best.name)}: {score(value)} (the model {signed(choice.estimate[name] - value)})"]
    return lines


def _trust(choice: Choice, name: str) -> list[str]:
    """How far confidence can be trusted, compared with other people."""
    gaps = {who: reliability.overconfidence for who, reliability in choice.reliability.items()}
    gaps = {who: gap for who, gap in gaps.items() if math.isfinite(gap)}
    if name not in gaps:
        return []
    person = choice.reliability[name]
    place = 1 + sum(gap > gaps[name] for gap in gaps.values())
    gap = round(gaps[name], 3)  # as it is shown
    claims = "claims too much" if gap > 0 else "claims too little" if gap < 0 else "claims what is true"
    return [
        f"mean confidence {score(person.confidence)}, right {score(person.accuracy)}: it {claims} "
        f"({signed(gaps[name])}), place {place} of {len(gaps)} from the most overconfident; expected calibration error "
        f"{score(person.error)}"
    ]


def _answers(choice: Choice, name: str) -> list[str]:
    """Prediction sets and abstention."""
    answering, lines = choice.answering, []
    if answering is None:
        return []
    coverage, abstained = ASKED
    if name in answering.coverage.get(coverage, {}):
        lines += [f"sets of 90 % hold the true class of {score(answering.coverage[coverage][name])} of the windows"]
    if name in answering.accuracy.get(abstained, {}) and name in answering.accuracy.get("0", {}):
        lines += [
            f"where a fifth stays unanswered, {score(1 - answering.answered[abstained][name])} of theirs do, and "
            f"{score(answering.accuracy[abstained][name])} of the rest are right, instead of "
            f"{score(answering.accuracy['0'][name])}"
        ]
    return lines
