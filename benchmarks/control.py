"""The parts of docs/results.md that say whether a censor does what it is for: the control, and leakage."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from autotransfer.censoring import CENSORS
from autotransfer.report.statistics import Paired
from autotransfer.report.wording import signed

from .drawing import arrows, figure
from .evidence import Evidence, Scores, both_sides, pairs, table_of, twins
from .markdown import METHODS, NOTHING, differences_table, markdown, with_interval

BATCHES = {"marginal": "people", "conditional": "balanced"}  # of a mode, and of the network it is compared with


def control(evidence: Evidence, folder: Path) -> str:
    """The nested choice's gain with the true subjects and with shuffled ones, and what only the true ones give."""
    true, shuffled, base = (
        evidence.ours.get("nested", {}), evidence.control.get("nested", {}), evidence.ours.get("none", {})
    )  # fmt: skip
    both = {dataset: people for dataset, people in true.items() if dataset in shuffled}
    if not both:
        return NOTHING
    columns = [
        pairs(both, base),
        pairs(shuffled, evidence.control.get("none", {})),  # the baseline of the control: the same trainings
        pairs(both, shuffled),
    ]
    return differences_table(["data set", "true subjects", "shuffled subjects", "true minus shuffled"], columns)


def penalty(evidence: Evidence) -> dict[str, Paired]:
    """The nested choice of each person minus the same setting without its penalty: windows, training and batches alike.
    By data set."""
    if not len(evidence.results):
        return {}
    results = evidence.results[~evidence.results["control"]].astype({"test_score": float, "test_subject": str})
    known = results.groupby(["dataset", "setting", "test_subject"])["test_score"].mean().to_dict()
    without = twins(results, "uncensored")
    both: tuple[Scores, Scores] = ({}, {})
    for dataset, settings in evidence.nested.items():
        for subject, name in settings.items():
            places = [(dataset, setting, subject) for setting in (name, without.get(name))]
            if all(place in known for place in places):
                for scores, place in zip(both, places, strict=True):
                    scores.setdefault(dataset, {})[subject] = float(known[place])
    return pairs(*both)


def same_settings(evidence: Evidence, folder: Path) -> str:
    """Each method's first setting, by validation with the true subjects, minus the same setting with shuffled ones: the
    same penalty, strength, windows, folds and seeds."""
    if not len(evidence.results) or not evidence.control:
        return NOTHING
    known, shuffled = both_sides(evidence.results, "test"), twins(evidence.results, "shuffled")
    compared = {}
    for method in METHODS:
        settings = evidence.settings.get(method, {})
        other = {dataset: shuffled[name] for dataset, name in settings.items() if name in shuffled}
        compared[method] = pairs(_scores_of(known, settings, control=False), _scores_of(known, other, control=True))
    sets = sorted({dataset for by_set in compared.values() for dataset in by_set})
    rows = [
        [METHODS[method], *(with_interval(by_set.get(dataset)) for dataset in sets)]
        for method, by_set in compared.items()
        if by_set
    ]
    return markdown(["true minus shuffled subjects", *sets], rows) if rows else NOTHING


def _scores_of(known: pd.DataFrame, settings: dict[str, str], *, control: bool) -> Scores:
    """By data set, of the setting that each has."""
    scores: Scores = {}
    for dataset, name in settings.items():
        place = (dataset, control, name)
        if place in known.index:
            people = known.loc[[place]]
            scores[dataset] = dict(zip(people["subject"], people["score"], strict=True))
    return scores


def removed(folder: Path) -> str:
    """What each penalty takes out of the codes and what the score gains, with true and with shuffled people, minus the
    same network in the same batches: a figure and a table, sets weighing the same."""
    table = table_of(folder, "leaking")
    plain = table[table["method"] == "none"]
    changed = _minus_uncensored(table)
    panels = {
        mode: [(method, changed[method, mode, "shuffled"], changed[method, mode, "true"]) for method in CENSORS]
        for mode in BATCHES
    }
    up = "score, balanced accuracy; open dots: shuffled people, filled: true people"
    drawing = arrows(panels, "leakage: how much better a probe reads the person", up)
    alt = "What penalties remove and what it is worth, with true and with shuffled people"
    sides = [(mode, people) for mode in BATCHES for people in ("true", "shuffled")]
    rows = [
        [method, *(", ".join(map(signed, changed[method, mode, people])) for mode, people in sides)]
        for method in CENSORS
    ]
    return (
        f"{figure(folder, 'leaking', drawing, alt)}\nOver {', '.join(sorted(set(table['data'])))}; a network without a "
        f"penalty leaks {plain['leakage'].mean():.2f} (chance {plain['chance'].mean():.2f}).\n\n"
        + markdown(["leakage, score", *(f"{mode}, {people} people" for mode, people in sides)], rows)
    )


def _minus_uncensored(table: pd.DataFrame) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Leakage and score minus those of the network without a penalty, by method, mode and whose people."""
    keys, measured = ["data", "test_subject"], ["leakage", "score"]
    plain = table[table["method"] == "none"].set_index(["mode", *keys])[measured]
    changed = table[table["method"] != "none"].assign(batches=lambda t: t["mode"].map(BATCHES))
    changed = changed.join(plain.add_suffix("_plain"), on=["batches", *keys])
    for name in measured:
        changed[name] -= changed.pop(f"{name}_plain")
    groups = ["method", "mode", "people"]
    means = changed.groupby([*groups, "data"])[measured].mean().groupby(groups).mean().reset_index()
    return {
        (row["method"], row["mode"], row["people"]): (row["leakage"], row["score"]) for row in means.to_dict("records")
    }


def leakage(evidence: Evidence, folder: Path) -> str:
    """How well a probe reads the subject from the code: of the baseline, and of the chosen setting with and without its
    censor."""
    if not len(evidence.leakage):
        return NOTHING
    rows = []
    means = evidence.leakage.groupby(["dataset", "control", "role"])[["accuracy", "chance", "bits"]].mean()
    for dataset, is_control in dict.fromkeys(index[:2] for index in means.index):
        roles = means.loc[(dataset, is_control)]
        cells = {role: f"{roles.loc[role, 'accuracy']:.3f}, {roles.loc[role, 'bits']:.2f} bits" for role in roles.index}
        name = f"{dataset}, shuffled subjects" if is_control else dataset
        chosen = cells.get("chosen", "the baseline was chosen")
        plain, uncensored = (cells.get(role, "–") for role in ("baseline", "uncensored"))
        rows.append([name, plain, uncensored, chosen, f"{roles['chance'].iloc[0]:.3f}"])
    return markdown(["data set", "baseline", "as chosen, without the censor", "chosen setting", "chance"], rows)
