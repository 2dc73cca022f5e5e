"""The parts of docs/results.md that say what people gain once they use a model, from FOLDER/average/playback.csv
(`python -m benchmarks.proof`).

Rows show what people get: how a model adapts, and whether it calibrates with so many labels, is decided by everybody
else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotransfer.person.adaptation import ADAPTATION_METHODS
from autotransfer.person.calibration import LABELS
from autotransfer.report.statistics import spread
from autotransfer.report.wording import score, share, signed
from autotransfer.search.following import Followed, chosen
from autotransfer.search.playback import ORDERS, PEOPLE, calibrates

from .drawing import curves, figure
from .evidence import Scores, pairs, pool, read, scores_by, table_of
from .markdown import NOTHING, best_in_bold, markdown, with_interval

Played = dict[str, dict[str, dict[str, float]]]  # what is done -> in which case -> person -> score


def played(folder: Path) -> dict[str, Played]:
    """By data set, on the sets of development."""
    return played_in(folder / "average")


def played_in(folder: Path) -> dict[str, Played]:
    return scores_by(table_of(folder, "playback"), "dataset", "what", "case", "subject")


def delivered(played: Played) -> Played:
    """`calibrated` as people get it: with a number of labels by which others did not gain, nothing is changed."""
    got: dict[str, dict[str, float]] = {}
    for person in played["zero_shot"]["recorded"]:
        before, after = (
            {case: {name: v for name, v in scores.items() if name != person} for case, scores in played[what].items()}
            for what in ("before", "calibrated")
        )
        helped = calibrates(before, after)
        for labels in map(str, LABELS):
            if person in played["calibrated"].get(labels, {}):
                chosen = played["calibrated" if int(labels) in helped else "before"]
                got.setdefault(labels, {})[person] = chosen[labels][person]
    return {"calibrated": got}


def orders_in(sets: dict[str, Played]) -> list[str]:
    """Orders of the windows that all of these sets were played in: tables of earlier versions have fewer."""
    return [order for order in ORDERS if sets and all(order in scores["zero_shot"] for scores in sets.values())]


def by_set(sets: dict[str, Played], what: str, case: str) -> Scores:
    """What people of each set score in one case."""
    return {dataset: scores[what][case] for dataset, scores in sets.items() if case in scores.get(what, {})}


def orders(folder: Path) -> str:
    """What following a person without labels gains, by data set and order of their windows."""
    sets = played(folder)
    whole = read(folder / "average" / "transductive").ours.get("nested", {})
    shown = orders_in(sets)
    gains = {order: pairs(by_set(sets, "adapted", order), by_set(sets, "zero_shot", order)) for order in shown}
    rows = []
    for dataset in sorted(sets):
        before, after = (
            spread(list(tables["recorded"].values()))
            for tables in (sets[dataset]["zero_shot"], sets[dataset]["adapted"])
        )
        cells = [signed(gains[order][dataset].mean) for order in shown]
        least = f"{score(before.lower_quartile)} / {score(after.lower_quartile)}"
        knowing = score(float(np.mean(list(whole[dataset].values())))) if dataset in whole else "–"
        rows.append([dataset, str(before.n), score(before.mean), *cells, least, knowing])
    pooled = [with_interval(pool(gains[order])) for order in shown]
    people = sum(len(scores["zero_shot"]["recorded"]) for scores in sets.values())
    rows.append(["**all people**", str(people), "", *pooled, "", ""])
    heads = ["", "people", "zero-shot", *(f"adapted, {order}" for order in shown)]
    heads += ["lower quartile, recorded: zero-shot / adapted", "transductive"]
    return markdown(heads, rows)


def methods(folder: Path) -> str:
    """What each adaptation method gains with all of its correction, and the one that others choose."""
    sets = played(folder)
    rows, shown = [], orders_in(sets)
    for method in (*ADAPTATION_METHODS, "adapted"):
        gains = {order: pairs(by_set(sets, method, order), by_set(sets, "zero_shot", order)) for order in shown}
        if not gains.get("recorded"):
            continue
        least, dataset, order = min((pair.mean, d, order) for order in gains for d, pair in gains[order].items())
        cells = [with_interval(pool(gains[order])) for order in shown]
        name = "as others choose" if method == "adapted" else method
        rows.append([name, *cells, f"{signed(least)} ({dataset}, {order})"])
    heads = ["way", *shown, "worst set and order"]
    return markdown(heads, rows) if len(rows) > 1 else NOTHING


DRAWS = 500  # of the people who are played back


def twelve(folder: Path) -> str:
    """What following gains where, as in a run, twelve people decide how, and others are followed: twelve drawn at
    random from each set with more, the rest scored, the mean over draws; of development and of the confirmation."""
    sets = {**played(folder), **played_in(folder / "confirmation")}
    sets = {
        dataset: scores for dataset, scores in sorted(sets.items())
        if len(scores["zero_shot"]["recorded"]) > PEOPLE and not set(ADAPTATION_METHODS).isdisjoint(scores)
    }  # fmt: skip
    rows, every, shown = [], [], orders_in(sets)
    for dataset, scores in sets.items():
        gains, method, often = _decided_by_twelve(scores, shown)
        every.append(gains)
        people = len(scores["zero_shot"]["recorded"])
        rows.append([dataset, str(people), *map(signed, gains), f"{method} ({share(often)})"])
    if not rows:
        return NOTHING
    rows.append(["mean over sets", "", *map(signed, np.mean(every, 0)), ""])
    return markdown(["twelve decide, the others are followed", "people", *shown, "way chosen most often"], rows)


def _draws(scores: Played, orders: Sequence[str]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The method that twelve people choose, and the places of the others, again and again."""
    names = list(scores["zero_shot"]["recorded"])
    before = np.array([[scores["zero_shot"][order][name] for order in orders] for name in names])
    by_method = [scores.get(method, scores["zero_shot"]) for method in ADAPTATION_METHODS]  # runs had not all of them
    after = np.array([[[one[order][name] for order in orders] for one in by_method] for name in names])
    people = [Followed(*both) for both in zip(before, after, strict=True)]
    generator = np.random.default_rng(0)
    for _ in range(DRAWS):
        places = generator.permutation(len(names))
        yield chosen([people[place] for place in places[:PEOPLE]]), places[PEOPLE:]


def _decided_by_twelve(scores: Played, orders: Sequence[str]) -> tuple[NDArray[np.float64], str, float]:
    """Mean gain by order (orders,), the method that most draws chose, and in which share of them."""
    names, total, often = list(scores["zero_shot"]["recorded"]), np.zeros(len(orders)), Counter[str]()
    for method, others in _draws(scores, orders):
        often[method] += 1
        if method in ADAPTATION_METHODS:
            for place, order in enumerate(orders):
                before, after = scores["zero_shot"][order], scores[method][order]
                total[place] += np.mean([after[names[k]] - before[names[k]] for k in others]) / DRAWS
    method, times = often.most_common(1)[0]
    return total, method, times / DRAWS


def labels(folder: Path) -> str:
    """Calibrated with a few labels of each class, the model as it was, and a classifier of the person alone."""
    sets = played(folder)
    got = {dataset: delivered(scores) for dataset, scores in sets.items()}
    cases = [str(number) for number in LABELS]
    rows = []
    for dataset in sorted(sets):
        scores, cells = sets[dataset], []
        for case in cases:
            tables = [scores["before"].get(case), got[dataset]["calibrated"].get(case), scores.get("own", {}).get(case)]
            spreads = [spread(list(table.values())) if table else None for table in tables]
            means = best_in_bold([people.mean if people else None for people in spreads])
            quartile = f" · {score(spreads[1].lower_quartile)}" if spreads[1] else ""
            cells.append(" / ".join(means) + quartile)
        rows.append([dataset, *cells])
    for name, other in {"calibrated minus zero-shot": "before", "calibrated minus own classifier": "own"}.items():
        whole = [pool(pairs(by_set(got, "calibrated", case), by_set(sets, other, case))) for case in cases]
        rows.append([f"**{name}**, all people", *map(with_interval, whole)])
    whole_sets = {dataset for dataset, scores in sets.items() if all(case in scores["before"] for case in cases)}
    lines = {
        name: [_level(by_set(tables, what, case), whole_sets) for case in cases]
        for name, tables, what in (
            ("calibrated", got, "calibrated"), ("zero-shot", sets, "before"), ("own classifier", sets, "own")
        )
    }  # fmt: skip
    drawing = curves(list(LABELS), lines, "labelled windows of each class", "balanced accuracy, mean over sets")
    heads = ["zero-shot / calibrated / own classifier · lower quartile, calibrated",
             *(f"{case} label{'s' * (case != '1')}" for case in cases)]  # fmt: skip
    return f"{figure(folder, 'labels', drawing, 'Score by the number of labels')}\n{markdown(heads, rows)}"


def _level(scores: Scores, sets: set[str]) -> float:
    """The mean over these sets."""
    return float(np.mean([np.mean(list(people.values())) for dataset, people in scores.items() if dataset in sets]))
