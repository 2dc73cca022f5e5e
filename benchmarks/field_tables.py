"""Tables of docs/results.md on peers of the field, from field.csv (`python -m benchmarks.field`) and shipped.csv."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from autotransfer.report.wording import score

from .evidence import Scores, differences, pairs, scores_by, set_means_of, table_of
from .field_peers import PEERS
from .inference import ahead_on, over_both, over_people, over_sets
from .markdown import NOTHING, by_set_table, markdown
from .shipped import FIXED

OURS = "AutoTransfer"
SIMPLE = "best simple model of the run"
SIGNALS = {"eeg": "EEG", "emg": "EMG", "ecg": "ECG", "wear": "Wearables", "imu": "Wearables"}  # by names of sets
ADAPTATIONS = {"zero-shot": "nothing known of the person", "transductive": "all their unlabelled windows"}

Columns = dict[str, Scores]  # by name; ours first


def measured(folder: Path) -> dict[str, Columns]:
    """By adaptation: ours, the best simple model of each run, and every peer of the field, on the sets that have both a
    run and a peer that is complete: everybody whom the run scored."""
    shipped, field = table_of(folder, "shipped"), table_of(folder, "field")
    return {adaptation: _columns(shipped, field, adaptation) for adaptation in ADAPTATIONS}


def _columns(shipped: pd.DataFrame, field: pd.DataFrame, adaptation: str) -> Columns:
    runs = {
        str(data): people.set_index("subject")
        for data, people in shipped[shipped["adaptation"] == adaptation].groupby("data")
    }
    columns = ["peer", "set", "person"]
    field = field[(field["adaptation"] == adaptation) & field["set"].isin(list(runs))].sort_values(columns)
    peers: Columns = {
        peer: {data: people for data, people in scores.items() if set(people) >= set(runs[data].index)}
        for peer, scores in scores_by(field, *columns).items()
    }
    sets = {data for scores in peers.values() for data in scores}
    ours = {data: _by_person(runs[data]["score"]) for data in sorted(sets)}
    simple: Scores = {}
    for data in sorted(sets):
        numbers = runs[data].drop(columns=[name for name in FIXED if name in runs[data]])
        numbers = numbers.apply(pd.to_numeric, errors="coerce").dropna(axis=1)
        if numbers.shape[1]:
            simple[data] = _by_person(numbers[numbers.mean().idxmax()])
    return {OURS: ours, SIMPLE: simple} | {peer: scores for peer, scores in peers.items() if scores}


def _by_person(column: pd.Series[float]) -> dict[str, float]:
    return {str(person): float(value) for person, value in zip(column.index, column, strict=True)}


def ahead(folder: Path) -> str:
    """Every peer whose mean on a set is above ours: they come first."""
    rows = []
    for adaptation, columns in measured(folder).items():
        for peer, scores in columns.items():
            if peer == OURS:
                continue
            for dataset, pair in pairs(scores, columns[OURS]).items():
                if pair.mean > 0:
                    gap = over_people({dataset: pair.differences})
                    means = (set_means_of(both)[dataset] for both in (scores, columns[OURS]))
                    rows.append((-pair.mean, [dataset, adaptation, peer, *map(score, means), str(gap)]))
    heads = ["data set", "adaptation", "peer", "its mean", OURS, "ahead by (95 % interval over people)"]
    return markdown(heads, [cells for _, cells in sorted(rows)]) if rows else "None on the sets below.\n"


def by_signal(folder: Path) -> str:
    """Means over people, a table for each signal and adaptation; a peer stands where it was measured."""
    blocks = []
    for signal in dict.fromkeys(SIGNALS.values()):
        for adaptation, columns in measured(folder).items():
            means = {
                name: {data: mean for data, mean in set_means_of(scores).items() if signal_of_set(data) == signal}
                for name, scores in columns.items()
            }
            people = {data: len(columns[OURS][data]) for data in means.get(OURS, {})}
            if people:
                order = [name for name in means if means[name] and name != OURS]
                table = by_set_table({name: means[name] for name in [*order, OURS]}, people)
                blocks.append(f"{signal}, {ADAPTATIONS[adaptation]}:\n\n{table}")
    return "\n".join(blocks) or NOTHING


def signal_of_set(name: str) -> str:
    return SIGNALS.get(name.split("_")[0], "Other")


def gaps(folder: Path) -> str:
    """AutoTransfer minus each peer, and minus the best of them on each set, which is picked on these scores."""
    rows = []
    for adaptation, columns in measured(folder).items():
        peers = {name: scores for name, scores in columns.items() if name != OURS}
        best: Scores = {}
        for scores in peers.values():
            for data, people in scores.items():
                if data not in best or set_means_of({data: people})[data] > set_means_of(best)[data]:
                    best[data] = people
        for name, scores in {"the best of all, set by set": best, **peers}.items():
            ahead_by = differences(columns[OURS], scores)
            if ahead_by:
                several = [str(over(ahead_by)) for over in (over_sets, over_both)] if len(ahead_by) > 1 else ["–", "–"]
                count = str(sum(map(len, ahead_by.values())))
                rows.append([name, adaptation, ahead_on(ahead_by), count, str(over_people(ahead_by)), *several])
    heads = [f"{OURS} minus", "adaptation", "sets ahead", "people", "people as the unit", "sets as the unit",
             "sets, then people"]  # fmt: skip
    return markdown(heads, rows) if rows else NOTHING


def coverage(folder: Path) -> str:
    """How many people of every set on the leaderboard each peer has been scored on."""
    board, field = table_of(folder, "leaderboard"), table_of(folder, "field")
    ours = board[(board["mode"] == "zero-shot") & (board["pipeline"] == OURS)]
    done = field.groupby(["set", "family"])["person"].nunique().to_dict()
    rows = []
    for data, people in ours.groupby("dataset")["subject"].nunique().items():
        counts = [done.get((data, family), 0) for family in PEERS]
        rows.append([str(data), *("–" if not n else "all" if n >= people else f"{n} of {people}" for n in counts)])
    return markdown(["`--peers`", *PEERS], rows)


PARTS = {
    "field_ahead": ahead, "field_differences": gaps, "field": by_signal,
    "field_coverage": coverage,
}  # fmt: skip
