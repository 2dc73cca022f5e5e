"""Tables and figures of docs/results.md, results_details.md, and leaderboard.md, from committed CSVs:
python -m benchmarks.results [FOLDER] [--page FILE ...]

FOLDER (docs/results) holds peers.csv (`python -m benchmarks.peers`) and results.csv, scores.csv and leakage.csv
(`python -m benchmarks.proof`), in confirmation/ the same of the eight sets of the confirmation, and leaderboard.csv
(`python -m benchmarks.leaderboard --write`); what is missing is left out. Between `<!-- results: NAME -->` and
`<!-- end -->` the page is rewritten; words outside stay. Figures are written beside the CSVs.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from autotransfer.report.statistics import Paired, holm, spread
from autotransfer.report.wording import interval, probability, score, signed
from autotransfer.words import range_words

from . import averages, confirmation, field_tables, leaderboard, overview, played
from .anytime import at_moments, limit_costs
from .changes import changes_table, turned
from .control import control, leakage, penalty, removed, same_settings
from .drawing import figure, forest, strips
from .evidence import Evidence, Scores, both_sides, pairs, pool, read, set_means_of, table_of
from .first_answer import after_the_first_stage
from .inference import over_equal_sets
from .markdown import METHODS, NAMES, NOTHING, differences_table, markdown, with_interval
from .shipped import as_shipped

PART = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
CHANGES = ("penalties", "control", "augmentations", "nuisances")  # parts of changes.csv with a table


# ---- the parts of the page -------------------------------------------------------------------------------------------


def every_score(evidence: Evidence, folder: Path) -> str:
    """Mean, lower quartile and minimum over test subjects of everybody, by data set."""
    rows = []
    together = {f"{NAMES.get(name, name)}, ensemble": scores for name, scores in evidence.ensembles.items()}
    every = {**evidence.ours, **together, **evidence.peers}
    means = [set_means_of(scores) for scores in every.values()]
    best = {dataset: max(column[dataset] for column in means if dataset in column) for dataset in evidence.sets}
    for pipeline, scores in every.items():
        cells = []
        for dataset in evidence.sets:
            if dataset not in scores:
                cells.append("–")
                continue
            people = spread(list(scores[dataset].values()))
            mean = f"**{score(people.mean)}**" if score(people.mean) == score(best[dataset]) else score(people.mean)
            cells.append(f"{mean} · {score(people.lower_quartile)} · {score(people.minimum)}")
        rows.append([NAMES.get(pipeline, pipeline), *cells])
    return markdown(["mean · lower quartile · minimum", *evidence.sets], rows) if rows else NOTHING


def gains(evidence: Evidence, folder: Path) -> str:
    """Every setting's difference to the baseline, by data set, p corrected over the methods of the set."""
    compared = _minus_baseline(evidence)
    rows, drawn = [], []
    for dataset in evidence.sets:
        by_name = {name: by_set[dataset] for name, by_set in compared.items() if dataset in by_set}
        corrected = holm({name: pair.p for name, pair in by_name.items() if name in METHODS})
        for name, pair in by_name.items():
            count = f"{pair.wins} / {pair.ties} / {pair.losses}"
            p = probability(corrected.get(name, pair.p))
            rows.append([dataset, NAMES.get(name, name), signed(pair.mean), interval(pair), count, p])
            drawn.append((f"{dataset}, {NAMES.get(name, name)}", pair))
    if not rows:
        return NOTHING
    drawing = forest(drawn, "difference to the baseline, balanced accuracy")
    heads = ["data set", "", "difference", "95 % interval", "gain / tie / loss", "p"]
    return figure(folder, "gains", drawing, "Gain of every setting on every data set") + "\n" + markdown(heads, rows)


def _minus_baseline(evidence: Evidence) -> dict[str, dict[str, Paired]]:
    base = evidence.ours.get("none", {})
    return {name: pairs(scores, base) for name, scores in evidence.ours.items() if name != "none"}


def together(evidence: Evidence, folder: Path) -> str:
    """Pooled over the data sets: each subject counting once, and each set counting the same."""
    compared = _minus_baseline(evidence)
    once = {name: pool(by_set) for name, by_set in compared.items()}
    corrected = holm({name: people.p for name, people in once.items() if people and name in METHODS})
    rows = []
    for name, people in once.items():
        if people is None:
            continue
        equal = over_equal_sets({dataset: pair.differences for dataset, pair in compared[name].items()})
        raised = sum(pair.first.lower_quartile > pair.second.lower_quartile for pair in compared[name].values())
        rows.append([
            NAMES.get(name, name), str(people.n), signed(people.mean), range_words(people.interval),
            probability(corrected.get(name, people.p)), signed(equal.value), range_words(equal.interval),
            f"{raised} of {len(compared[name])}",
        ])  # fmt: skip
    heads = ["", "subjects", "difference", "95 % interval", "p", "sets weighing the same", "95 % interval",
             "lower quartile raised"]  # fmt: skip
    return markdown(heads, rows) if rows else NOTHING


def censoring(evidence: Evidence, folder: Path) -> str:
    """What is left for censoring itself: the nested choice against the same settings without their penalties, and
    against the nested choice among uncensored settings."""
    free = [
        pairs(known.get("nested", {}), known.get("nested_uncensored", {}))
        for known in (evidence.ours, evidence.ensembles)
    ]
    heads = ["data set", "minus the same without its penalty", "minus the best uncensored", "the same, ensembles"]
    return differences_table(heads, [penalty(evidence), *free])


def ensembles(evidence: Evidence, folder: Path) -> str:
    """What is delivered against the same ensemble of plain networks, and against a single one of its networks."""
    nested = evidence.ensembles.get("nested", {})
    columns = [pairs(nested, evidence.ensembles.get("baseline", {})), pairs(nested, evidence.ours.get("nested", {}))]
    return differences_table(
        ["data set", "nested minus baseline, both ensembles", "nested, ensemble minus single"], columns
    )


def against_peers(evidence: Evidence, folder: Path) -> str:
    """The nested choice minus each peer, by data set: as an ensemble, as it is delivered, and as a single network."""
    both = (("ensemble", evidence.ensembles), ("single", evidence.ours))
    tables = [
        _minus(f"AutoTransfer, nested, {label}, minus", ours.get("nested", {}), evidence.peers, evidence.sets)
        for label, ours in both
    ]
    return "\n".join(filter(None, tables)) or NOTHING


def _minus(head: str, ours: Scores, peers: dict[str, Scores], sets: list[str]) -> str:
    rows = []
    for name, scores in peers.items():
        if by_set := pairs(ours, scores):
            ahead = sum(pair.mean > 0 for pair in by_set.values())
            cells = [with_interval(by_set.get(dataset)) for dataset in sets]
            rows.append([NAMES.get(name, name), *cells, f"{ahead} of {len(by_set)}"])
    return markdown([head, *sets, "ahead"], rows) if rows else ""


# Peers that a new person's unlabelled windows are given to.
ADAPTING = (
    "riemann_recentred", "riemann_templates_recentred", "riemann_running", "riemann_running_file_order", "dann",
    "dann_skada", "coral", "coral_skada",
)  # fmt: skip


def adaptation(evidence: Evidence, folder: Path) -> str:
    """With adaptation to each person (the CSVs in folder/adaptive and folder/transductive), and peers that adapt."""
    ours = {"zero-shot, nested, ensemble": evidence.ensembles.get("nested", {})}
    for kind, place in {"online": "adaptive", "transductive": "transductive"}.items():
        adapted = read(folder / place)
        ours |= {f"{kind}, nested": adapted.ours.get("nested", {})}
        ours |= {f"{kind}, nested, ensemble": adapted.ensembles.get("nested", {})}
    sets = sorted({dataset for name, scores in ours.items() if "zero-shot" not in name for dataset in scores})
    if not sets:
        return NOTHING
    peers = {name: evidence.peers[name] for name in ADAPTING if name in evidence.peers}
    rows = []
    for name, scores in (ours | {NAMES[peer]: scores for peer, scores in peers.items()}).items():
        known = {dataset: spread(list(scores[dataset].values())) for dataset in sets if dataset in scores}
        if known:
            cells = [f"{score(known[d].mean)} · {score(known[d].lower_quartile)}" if d in known else "–" for d in sets]
            rows.append([name, *cells])
    table = markdown(["mean · lower quartile", *sets], rows)
    name = "transductive, nested, ensemble"
    against = _minus(f"{name}, minus", ours[name], peers, sets)
    return f"{table}\n{against}" if against else table


def people(evidence: Evidence, folder: Path) -> str:
    """A figure of every subject's score under a few pipelines."""
    shown = ["none", "nested", "ensemble", "lda", "riemann", "riemann_recentred"]
    every = {**evidence.ours, "ensemble": evidence.ensembles.get("nested", {}), **evidence.peers}
    panels = {
        dataset: [(NAMES.get(name, name), list(every[name][dataset].values())) for name in shown
                  if dataset in every.get(name, {})]
        for dataset in evidence.sets
    }  # fmt: skip
    if not panels:
        return NOTHING
    drawing = strips(panels, "balanced accuracy on the test subject")
    return figure(folder, "people", drawing, "Score of every test subject")


def seeds(evidence: Evidence, folder: Path) -> str:
    """How much the baseline's mean over subjects moves from seed to seed."""
    table = evidence.results
    if not len(table):
        return NOTHING
    baseline = table[table["baseline"] & ~table["control"]]
    means = baseline.groupby(["dataset", "seed"])["test_score"].mean().groupby("dataset")
    rows = [
        [str(dataset), str(len(values)), score(values.mean()), f"{values.std(ddof=1):.3f}" if len(values) > 1 else "–"]
        for dataset, values in means
    ]
    return markdown(["data set", "seeds", "baseline", "standard deviation between seeds"], rows)


def optimism(evidence: Evidence, folder: Path) -> str:
    """How much better a snapshot looks to the subject who chose its epoch than to the other who was held out."""
    if not len(evidence.results):
        return NOTHING
    results = evidence.results[~evidence.results["control"]]
    results = results[results["checkpoint"] != "last"]  # the last epoch was chosen by nobody
    numbers = results[["validation_score", "test_score"]].apply(pd.to_numeric, errors="coerce")
    table = results.assign(gap=numbers["validation_score"] - numbers["test_score"])
    gaps: dict[Any, float] = table.groupby(["method", "dataset"])["gap"].mean().to_dict()
    names = {"none": "uncensored"} | METHODS
    rows = [
        [name, *(signed(gaps[method, d]) if (method, d) in gaps else "–" for d in evidence.sets)]
        for method, name in names.items()
        if any(known == method for known, _ in gaps)
    ]
    return markdown(["validation minus test", *evidence.sets], rows)


def preprocessings(evidence: Evidence, folder: Path) -> str:
    """By validation, what every preprocessing gains over that of the plain network, with the standard error."""
    table = evidence.results
    if not len(table):
        return NOTHING
    prepared = both_sides(table[(table["stage"] == "prepare") & ~table["control"]], "validation")
    means = prepared.reset_index().set_index(["dataset", "subject", "setting"])["score"].unstack("setting")
    cells: dict[str, list[str]] = {}
    for dataset in evidence.sets:
        scores = means.loc[dataset] if dataset in means.index else means.iloc[:0]
        for name in means.columns.drop("baseline", errors="ignore"):
            gap = (scores[name] - scores["baseline"]).dropna()
            cell = f"{signed(gap.mean())} ± {gap.std(ddof=1) / math.sqrt(len(gap)):.3f}" if len(gap) > 1 else "–"
            cells.setdefault(str(name).removeprefix("baseline with "), []).append(cell)
    rows = [[name, *values] for name, values in cells.items()]
    return markdown(["by validation, minus the plain network", *evidence.sets], rows) if rows else NOTHING


PARTS: dict[str, Callable[[Evidence, Path], str]] = {
    "scores": every_score, "people": people, "gains": gains, "together": together, "censoring": censoring,
    "ensembles": ensembles, "adaptation": adaptation, "control": control, "same_settings": same_settings,
    "leakage": leakage, "peers": against_peers, "seeds": seeds, "optimism": optimism, "preprocessings": preprocessings,
    "average_zero_shot": partial(averages.table, mode="zero-shot"),
    "average_transductive": partial(averages.table, mode="transductive"),
    "average_kinds": averages.kinds, "average_one_seed": averages.one_seed, "overview": overview.table,
    "claims": overview.claims, "equivalence": overview.equivalent, "harm": overview.harmed, "ladder": overview.ladder,
    "estimators": overview.estimators,
}  # fmt: skip
OF_ONE_CSV: dict[str, Callable[[Path], str]] = {  # or of a few, but not of the runs of development
    "turned": turned, "played_orders": played.orders, "played_ways": played.methods, "played_twelve": played.twelve,
    "played_labels": played.labels, "removed": removed, "leaderboard": leaderboard.page,
    "anytime": at_moments, "limit_costs": limit_costs, "first_answer": after_the_first_stage,
    "shipped": lambda folder: as_shipped(table_of(folder, "shipped")),
    **{f"changes_{part}": partial(changes_table, part=part) for part in CHANGES},
    **confirmation.PARTS, **field_tables.PARTS,
}  # fmt: skip


def made(part: str, evidence: Evidence, folder: Path) -> str:
    """A part of the page; where its CSVs are missing it says so."""
    try:
        if part in PARTS:
            return PARTS[part](evidence, folder)
        if part in OF_ONE_CSV:
            return OF_ONE_CSV[part](folder)
    except FileNotFoundError:
        return NOTHING
    raise SystemExit(f"the page asks for {part!r}; there are {', '.join((*PARTS, *OF_ONE_CSV))}")


def fill(page: str, evidence: Evidence, folder: Path) -> str:
    """The page with every marked part made anew."""
    return PART.sub(lambda marked: marked[1] + made(marked[2], evidence, folder) + marked[3], page)


def main(arguments: list[str] | None = None) -> None:
    root = Path(__file__).parent.parent / "docs"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=root / "results")
    pages = [root / name for name in ("results.md", "results_details.md", "leaderboard.md")]
    parser.add_argument("--page", type=Path, nargs="+", default=pages)
    options = parser.parse_args(arguments)
    evidence = read(options.folder)
    for page in options.page:
        page.write_text(fill(page.read_text(encoding="utf-8"), evidence, options.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
