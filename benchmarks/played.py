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
from autotransfer.report.pooled import Pooled
from autotransfer.report.statistics import spread
from autotransfer.report.wording import interval, score, share, signed
from autotransfer.runs.csv_tables import read_table
from autotransfer.search.following import Followed, chosen
from autotransfer.search.playback import ORDERS, PEOPLE, calibrates

from .drawing import curves
from .evidence import Evidence, Scores, pairs, pool, read
from .markdown import NOTHING, best_in_bold, markdown

Played = dict[str, dict[str, dict[str, float]]]  # what is done -> in which case -> person -> score


def played(folder: Path) -> dict[str, Played]:
    """By data set, on the sets of development."""
    return played_in(folder / "average" / "playback.csv")


def played_in(path: Path) -> dict[str, Played]:
    """By data set; nothing where there is no such file."""
    found: dict[str, Played] = {}
    if path.exists():
        for row in read_table(path, dtype={"subject": str, "dataset": str, "case": str}).to_dict("records"):
            own = found.setdefault(row["dataset"], {}).setdefault(row["what"], {})
            own.setdefault(row["case"], {})[row["subject"]] = float(row["score"])
    return found


def delivered(own: Played) -> Played:
    """`calibrated` as people get it: with a number of labels by which others did not gain, nothing is changed."""
    got: dict[str, dict[str, float]] = {}
    for person in own["zero_shot"]["recorded"]:
        before, after = (
            {case: {name: v for name, v in scores.items() if name != person} for case, scores in own[what].items()}
            for what in ("before", "calibrated")
        )
        helped = calibrates(before, after)
        for labels in map(str, LABELS):
            if person in own["calibrated"].get(labels, {}):
                chosen = own["calibrated" if int(labels) in helped else "before"]
                got.setdefault(labels, {})[person] = chosen[labels][person]
    return {"calibrated": got}


def orders_in(sets: dict[str, Played]) -> list[str]:
    """Orders of the windows that all of these sets were played in: tables of earlier versions have fewer."""
    return [order for order in ORDERS if sets and all(order in own["zero_shot"] for own in sets.values())]


def by_set(sets: dict[str, Played], what: str, case: str) -> Scores:
    """What people of each set score in one case."""
    return {dataset: own[what][case] for dataset, own in sets.items() if case in own.get(what, {})}


def _told(pair: Pooled | None) -> str:
    return f"{signed(pair.mean)} ({interval(pair)})" if pair else "–"


def orders(evidence: Evidence, folder: Path) -> str:
    """What following a person without labels gains, by data set and order of their windows."""
    sets = played(folder)
    if not sets:
        return NOTHING
    whole = read(folder / "average" / "transductive").ours.get("nested", {})
    shown = orders_in(sets)
    gains = {order: pairs(by_set(sets, "adapted", order), by_set(sets, "zero_shot", order)) for order in shown}
    rows = []
    for dataset in sorted(sets):
        before, after = (
            spread(list(tables["recorded"].values()))
            for tables in (sets[dataset]["zero_shot"], sets[dataset]["adapted"])
        )
        told = [signed(gains[order][dataset].mean) for order in shown]
        least = f"{score(before.lower_quartile)} / {score(after.lower_quartile)}"
        knowing = score(float(np.mean(list(whole[dataset].values())))) if dataset in whole else "–"
        rows.append([dataset, str(before.n), score(before.mean), *told, least, knowing])
    pooled = [_told(pool(gains[order])) for order in shown]
    people = sum(len(own["zero_shot"]["recorded"]) for own in sets.values())
    rows.append(["**all people**", str(people), "", *pooled, "", ""])
    heads = ["", "people", "zero-shot", *(f"adapted, {order}" for order in shown)]
    heads += ["lower quartile, recorded: zero-shot / adapted", "transductive"]
    return markdown(heads, rows)


def ways(evidence: Evidence, folder: Path) -> str:
    """What each way of following a person gains with all of its correction, beside the one that others choose."""
    sets = played(folder)
    rows, shown = [], orders_in(sets)
    for way in (*ADAPTATION_METHODS, "adapted"):
        gains = {order: pairs(by_set(sets, way, order), by_set(sets, "zero_shot", order)) for order in shown}
        if not gains.get("recorded"):
            continue
        worst = min((pair.mean, dataset, order) for order, own in gains.items() for dataset, pair in own.items())
        rows.append(["as others choose" if way == "adapted" else way, *(_told(pool(gains[order])) for order in shown),
                     f"{signed(worst[0])} ({worst[1]}, {worst[2]})"])  # fmt: skip
    heads = ["way", *shown, "worst set and order"]
    return markdown(heads, rows) if len(rows) > 1 else NOTHING


DRAWS = 500  # of the people who are played back


def twelve(evidence: Evidence, folder: Path) -> str:
    """What following gains where, as in a run, twelve people decide how, and others are followed: twelve drawn at
    random from each set with more, the rest scored, the mean over draws; of development and of the confirmation."""
    sets = {**played(folder), **played_in(folder / "confirmation" / "playback.csv")}
    sets = {
        dataset: own for dataset, own in sorted(sets.items())
        if len(own["zero_shot"]["recorded"]) > PEOPLE and set(ADAPTATION_METHODS) <= set(own)
    }  # fmt: skip
    rows, every, shown = [], [], orders_in(sets)
    for dataset, own in sets.items():
        gains, way, often = _decided_by_twelve(own, shown)
        every.append(gains)
        people = len(own["zero_shot"]["recorded"])
        rows.append([dataset, str(people), *map(signed, gains), f"{way} ({share(often)})"])
    if not rows:
        return NOTHING
    rows.append(["mean over sets", "", *map(signed, np.mean(every, 0)), ""])
    return markdown(["twelve decide, the others are followed", "people", *shown, "way chosen most often"], rows)


def _draws(own: Played, orders: Sequence[str]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The way that twelve people choose, and the places of the others, again and again."""
    names = list(own["zero_shot"]["recorded"])
    before = np.array([[own["zero_shot"][order][name] for order in orders] for name in names])
    ways = np.array([[[own[way][order][name] for order in orders] for way in ADAPTATION_METHODS] for name in names])
    people = [Followed(*one) for one in zip(before, ways, strict=True)]
    generator = np.random.default_rng(0)
    for _ in range(DRAWS):
        places = generator.permutation(len(names))
        yield chosen([people[place] for place in places[:PEOPLE]]), places[PEOPLE:]


def _decided_by_twelve(own: Played, orders: Sequence[str]) -> tuple[NDArray[np.float64], str, float]:
    """Mean gain by order (orders,), the way that most draws chose, and in which share of them."""
    names, total, often = list(own["zero_shot"]["recorded"]), np.zeros(len(orders)), Counter[str]()
    for way, others in _draws(own, orders):
        often[way] += 1
        if way in ADAPTATION_METHODS:
            for place, order in enumerate(orders):
                gains = [own[way][order][names[k]] - own["zero_shot"][order][names[k]] for k in others]
                total[place] += np.mean(gains) / DRAWS
    way, times = often.most_common(1)[0]
    return total, way, times / DRAWS


def labels(evidence: Evidence, folder: Path) -> str:
    """Calibrated with a few labels of each class, beside the model as it was and the person's own classifier."""
    sets = played(folder)
    if not sets:
        return NOTHING
    got = {dataset: delivered(own) for dataset, own in sets.items()}
    cases = [str(number) for number in LABELS]
    rows = []
    for dataset in sorted(sets):
        own, cells = sets[dataset], []
        for case in cases:
            tables = [own["before"].get(case), got[dataset]["calibrated"].get(case), own.get("own", {}).get(case)]
            found = [spread(list(table.values())) if table else None for table in tables]
            means = best_in_bold([one.mean if one else None for one in found])
            quartile = f" · {score(found[1].lower_quartile)}" if found[1] else ""
            cells.append(" / ".join(means) + quartile)
        rows.append([dataset, *cells])
    for name, other in {"calibrated minus zero-shot": "before", "calibrated minus own classifier": "own"}.items():
        whole = [pool(pairs(by_set(got, "calibrated", case), by_set(sets, other, case))) for case in cases]
        rows.append([f"**{name}**, all people", *map(_told, whole)])
    whole_sets = {dataset for dataset, own in sets.items() if all(case in own["before"] for case in cases)}
    lines = {
        name: [_level(by_set(tables, what, case), whole_sets) for case in cases]
        for name, tables, what in (
            ("calibrated", got, "calibrated"),
            ("zero-shot", sets, "before"),
            ("own classifier", sets, "own"),
        )
    }
    drawing = curves(list(LABELS), lines, "labelled windows of each class", "balanced accuracy, mean over sets")
    (folder / "labels.svg").write_text(drawing, encoding="utf-8")
    heads = ["zero-shot / calibrated / own classifier · lower quartile, calibrated",
             *(f"{case} label{'s' * (case != '1')}" for case in cases)]  # fmt: skip
    return f"![Score by the number of labels]({folder.name}/labels.svg)\n\n" + markdown(heads, rows)


def _level(scores: Scores, sets: set[str]) -> float:
    """The mean over these sets."""
    return float(np.mean([np.mean(list(own.values())) for dataset, own in scores.items() if dataset in sets]))
