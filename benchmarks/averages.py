"""Tables of the average over candidates, from FOLDER/average/{zero-shot,transductive}/scores.csv and the peers."""

from __future__ import annotations

from pathlib import Path

from autotransfer.report.statistics import spread
from autotransfer.report.wording import score, signed

from .evidence import Evidence, Scores, pairs, pool, read, set_means_of
from .markdown import NAMES, NOTHING, best_in_bold, markdown, with_interval

# Peers that see nothing of the test person, and those that see all of their unlabelled windows.
PEERS = {
    "zero-shot": ("lda", "riemann", "riemann_templates"),
    "transductive": ("riemann_recentred", "riemann_templates_recentred", "dann", "coral", "coral_skada"),
}
KINDS = ("eegnet", "shallow", "features", "tangent", "templates")


def table(evidence: Evidence, folder: Path, mode: str) -> str:
    """By data set: the average, the best peer of the set, choosing alone, equal weights and the plain network."""
    run = read(folder / "average" / mode)
    average = run.ours.get("nested", {})
    best = best_peers(evidence.peers, PEERS[mode])
    others = {
        "best peer of the set": {dataset: scores for dataset, (_, scores) in best.items()},
        "choosing alone": run.ours.get("choosing", {}),
        "equal weights": run.ours.get("equal", {}),
        "plain networks, ensemble": run.ensembles.get("baseline", {}),
        "plain network": run.ours.get("none", {}),
    }
    if not average:
        return NOTHING
    rows = []
    for dataset in sorted(average):
        cells = best_in_bold([set_means_of(scores).get(dataset) for scores in (average, *others.values())])
        if dataset in best:
            cells[1] += f" ({NAMES[best[dataset][0]]})"
        both = [scores.get(dataset) for scores in (average, others["plain network"])]
        low = [score(spread(list(people.values())).lower_quartile) if people else "–" for people in both]
        rows.append([dataset, str(len(average[dataset])), *cells, " / ".join(low)])
    gaps = [with_interval(pool(pairs(average, scores))) for scores in others.values()]
    heads = ["", "people", "average, nested", *others, "lower quartile: average / plain network"]
    return markdown(heads, [*rows, ["**average minus this**, all people", "", "", *gaps, ""]])


def one_seed(evidence: Evidence, folder: Path) -> str:
    """The second zero-shot run, the first, and the best peer of each set."""
    second, first = (
        read(folder / "average" / name).ours.get("nested", {}) for name in ("zero-shot-again", "zero-shot")
    )
    if not second:
        return NOTHING
    best = best_peers(evidence.peers, PEERS["zero-shot"])
    others = [first, {dataset: scores for dataset, (_, scores) in best.items()}]
    means = [set_means_of(scores) for scores in (second, *others)]
    rows = [[dataset, *best_in_bold([column.get(dataset) for column in means])] for dataset in sorted(second)]
    gaps = [with_interval(pool(pairs(second, scores))) for scores in others]
    rows.append(["**second minus this**, all people", "", *gaps])
    return markdown(["", "second run, one seed", "first run", "best peer of the set"], rows)


def best_peers(peers: dict[str, Scores], names: tuple[str, ...]) -> dict[str, tuple[str, dict[str, float]]]:
    """By data set, the peer with the highest mean and its scores."""
    best: dict[str, tuple[str, dict[str, float]]] = {}
    for name in names:
        for dataset, scores in peers.get(name, {}).items():
            mean = spread(list(scores.values())).mean
            if dataset not in best or mean > spread(list(best[dataset][1].values())).mean:
                best[dataset] = (name, scores)
    return best


def kinds(evidence: Evidence, folder: Path) -> str:
    """What each kind contributes: the average minus the same without it, by data set."""
    rows = []
    for mode in PEERS:
        run = read(folder / "average" / mode).ours
        average = run.get("nested", {})
        columns = [pairs(average, run.get(f"without_{kind}", {})) for kind in KINDS]
        for dataset in sorted(average):
            rows.append([f"{dataset}, {mode}", *(signed(c[dataset].mean) if dataset in c else "–" for c in columns)])
        if average:
            rows.append([f"**all people, {mode}**", *(with_interval(pool(column)) for column in columns)])
    return markdown(["average minus the average without", *KINDS], rows) if rows else NOTHING
