"""The first page of results: one table over all sets, its figure, how sure each claim is, and what each part adds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import stats

from autotransfer.report.statistics import Paired, holm, spread
from autotransfer.report.wording import interval, probability, score, signed
from autotransfer.runs.csv_tables import read_table

from . import played
from .averages import PEERS, best_peers
from .drawing import forest
from .evidence import Evidence, Scores, pairs, pool, read, set_means_of
from .inference import equivalence_table, harm_table, over_both
from .markdown import NOTHING, by_set_table, markdown

SINGLE = ("CensoredClassifier(channel_mask=0)", "CensoredClassifier()")  # of as_it_comes.csv
LABELS = "5"  # of each class, in the table
# of changes.csv
REFERENCE, PUBLISHED, PENALTY, AUGMENTATION = "shuffled", "as published", "mmd conditional 1 median", "channel_mask 0.1"


def columns(evidence: Evidence, folder: Path) -> dict[str, Scores]:
    """What the table shows, by data set and person."""
    none, all_windows = (read(folder / "average" / mode) for mode in ("zero-shot", "transductive"))
    sets = played.played(folder)
    got = {dataset: played.delivered(own) for dataset, own in sets.items()}
    peers = {
        mode: {dataset: own for dataset, (_, own) in best_peers(evidence.peers, names).items()}
        for mode, names in PEERS.items()
    }
    return {
        "plain network": none.ours.get("none", {}),
        "best peer": peers["zero-shot"],
        "AutoTransfer": none.ours.get("nested", {}),
        "following the person": played.by_set(sets, "adapted", "recorded"),
        "best peer, all windows": peers["transductive"],
        "AutoTransfer, all windows": all_windows.ours.get("nested", {}),
        "own classifier, five labels": played.by_set(sets, "own", LABELS),
        "AutoTransfer, five labels": played.by_set(got, "calibrated", LABELS),
        "zero-shot, played back": played.by_set(sets, "zero_shot", "recorded"),
        "before the five labels": played.by_set(sets, "before", LABELS),
        "choosing one candidate": none.ours.get("choosing", {}),
        "equal weights": none.ours.get("equal", {}),
        "without penalties": none.ours.get("nested_uncensored", {}),
    }


BLOCKS = {  # columns of one block have the same people and windows, so that they can be subtracted
    "Nothing known of the person:": {
        "plain network": "plain network", "best peer": "best of LDA and pyRiemann", "AutoTransfer": "AutoTransfer"},
    "All their unlabelled windows at once:": {
        "best peer, all windows": "best of re-centred pyRiemann, DANN and DeepCORAL",
        "AutoTransfer, all windows": "AutoTransfer"},
    "Window by window in the order of recording, one seed, at most 240 windows of a person:": {
        "zero-shot, played back": "not followed", "following the person": "followed"},
    "Five labelled windows of each class, scored on the windows after them:": {
        "before the five labels": "without labels", "own classifier, five labels": "own classifier",
        "AutoTransfer, five labels": "AutoTransfer, calibrated"},
}  # fmt: skip


def table(evidence: Evidence, folder: Path) -> str:
    """Mean over the people of each set, and the figure of what is gained over the best peer."""
    found = columns(evidence, folder)
    own = found["AutoTransfer"]
    if not own:
        return NOTHING
    gains = pairs(own, found["best peer"])
    rows = [(f"{dataset}, {pair.n} people", pair) for dataset, pair in sorted(gains.items())]
    drawing = forest(rows, "AutoTransfer minus the best shallow peer of the set, balanced accuracy")
    (folder / "ahead.svg").write_text(drawing, encoding="utf-8")
    people = {dataset: len(scores) for dataset, scores in own.items()}
    parts = [
        f"{title}\n\n{by_set_table({head: set_means_of(found[name]) for name, head in block.items()}, people)}"
        for title, block in BLOCKS.items()
    ]
    figure = f"![What is gained over the best shallow peer, person by person]({folder.name}/ahead.svg)\n"
    return "\n".join([*parts, figure])


def estimators(evidence: Evidence, folder: Path) -> str:
    """Both estimators as they come, beside what scikit-learn and pyRiemann have."""
    path = folder / "as_it_comes.csv"
    if not path.exists():
        return NOTHING
    table = read_table(path, dtype={"subject": str, "data": str})
    several = read(folder / "average" / "zero-shot").ours.get("nested", {})
    own = table.groupby(["model", "data"])["score"].mean()
    rows = []
    for dataset in sorted(set(table["data"])):
        peers = [spread(list(evidence.peers[name][dataset].values())).mean for name in ("lda", "riemann")]
        single = [score(float(own[model, dataset])) if (model, dataset) in own.index else "–" for model in SINGLE]
        average = spread(list(several[dataset].values())).mean
        rows.append([dataset, *map(score, peers), *single, score(average)])
    return markdown(["", "LDA", "pyRiemann", *SINGLE, "AutoTransferClassifier()"], rows)


# What was picked on the very scores of a row; candidates and constants were found on some of the sets in every row.
PEER, RULE = "peer picked on these scores", "rule found on these scores"
CLAIMS = {
    "zero-shot, beside the best shallow peer of each set": ("AutoTransfer", "best peer", PEER),
    "zero-shot, beside the plain network": ("AutoTransfer", "plain network", ""),
    "all unlabelled windows, beside the best peer that has them too": (
        "AutoTransfer, all windows", "best peer, all windows", f"{PEER}; second run"),
    "following a person, beside not following them": ("following the person", "zero-shot, played back", RULE),
    "five labels of each class, beside none": ("AutoTransfer, five labels", "before the five labels", RULE),
    "five labels of each class, beside the person's own classifier": (
        "AutoTransfer, five labels", "own classifier, five labels", RULE),
    "averaging, beside choosing one candidate": ("AutoTransfer", "choosing one candidate", ""),
    "found weights, beside equal ones": ("AutoTransfer", "equal weights", ""),
    "with penalties among the candidates, beside without": ("AutoTransfer", "without penalties", ""),
}  # fmt: skip


def claims(evidence: Evidence, folder: Path) -> str:
    """Every claim with people and with sets as the unit, corrected over all of them, and without each set in turn."""
    found = columns(evidence, folder)
    compared = {name: pairs(found[first], found[second]) for name, (first, second, _) in CLAIMS.items()}
    compared = {name: by_set for name, by_set in compared.items() if len(by_set) > 1}
    if not compared:
        return NOTHING
    by_sets = {name: _of_sets(by_set) for name, by_set in compared.items()}
    whole = {name: pool(by_set) for name, by_set in compared.items()}
    people_p = holm({name: one.p for name, one in whole.items() if one})
    sets_p = holm({name: p for name, (_, _, p) in by_sets.items()})
    rows = []
    for name, by_set in compared.items():
        pooled = whole[name]
        assert pooled is not None
        low, high, _ = by_sets[name]
        centre = float(np.mean([pair.mean for pair in by_set.values()]))
        least = [pool({k: p for k, p in by_set.items() if k != dataset}) for dataset in by_set]
        without = [one.mean for one in least if one]
        both = over_both({dataset: pair.differences for dataset, pair in by_set.items()})
        rows.append([
            name, CLAIMS[name][2] or "–", f"{sum(pair.mean > 0 for pair in by_set.values())} of {len(by_set)}",
            f"{signed(pooled.mean)} ({interval(pooled)})", probability(people_p[name]),
            f"{signed(centre)} ({signed(low)} to {signed(high)})", probability(sets_p[name]),
            str(both), f"{signed(min(without))} to {signed(max(without))}",
        ])  # fmt: skip
    heads = ["", "picked", "sets above 0", "people as the unit", "p, Holm", "sets as the unit", "p, Holm",
             "sets, then people", "without any one set, people"]  # fmt: skip
    return markdown(heads, rows)


def equivalent(evidence: Evidence, folder: Path) -> str:
    """Whether what penalties add is less than a hundredth."""
    found = columns(evidence, folder)
    by_set = pairs(found["AutoTransfer"], found["without penalties"])
    if len(by_set) < 2:
        return NOTHING
    name = "penalties among the candidates, thirteen sets of development"
    return equivalence_table({name: {dataset: pair.differences for dataset, pair in by_set.items()}})


def harmed(evidence: Evidence, folder: Path) -> str:
    """How many people lose by what is done for them."""
    found = columns(evidence, folder)
    if not found["AutoTransfer"]:
        return NOTHING
    steps = {
        "AutoTransfer in place of the best shallow peer of the set": ("AutoTransfer", "best peer"),
        "followed as recorded": ("following the person", "zero-shot, played back"),
        "all windows at once, in place of none": ("AutoTransfer, all windows", "AutoTransfer"),
        "5 labels of each class": ("AutoTransfer, five labels", "before the five labels"),
    }
    compared = {name: pairs(found[after], found[before]) for name, (after, before) in steps.items()}
    return harm_table({
        name: {dataset: pair.differences for dataset, pair in by_set.items()}
        for name, by_set in compared.items() if by_set
    })  # fmt: skip


def _of_sets(by_set: Mapping[str, Paired]) -> tuple[float, float, float]:
    """Student's 95 % interval of the mean over sets, and p: people are nested in sets, and new sets are to be met."""
    means = np.array([pair.mean for pair in by_set.values()])
    found = stats.ttest_1samp(means, 0.0)
    low, high = found.confidence_interval(0.95)
    return float(low), float(high), float(found.pvalue)


def ladder(evidence: Evidence, folder: Path) -> str:
    """What each part adds to the one before, on the sets where all were measured."""
    path = folder / "changes.csv"
    found = columns(evidence, folder)
    if not path.exists() or not found["AutoTransfer"]:
        return NOTHING
    changes = read_table(path, dtype={"subject": str, "dataset": str})
    changes = changes[changes["dataset"].isin(found["AutoTransfer"])]

    def changed(name: str) -> Scores:
        own = changes[changes["change"] == name].groupby(["dataset", "subject"])["score"].mean().reset_index()
        scores: Scores = {}
        for row in own.to_dict("records"):
            scores.setdefault(row["dataset"], {})[row["subject"]] = float(row["score"])
        return scores

    trained = changed(REFERENCE)
    steps: list[tuple[str, Scores, Scores]] = [
        ("training: a constant rate, averaged weights", changed(PUBLISHED), found["plain network"]),
        ("preprocessing: units of the training people, scale and log power", trained, changed(PUBLISHED)),
        ("a penalty: conditional MMD of strength 1, in balanced batches", changed(PENALTY), changed("balanced")),
        ("an augmentation: one channel in ten masked", changed(AUGMENTATION), trained),
        ("averaging: one candidate chosen, its networks averaged", found["choosing one candidate"], trained),
        ("kinds: all candidates averaged, networks and closed forms", found["AutoTransfer"],
         found["choosing one candidate"]),
        ("following the person", found["following the person"], found["zero-shot, played back"]),
        ("five labels of each class", found["AutoTransfer, five labels"], found["before the five labels"]),
    ]  # fmt: skip
    rows = []
    for name, after, before in steps:
        by_set = pairs(after, before)
        whole = pool(by_set)
        if whole is not None:
            rows.append([name, str(len(by_set)), str(whole.n), f"{signed(whole.mean)} ({interval(whole)})"])
    return markdown(["", "sets", "people", "adds"], rows)
