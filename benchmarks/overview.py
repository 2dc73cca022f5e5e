"""The first page of results: one table over all sets, its figure, how sure each claim is, and what each part adds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import stats

from autotransfer.report.statistics import holm, spread
from autotransfer.report.wording import probability, score, signed

from . import played
from .averages import PEERS, best_peers
from .drawing import figure, forest
from .evidence import Evidence, Scores, differences, pairs, pool, read, scores_by, set_means_of, table_of
from .inference import Mean, ahead_on, equivalence_table, harm_table, over_both
from .markdown import by_set_table, markdown, with_interval

SINGLE = ("CensoredClassifier(channel_mask=0)", "CensoredClassifier()")  # of as_it_comes.csv
LABELS = "5"  # of each class, in the table
# of changes.csv
REFERENCE, PUBLISHED, PENALTY, AUGMENTATION = "shuffled", "as published", "mmd conditional 1 median", "channel_mask 0.1"


def columns(evidence: Evidence, folder: Path) -> dict[str, Scores]:
    """What the table shows, by data set and person."""
    none, all_windows = (read(folder / "average" / mode).ours for mode in ("zero-shot", "transductive"))
    sets = played.played(folder)
    got = {dataset: played.delivered(scores) for dataset, scores in sets.items()}
    peers = {
        mode: {dataset: people for dataset, (_, people) in best_peers(evidence.peers, names).items()}
        for mode, names in PEERS.items()
    }
    return {
        "plain network": none["none"],
        "best peer": peers["zero-shot"],
        "AutoTransfer": none["nested"],
        "following the person": played.by_set(sets, "adapted", "recorded"),
        "best peer, all windows": peers["transductive"],
        "AutoTransfer, all windows": all_windows["nested"],
        "own classifier, five labels": played.by_set(sets, "own", LABELS),
        "AutoTransfer, five labels": played.by_set(got, "calibrated", LABELS),
        "zero-shot, played back": played.by_set(sets, "zero_shot", "recorded"),
        "before the five labels": played.by_set(sets, "before", LABELS),
        "choosing one candidate": none["choosing"],
        "equal weights": none["equal"],
        "without penalties": none["nested_uncensored"],
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
    scores = columns(evidence, folder)
    gains = pairs(scores["AutoTransfer"], scores["best peer"])
    rows = [(f"{dataset}, {pair.n} people", pair) for dataset, pair in sorted(gains.items())]
    drawing = forest(rows, "AutoTransfer minus the best shallow peer of the set, balanced accuracy")
    people = {dataset: len(by_person) for dataset, by_person in scores["AutoTransfer"].items()}
    parts = [
        f"{title}\n\n{by_set_table({head: set_means_of(scores[name]) for name, head in block.items()}, people)}"
        for title, block in BLOCKS.items()
    ]
    alt = "What is gained over the best shallow peer, person by person"
    return "\n".join([*parts, figure(folder, "ahead", drawing, alt)])


def estimators(evidence: Evidence, folder: Path) -> str:
    """Both estimators as they come, and what scikit-learn and pyRiemann have."""
    table = table_of(folder, "as_it_comes")
    several = read(folder / "average" / "zero-shot").ours.get("nested", {})
    means = table.groupby(["model", "data"])["score"].mean()
    rows = []
    for dataset in sorted(set(table["data"])):
        peers = [spread(list(evidence.peers[name][dataset].values())).mean for name in ("lda", "riemann")]
        single = [score(float(means[model, dataset])) if (model, dataset) in means.index else "–" for model in SINGLE]
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
    scores = columns(evidence, folder)
    compared = {name: pairs(scores[first], scores[second]) for name, (first, second, _) in CLAIMS.items()}
    compared = {name: by_set for name, by_set in compared.items() if len(by_set) > 1}
    # People are nested in sets, and new sets are to be met: Student's t over the means of sets.
    tests = {name: stats.ttest_1samp([pair.mean for pair in by_set.values()], 0.0) for name, by_set in compared.items()}
    whole = {name: pooled for name, by_set in compared.items() if (pooled := pool(by_set)) is not None}
    people_p = holm({name: pooled.p for name, pooled in whole.items()})
    sets_p = holm({name: float(test.pvalue) for name, test in tests.items()})
    rows = []
    for name, by_set in compared.items():
        gaps = {dataset: pair.differences for dataset, pair in by_set.items()}
        low, high = map(float, tests[name].confidence_interval(0.95))
        centre = float(np.mean([pair.mean for pair in by_set.values()]))
        others = (pool({k: pair for k, pair in by_set.items() if k != dataset}) for dataset in by_set)
        without = [pooled.mean for pooled in others if pooled]
        rows.append([
            name, CLAIMS[name][2] or "–", ahead_on(gaps),
            with_interval(whole[name]), probability(people_p[name]),
            str(Mean(centre, (low, high))), probability(sets_p[name]),
            str(over_both(gaps)), f"{signed(min(without))} to {signed(max(without))}",
        ])  # fmt: skip
    heads = ["", "picked", "sets above 0", "people as the unit", "p, Holm", "sets as the unit", "p, Holm",
             "sets, then people", "without any one set, people"]  # fmt: skip
    return markdown(heads, rows)


def equivalent(evidence: Evidence, folder: Path) -> str:
    """Whether what penalties add is less than a hundredth."""
    scores = columns(evidence, folder)
    name = "penalties among the candidates, thirteen sets of development"
    return equivalence_table({name: differences(scores["AutoTransfer"], scores["without penalties"])})


def harmed(evidence: Evidence, folder: Path) -> str:
    """How many people lose by what is done for them."""
    scores = columns(evidence, folder)
    steps = {
        "AutoTransfer in place of the best shallow peer of the set": ("AutoTransfer", "best peer"),
        "followed as recorded": ("following the person", "zero-shot, played back"),
        "all windows at once, in place of none": ("AutoTransfer, all windows", "AutoTransfer"),
        "5 labels of each class": ("AutoTransfer, five labels", "before the five labels"),
    }
    return harm_table({name: differences(scores[after], scores[before]) for name, (after, before) in steps.items()})


def ladder(evidence: Evidence, folder: Path) -> str:
    """What each part adds to the one before, on the sets where all were measured."""
    changes, scores = table_of(folder, "changes"), columns(evidence, folder)
    changes = changes[changes["dataset"].isin(scores["AutoTransfer"])].sort_values(["dataset", "subject"])
    changed: dict[str, Scores] = scores_by(changes, "change", "dataset", "subject")
    trained, published, chosen = changed[REFERENCE], changed[PUBLISHED], scores["choosing one candidate"]
    steps: list[tuple[str, Scores, Scores]] = [
        ("training: a constant rate, averaged weights", published, scores["plain network"]),
        ("preprocessing: units of the training people, scale and log power", trained, published),
        ("a penalty: conditional MMD of strength 1, in balanced batches", changed[PENALTY], changed["balanced"]),
        ("an augmentation: one channel in ten masked", changed[AUGMENTATION], trained),
        ("averaging: one candidate chosen, its networks averaged", chosen, trained),
        ("kinds: all candidates averaged, networks and closed forms", scores["AutoTransfer"], chosen),
        ("following the person", scores["following the person"], scores["zero-shot, played back"]),
        ("five labels of each class", scores["AutoTransfer, five labels"], scores["before the five labels"]),
    ]
    rows = []
    for name, after, before in steps:
        by_set = pairs(after, before)
        whole = pool(by_set)
        if whole is not None:
            rows.append([name, str(len(by_set)), str(whole.n), with_interval(whole)])
    return markdown(["", "sets", "people", "adds"], rows)
