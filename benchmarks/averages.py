"""Tables of the average over candidates, from FOLDER/average/{zero-shot,transductive}/scores.csv and the peers."""

from __future__ import annotations

from pathlib import Path

from autotransfer.report.statistics import spread
from autotransfer.report.wording import interval, score, signed

from .evidence import Evidence, Scores, pairs, pool, read, set_means_of
from .markdown import NAMES, NOTHING, best_in_bold, markdown

# Peers that see nothing of the test person, and those that see all of their unlabelled windows.
PEERS = {
    "zero-shot": ("lda", "riemann", "riemann_templates"),
    "transductive": ("riemann_recentred", "riemann_templates_recentred", "dann", "coral", "coral_skada"),
}
KINDS = ("eegnet", "shallow", "features", "tangent", "templates")


def zero_shot(evidence: Evidence, folder: Path) -> str:
    return _table(evidence, folder, "zero-shot")


def transductive(evidence: Evidence, folder: Path) -> str:
    return _table(evidence, folder, "transductive")


def _table(evidence: Evidence, folder: Path, mode: str) -> str:
    """By data set: the average beside the best peer of the set, choosing alone, equal weights and the plain network."""
    found = read(folder / "average" / mode)
    own = found.ours.get("nested", {})
    best = best_peers(evidence.peers, PEERS[mode])
    beside = {
        "best peer of the set": {dataset: scores for dataset, (_, scores) in best.items()},
        "choosing alone": found.ours.get("choosing", {}),
        "equal weights": found.ours.get("equal", {}),
        "plain networks, ensemble": found.ensembles.get("baseline", {}),
        "plain network": found.ours.get("none", {}),
    }
    if not own:
        return NOTHING
    rows = []
    for dataset in sorted(own):
        told = best_in_bold([set_means_of(scores).get(dataset) for scores in (own, *beside.values())])
        if dataset in best:
            told[1] += f" ({NAMES[best[dataset][0]]})"
        quartiles = [own[dataset], beside["plain network"].get(dataset, {})]
        low = [score(spread(list(one.values())).lower_quartile) if one else "–" for one in quartiles]
        rows.append([dataset, str(len(own[dataset])), *told, " / ".join(low)])
    ahead = ["**average minus this**, all people", "", ""]
    for scores in beside.values():
        whole = pool(pairs(own, scores))
        ahead.append(f"{signed(whole.mean)} ({interval(whole)})" if whole else "–")
    heads = ["", "people", "average, nested", *beside, "lower quartile: average / plain network"]
    return markdown(heads, [*rows, [*ahead, ""]])


def one_seed(evidence: Evidence, folder: Path) -> str:
    """The second zero-shot run, beside the first and the best peer of each set."""
    runs = [read(folder / "average" / name).ours.get("nested", {}) for name in ("zero-shot-again", "zero-shot")]
    best = best_peers(evidence.peers, PEERS["zero-shot"])
    columns = [*runs, {dataset: scores for dataset, (_, scores) in best.items()}]
    if not runs[0]:
        return NOTHING
    means = [set_means_of(column) for column in columns]
    rows = [[dataset, *best_in_bold([own.get(dataset) for own in means])] for dataset in sorted(runs[0])]
    gaps = [pool(pairs(runs[0], column)) for column in columns[1:]]
    rows.append(
        ["**second minus this**, all people", "", *(f"{signed(g.mean)} ({interval(g)})" if g else "–" for g in gaps)]
    )
    return markdown(["", "second run, one seed", "first run", "best peer of the set"], rows)


def best_peers(peers: dict[str, Scores], names: tuple[str, ...]) -> dict[str, tuple[str, dict[str, float]]]:
    """By data set, the peer with the highest mean and its scores."""
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for name in names:
        for dataset, scores in peers.get(name, {}).items():
            mean = spread(list(scores.values())).mean
            if dataset not in found or mean > spread(list(found[dataset][1].values())).mean:
                found[dataset] = (name, scores)
    return found


def kinds(evidence: Evidence, folder: Path) -> str:
    """What each kind contributes: the average minus the same without it, by data set."""
    rows = []
    for mode in PEERS:
        found = read(folder / "average" / mode)
        own = found.ours.get("nested", {})
        columns = [pairs(own, found.ours.get(f"without_{kind}", {})) for kind in KINDS]
        for dataset in sorted(own):
            rows.append([f"{dataset}, {mode}", *(signed(c[dataset].mean) if dataset in c else "–" for c in columns)])
        whole = [pool(column) for column in columns]
        if own:
            told = [f"{signed(one.mean)} ({interval(one)})" if one else "–" for one in whole]
            rows.append([f"**all people, {mode}**", *told])
    return markdown(["average minus the average without", *KINDS], rows) if rows else NOTHING
