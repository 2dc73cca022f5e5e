"""The parts of docs/results.md that say what version 0.1.0 scored on eight sets that nobody had tuned to, from
FOLDER/confirmation: a score for every person in zero_shot.csv, all_windows.csv and playback.csv, set means of peers in
set_means.csv and specialists.csv, and in peers.csv, once `python -m benchmarks.peers` has been run on the eight sets, a
score for every person of the same peers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from autotransfer.report.statistics import holm
from autotransfer.report.wording import probability, share, signed
from autotransfer.runs.csv_tables import read_table

from . import played
from .averages import best_peers
from .drawing import Gain, gained
from .evidence import Evidence, Scores, pairs, set_means_of
from .inference import LOST, Differences, equivalence_table, harm, harm_table, over_both, over_people, over_sets
from .markdown import NAMES, NOTHING, by_set_table, markdown

VERSION = "0.1.0"
SIMPLE = ("shrinkage LDA", "tangent space, LDA")  # what every run fits beside its networks
ZERO_SHOT_PEERS = ("lda", "log_power", "riemann", "log_euclidean", "riemann_templates", "hudgins", "hudgins_ar")
ALL_WINDOWS_PEERS = (
    "riemann_recentred", "log_euclidean_recentred", "riemann_templates_recentred", "hudgins_by_person",
    "hudgins_ar_by_person",
)  # fmt: skip
WORDS = {"recorded": "as recorded", "balanced": "shuffled", "one-sided": "class after class",
         "one class first": "one class first"}  # fmt: skip
FIXED = "yes"
PICKED = "peer picked on these scores"  # which flatters it


class Confirmed:
    """What the CSVs say. Empty where there is no folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "confirmation"
        self.zero_shot = self._pipelines("zero_shot")
        self.all_windows = self._pipelines("all_windows")
        self.played = played.played_in(self.folder / "playback.csv")
        self.orders = played.orders_in(self.played)
        self.delivered = {dataset: played.delivered(own) for dataset, own in self.played.items()}
        self.peers = self._pipelines("peers")

    def _table(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.csv"
        return read_table(path, dtype={"subject": str, "dataset": str}) if path.exists() else pd.DataFrame()

    def _pipelines(self, name: str) -> dict[str, Scores]:
        table, found = self._table(name), dict[str, Scores]()
        for row in table.to_dict("records"):
            found.setdefault(row["pipeline"], {}).setdefault(row["dataset"], {})[row["subject"]] = float(row["score"])
        return found

    def measured_elsewhere(self) -> dict[str, dict[str, float]]:
        """Peer -> data set -> mean over people, as measured outside of the run."""
        found: dict[str, dict[str, float]] = {}
        for row in self._table("set_means").to_dict("records"):
            found.setdefault(row["pipeline"], {})[row["dataset"]] = float(row["score"])
        return found

    def specialists(self, column: str) -> dict[str, float]:
        """Data set -> the best of the specialists' feature groups, picked on these very scores."""
        table = self._table("specialists")
        return {} if not len(table) else {str(k): float(v) for k, v in table.groupby("dataset")[column].max().items()}

    def simple(self) -> Scores:
        """The better of the run's two simple classifiers, by set."""
        return {name: own for name, (_, own) in best_peers(self.zero_shot, SIMPLE).items()}

    def best(self, names: tuple[str, ...]) -> Scores:
        """The best peer of each set that has a score for everybody, the run's own included for nothing known."""
        every = {**self.peers, **(self.zero_shot if names == ZERO_SHOT_PEERS else {})}
        wanted = (*names, *SIMPLE) if names == ZERO_SHOT_PEERS else names
        return {name: own for name, (_, own) in best_peers(every, wanted).items()}

    def labels(self, number: int) -> tuple[Scores, Scores, Scores]:
        """On the windows after these labels: as it was, calibrated, and the person's own classifier."""
        case = str(number)
        before, own = (played.by_set(self.played, what, case) for what in ("before", "own"))
        return before, played.by_set(self.delivered, "calibrated", case), own

    def followed(self, order: str) -> tuple[Scores, Scores]:
        """Not followed and followed, on the same windows."""
        before, after = (played.by_set(self.played, what, order) for what in ("zero_shot", "adapted"))
        return before, after


def _by_set(columns: dict[str, dict[str, float]], people: Scores) -> str:
    return by_set_table(columns, {dataset: len(own) for dataset, own in people.items()})


def zero_shot(evidence: Evidence, folder: Path) -> str:
    """Nothing known of the person: one run, the same people, windows and groups."""
    found = Confirmed(folder)
    if not found.zero_shot:
        return NOTHING
    shown = {
        "plain network": "plain network", "shrinkage LDA": "LDA on features",
        "tangent space, LDA": "LDA in the tangent space",
        "best single candidate": "best single candidate", "average": "AutoTransfer",
    }  # fmt: skip
    return _by_set(
        {head: set_means_of(found.zero_shot[name]) for name, head in shown.items()}, found.zero_shot["average"]
    )


def person_known(evidence: Evidence, folder: Path) -> str:
    """All windows; window by window; five labels: a table each, because their windows differ."""
    found = Confirmed(folder)
    if not found.played or not found.all_windows:
        return NOTHING
    people = found.zero_shot["average"]
    at_once = {"nothing known": people, "all windows at once": found.all_windows["average"]}
    orders: dict[str, Scores] = {}
    for order in found.orders:
        before, after = found.followed(order)
        orders |= {"not followed": before} if order == "recorded" else {}
        orders[f"followed, {WORDS[order]}"] = after
    before, after, own = found.labels(5)
    labels = {"without labels": before, "own classifier": own, "AutoTransfer, calibrated": after}
    titles = {
        "All their unlabelled windows at once:": at_once,
        "Window by window, at most 240 of a person (not followed, the order changes nothing):": orders,
        "Five labelled windows of each class, scored on the windows after them:": labels,
    }
    return "\n".join(
        f"{title}\n\n{_by_set({name: set_means_of(scores) for name, scores in columns.items()}, people)}"
        for title, columns in titles.items()
    )


def _claims(found: Confirmed) -> dict[str, tuple[Scores, Scores, str]]:
    """What is said -> scores, what they are compared with, and whether anything in it was picked on these scores."""
    average = found.zero_shot["average"]
    claims: dict[str, tuple[Scores, Scores, str]] = {
        "nothing known, beside the better of the run's LDA and tangent space": (average, found.simple(), PICKED),
        "nothing known, beside the plain network": (average, found.zero_shot["plain network"], FIXED),
    }
    if found.peers:
        best = {mode: found.best(mode) for mode in (ZERO_SHOT_PEERS, ALL_WINDOWS_PEERS)}
        claims |= {
            "nothing known, beside the best of all peers": (average, best[ZERO_SHOT_PEERS], PICKED),
            "all windows, beside the best peer that has them too": (
                found.all_windows["average"], best[ALL_WINDOWS_PEERS], PICKED),
        }  # fmt: skip
    before, after, own = found.labels(5)
    claims |= {
        "averaging, beside choosing one candidate": (average, found.zero_shot["best single candidate"], FIXED),
        "found weights, beside equal ones": (average, found.zero_shot["equal weights"], FIXED),
        "all windows, beside nothing known": (found.all_windows["average"], average, FIXED),
        **{
            f"followed {WORDS[order]}, beside not followed": (*found.followed(order)[::-1], FIXED)
            for order in found.orders
        },
        "five labels of each class, beside none": (after, before, FIXED),
        "five labels of each class, beside the person's own classifier": (after, own, FIXED),
        **_penalties(found),
    }
    return claims


def _penalties(found: Confirmed) -> dict[str, tuple[Scores, Scores, str]]:
    runs = {"nothing known": found.zero_shot, "all windows": found.all_windows}
    return {
        f"penalties among the candidates, {name}": (own["average"], own["average without penalties"], FIXED)
        for name, own in runs.items()
    }


def claims(evidence: Evidence, folder: Path) -> str:
    """Every difference with people, with sets, and with both as the unit."""
    found = Confirmed(folder)
    if not found.zero_shot:
        return NOTHING
    compared = {name: (pairs(first, second), note) for name, (first, second, note) in _claims(found).items()}
    units = {name: {d: pair.differences for d, pair in by_set.items()} for name, (by_set, _) in compared.items()}
    p = holm({name: _p_of_sets(differences) for name, differences in units.items()})
    rows = [
        [name, note, f"{sum(pair.mean > 0 for pair in by_set.values())} of {len(by_set)}",
         *(str(unit(units[name])) for unit in (over_people, over_sets, over_both)), probability(p[name])]
        for name, (by_set, note) in compared.items()
    ]  # fmt: skip
    heads = [
        "",
        "fixed before",
        "sets above 0",
        "people as the unit",
        "sets as the unit",
        "sets, then people",
        "p, Holm",
    ]
    return markdown(heads, rows)


def _p_of_sets(differences: Differences) -> float:
    from scipy import stats

    return float(stats.ttest_1samp([np.mean(list(own.values())) for own in differences.values()], 0.0).pvalue)


def equivalent(evidence: Evidence, folder: Path) -> str:
    """Whether what penalties add is less than a hundredth."""
    found = Confirmed(folder)
    if not found.zero_shot:
        return NOTHING
    return equivalence_table({
        name: {d: pair.differences for d, pair in pairs(first, second).items()}
        for name, (first, second, _) in _penalties(found).items()
    })  # fmt: skip


def harmed(evidence: Evidence, folder: Path) -> str:
    """How many people lose by what is done for them."""
    found = Confirmed(folder)
    if not found.zero_shot:
        return NOTHING
    steps: dict[str, tuple[Scores, Scores]] = {
        "AutoTransfer in place of the better simple classifier": (found.zero_shot["average"], found.simple()),
        **{f"followed {WORDS[order]}": found.followed(order)[::-1] for order in found.orders},
        "all windows at once, in place of none": (found.all_windows["average"], found.zero_shot["average"]),
        **{f"{n} label{'s' * (n > 1)} of each class": found.labels(n)[1::-1] for n in (1, 2, 5, 10)},
    }
    return harm_table({
        name: {d: pair.differences for d, pair in pairs(after, before).items()}
        for name, (after, before) in steps.items()
    })  # fmt: skip


def peers(evidence: Evidence, folder: Path) -> str:
    """Beside peers outside of the run: set means as they were measured, and by person where there is peers.csv."""
    found = Confirmed(folder)
    measured = found.measured_elsewhere()
    if not measured or not found.zero_shot:
        return NOTHING
    average, whole = found.zero_shot["average"], set_means_of(found.all_windows["average"])
    nothing = {
        "better of the run's two": set_means_of(found.simple()),
        "LDA on log power": measured["LDA on log power"], "pyRiemann": measured["pyRiemann"],
        "best specialist": found.specialists("zero_shot"), "AutoTransfer": set_means_of(average),
    }  # fmt: skip
    known = {
        "pyRiemann, re-centred": measured["pyRiemann, re-centred"],
        "best specialist, z-scored by person": found.specialists("z_scored_by_person"),
        "AutoTransfer, all windows": whole,
    }
    parts = [f"Nothing known:\n\n{_by_set(nothing, average)}", f"All windows:\n\n{_by_set(known, average)}"]
    for title, columns in (("AutoTransfer minus", nothing), ("AutoTransfer, all windows, minus", known)):
        *others, ours = columns
        compared = {name: columns[name] for name in others}
        compared["the best of these, set by set"] = {d: max(columns[name][d] for name in others) for d in columns[ours]}
        rows = []
        for name, means in compared.items():
            differences = {d: {"": columns[ours][d] - value} for d, value in means.items()}
            ahead = sum(own[""] > 0 for own in differences.values())
            rows.append([name, f"{ahead} of {len(differences)}", str(over_sets(differences))])
        parts.append(markdown([title, "ahead", "sets as the unit"], rows))
    if found.peers:
        parts.append(_peers_by_person(found))
    return "\n".join(parts)


def _peers_by_person(found: Confirmed) -> str:
    rows = []
    for names, ours in ((ZERO_SHOT_PEERS, found.zero_shot), (ALL_WINDOWS_PEERS, found.all_windows)):
        for name in names:
            if name in found.peers:
                by_set = pairs(ours["average"], found.peers[name])
                units = {d: pair.differences for d, pair in by_set.items()}
                ahead = f"{sum(pair.mean > 0 for pair in by_set.values())} of {len(by_set)}"
                told = (str(unit(units)) if len(units) > 1 else "–" for unit in (over_people, over_sets, over_both))
                rows.append([NAMES.get(name, name), str(sum(map(len, units.values()))), ahead, *told])
    heads = ["AutoTransfer minus, by person (`peers.csv`)", "people", "ahead", "people as the unit", "sets as the unit",
             "sets, then people"]  # fmt: skip
    return markdown(heads, rows)


SETS = {  # as the picture calls them
    "eeg_sam40": "EEG, stress tasks", "emg_electrode_shift": "EMG, moved armband", "emg_intensity": "EMG, force levels",
    "emg_limb_position": "EMG, arm positions", "emg_lowerlimb": "EMG, leg", "emg_minimal": "EMG, armband",
    "emg_uci": "EMG, armband (UCI)", "imu_har": "phone and watch",
}  # fmt: skip


def picture(evidence: Evidence, folder: Path) -> str:
    """The first picture of README and documentation: means of each set before and after, by what is known."""
    found = Confirmed(folder)
    if not found.zero_shot:
        return NOTHING
    average = found.zero_shot["average"]
    before, after, own = found.labels(5)
    panels = [
        _panel("nothing", ("simple classifier", "AutoTransfer"), found.simple(), average),
        _panel("windows as they come", ("not followed", "followed"), *found.followed("recorded")),
        _panel("all their windows", ("nothing known", "all windows"), average, found.all_windows["average"]),
        _panel("five labels of each class", ("without labels", "with labels"), before, after, own),
    ]
    names = {dataset: f"{SETS.get(dataset, dataset)} ({len(average[dataset])})" for dataset in sorted(average)}
    people = sum(map(len, average.values()))
    head = f"Balanced accuracy on {people} people never seen, by what is known of them"
    (folder / "gained.svg").write_text(gained(panels, names, NOTES, head), encoding="utf-8")
    return f"![{ALT}]({folder.name}/gained.svg)\n"


NOTES = ("mean over people", "95 % interval", f"gain / lose more than {LOST:g}")
ALT = (
    "Balanced accuracy on people never seen, on eight sets, before and after, where nothing is known of them, their "
    "windows as they come, all their windows, five labels of each class"
)


def _panel(title: str, ends: tuple[str, str], before: Scores, after: Scores, own: Scores | None = None) -> Gain:
    gains = {d: pair.differences for d, pair in pairs(after, before).items()}
    people, (lose, gain) = over_people(gains), harm(gains)
    assert people.interval is not None
    low, high = people.interval
    notes = [signed(people.value), f"{signed(low)} to {signed(high)}", f"{share(gain)} / {share(lose)}"]
    third = ("own classifier", set_means_of(own)) if own else None
    return Gain(title, ends, set_means_of(before), set_means_of(after), notes, third)


def headline(folder: Path) -> str:
    """What README quotes, as it has to stand there."""
    found = Confirmed(folder)
    gain = {d: pair.differences for d, pair in pairs(found.zero_shot["average"], found.simple()).items()}
    people = over_people(gain)
    assert people.interval is not None
    low, high = people.interval
    return f"{people.value:.3f} balanced accuracy (95 % interval {low:.3f} to {high:.3f})"


PARTS = {
    "confirmed_zero_shot": zero_shot, "confirmed_person": person_known, "confirmed_claims": claims,
    "confirmed_equivalence": equivalent, "confirmed_harm": harmed, "confirmed_peers": peers,
    "confirmed_picture": picture,
}  # fmt: skip
