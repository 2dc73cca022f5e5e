"""The parts of docs/results.md that say what version 0.1.0 scored on eight sets that nobody had tuned to, from
FOLDER/confirmation: a score for every person in zero_shot.csv, all_windows.csv and playback.csv, set means of peers in
set_means.csv and specialists.csv, and in peers.csv, once `python -m benchmarks.peers` has been run on the eight sets, a
score for every person of the same peers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import stats

from autotransfer.report.statistics import holm
from autotransfer.report.wording import probability, share, signed

from . import played
from .averages import best_peers
from .drawing import Gain, figure, gained
from .evidence import Scores, differences, scores_by, set_means_of, table_of
from .inference import (
    LOST,
    Differences,
    ahead_on,
    equivalence_table,
    harm,
    harm_table,
    over_both,
    over_people,
    over_sets,
)
from .markdown import NAMES, by_set_table, markdown

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
    """What the CSVs say. peers.csv may be missing, because it takes a while to compute."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "confirmation"
        self.zero_shot = self._pipelines("zero_shot")
        self.all_windows = self._pipelines("all_windows")
        self.played = played.played_in(self.folder)
        self.orders = played.orders_in(self.played)
        self.delivered = {dataset: played.delivered(scores) for dataset, scores in self.played.items()}
        self.peers = self._pipelines("peers") if (self.folder / "peers.csv").exists() else {}

    def _pipelines(self, name: str) -> dict[str, Scores]:
        return scores_by(table_of(self.folder, name), "pipeline", "dataset", "subject")

    def measured_elsewhere(self) -> dict[str, dict[str, float]]:
        """Peer -> data set -> mean over people, as measured outside of the run."""
        return scores_by(table_of(self.folder, "set_means"), "pipeline", "dataset")

    def specialists(self, column: str) -> dict[str, float]:
        """Data set -> the best of the specialists' feature groups, picked on these very scores."""
        best = table_of(self.folder, "specialists").groupby("dataset")[column].max()
        return {str(dataset): float(score) for dataset, score in best.items()}

    def simple(self) -> Scores:
        """The better of the run's two simple classifiers, by set."""
        return {dataset: people for dataset, (_, people) in best_peers(self.zero_shot, SIMPLE).items()}

    def best(self, names: tuple[str, ...]) -> Scores:
        """The best peer of each set that has a score for everybody; where nothing is known of a person, also of the two
        simple classifiers of the run."""
        every = {**self.peers, **(self.zero_shot if names == ZERO_SHOT_PEERS else {})}
        wanted = (*names, *SIMPLE) if names == ZERO_SHOT_PEERS else names
        return {dataset: people for dataset, (_, people) in best_peers(every, wanted).items()}

    def labels(self, number: int) -> tuple[Scores, Scores, Scores]:
        """On the windows after these labels: as it was, calibrated, and a classifier of the person alone."""
        case = str(number)
        before, personal = (played.by_set(self.played, what, case) for what in ("before", "own"))
        return before, played.by_set(self.delivered, "calibrated", case), personal

    def followed(self, order: str) -> tuple[Scores, Scores]:
        """Not followed and followed, on the same windows."""
        before, after = (played.by_set(self.played, what, order) for what in ("zero_shot", "adapted"))
        return before, after


def _by_set(columns: dict[str, dict[str, float]], scores: Scores) -> str:
    return by_set_table(columns, {dataset: len(people) for dataset, people in scores.items()})


def zero_shot(folder: Path) -> str:
    """Nothing known of the person: one run, the same people, windows and groups."""
    confirmed = Confirmed(folder)
    shown = {
        "plain network": "plain network", "shrinkage LDA": "LDA on features",
        "tangent space, LDA": "LDA in the tangent space",
        "best single candidate": "best single candidate", "average": "AutoTransfer",
    }  # fmt: skip
    return _by_set(
        {head: set_means_of(confirmed.zero_shot[name]) for name, head in shown.items()}, confirmed.zero_shot["average"]
    )


def person_known(folder: Path) -> str:
    """All windows; window by window; five labels: a table each, because their windows differ."""
    confirmed = Confirmed(folder)
    people = confirmed.zero_shot["average"]
    at_once = {"nothing known": people, "all windows at once": confirmed.all_windows["average"]}
    orders: dict[str, Scores] = {}
    for order in confirmed.orders:
        before, after = confirmed.followed(order)
        orders |= {"not followed": before} if order == "recorded" else {}
        orders[f"followed, {WORDS[order]}"] = after
    before, after, personal = confirmed.labels(5)
    labels = {"without labels": before, "own classifier": personal, "AutoTransfer, calibrated": after}
    titles = {
        "All their unlabelled windows at once:": at_once,
        "Window by window, at most 240 of a person (not followed, the order changes nothing):": orders,
        "Five labelled windows of each class, scored on the windows after them:": labels,
    }
    return "\n".join(
        f"{title}\n\n{_by_set({name: set_means_of(scores) for name, scores in columns.items()}, people)}"
        for title, columns in titles.items()
    )


def _claims(confirmed: Confirmed) -> dict[str, tuple[Scores, Scores, str]]:
    """What is said -> scores, what they are compared with, and whether anything in it was picked on these scores."""
    average = confirmed.zero_shot["average"]
    claims: dict[str, tuple[Scores, Scores, str]] = {
        "nothing known, beside the better of the run's LDA and tangent space": (average, confirmed.simple(), PICKED),
        "nothing known, beside the plain network": (average, confirmed.zero_shot["plain network"], FIXED),
    }
    if confirmed.peers:
        best = {mode: confirmed.best(mode) for mode in (ZERO_SHOT_PEERS, ALL_WINDOWS_PEERS)}
        claims |= {
            "nothing known, beside the best of all peers": (average, best[ZERO_SHOT_PEERS], PICKED),
            "all windows, beside the best peer that has them too": (
                confirmed.all_windows["average"], best[ALL_WINDOWS_PEERS], PICKED),
        }  # fmt: skip
    before, after, personal = confirmed.labels(5)
    claims |= {
        "averaging, beside choosing one candidate": (average, confirmed.zero_shot["best single candidate"], FIXED),
        "found weights, beside equal ones": (average, confirmed.zero_shot["equal weights"], FIXED),
        "all windows, beside nothing known": (confirmed.all_windows["average"], average, FIXED),
        **{
            f"followed {WORDS[order]}, beside not followed": (*confirmed.followed(order)[::-1], FIXED)
            for order in confirmed.orders
        },
        "five labels of each class, beside none": (after, before, FIXED),
        "five labels of each class, beside the person's own classifier": (after, personal, FIXED),
        **_penalties(confirmed),
    }
    return claims


def _penalties(confirmed: Confirmed) -> dict[str, tuple[Scores, Scores, str]]:
    runs = {"nothing known": confirmed.zero_shot, "all windows": confirmed.all_windows}
    return {
        f"penalties among the candidates, {name}": (run["average"], run["average without penalties"], FIXED)
        for name, run in runs.items()
    }


def claims(folder: Path) -> str:
    """Every difference with people, with sets, and with both as the unit."""
    confirmed = Confirmed(folder)
    compared = {name: (differences(first, second), note) for name, (first, second, note) in _claims(confirmed).items()}
    p = holm({name: _p_of_sets(gaps) for name, (gaps, _) in compared.items()})
    units = (over_people, over_sets, over_both)
    rows = [
        [name, note, ahead_on(gaps), *(str(unit(gaps)) for unit in units), probability(p[name])]
        for name, (gaps, note) in compared.items()
    ]
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


def _p_of_sets(gaps: Differences) -> float:
    return float(stats.ttest_1samp([np.mean(list(people.values())) for people in gaps.values()], 0.0).pvalue)


def equivalent(folder: Path) -> str:
    """Whether what penalties add is less than a hundredth."""
    confirmed = Confirmed(folder)
    claims = _penalties(confirmed)
    return equivalence_table({name: differences(first, second) for name, (first, second, _) in claims.items()})


def harmed(folder: Path) -> str:
    """How many people lose by what is done for them."""
    confirmed = Confirmed(folder)
    steps: dict[str, tuple[Scores, Scores]] = {
        "AutoTransfer in place of the better simple classifier": (confirmed.zero_shot["average"], confirmed.simple()),
        **{f"followed {WORDS[order]}": confirmed.followed(order)[::-1] for order in confirmed.orders},
        "all windows at once, in place of none": (confirmed.all_windows["average"], confirmed.zero_shot["average"]),
        **{f"{n} label{'s' * (n > 1)} of each class": confirmed.labels(n)[1::-1] for n in (1, 2, 5, 10)},
    }
    return harm_table({name: differences(after, before) for name, (after, before) in steps.items()})


def peers(folder: Path) -> str:
    """Beside peers outside of the run: set means as they were measured, and by person where there is peers.csv."""
    confirmed = Confirmed(folder)
    measured = confirmed.measured_elsewhere()
    average, whole = confirmed.zero_shot["average"], set_means_of(confirmed.all_windows["average"])
    nothing = {
        "better of the run's two": set_means_of(confirmed.simple()),
        "LDA on log power": measured["LDA on log power"], "pyRiemann": measured["pyRiemann"],
        "best specialist": confirmed.specialists("zero_shot"), "AutoTransfer": set_means_of(average),
    }  # fmt: skip
    known = {
        "pyRiemann, re-centred": measured["pyRiemann, re-centred"],
        "best specialist, z-scored by person": confirmed.specialists("z_scored_by_person"),
        "AutoTransfer, all windows": whole,
    }
    parts = [f"Nothing known:\n\n{_by_set(nothing, average)}", f"All windows:\n\n{_by_set(known, average)}"]
    for title, columns in (("AutoTransfer minus", nothing), ("AutoTransfer, all windows, minus", known)):
        *others, ours = columns
        compared = {name: columns[name] for name in others}
        compared["the best of these, set by set"] = {d: max(columns[name][d] for name in others) for d in columns[ours]}
        rows = []
        for name, means in compared.items():
            gaps = {d: {"": columns[ours][d] - value} for d, value in means.items()}
            rows.append([name, ahead_on(gaps), str(over_sets(gaps))])
        parts.append(markdown([title, "ahead", "sets as the unit"], rows))
    if confirmed.peers:
        parts.append(_peers_by_person(confirmed))
    return "\n".join(parts)


def _peers_by_person(confirmed: Confirmed) -> str:
    rows = []
    for names, ours in ((ZERO_SHOT_PEERS, confirmed.zero_shot), (ALL_WINDOWS_PEERS, confirmed.all_windows)):
        for name in names:
            if name in confirmed.peers:
                gaps = differences(ours["average"], confirmed.peers[name])
                cells = (str(unit(gaps)) if len(gaps) > 1 else "–" for unit in (over_people, over_sets, over_both))
                rows.append([NAMES.get(name, name), str(sum(map(len, gaps.values()))), ahead_on(gaps), *cells])
    heads = ["AutoTransfer minus, by person (`peers.csv`)", "people", "ahead", "people as the unit", "sets as the unit",
             "sets, then people"]  # fmt: skip
    return markdown(heads, rows)


SETS = {  # as the picture calls them
    "eeg_sam40": "EEG, stress tasks", "emg_electrode_shift": "EMG, moved armband", "emg_intensity": "EMG, force levels",
    "emg_limb_position": "EMG, arm positions", "emg_lowerlimb": "EMG, leg", "emg_minimal": "EMG, armband",
    "emg_uci": "EMG, armband (UCI)", "imu_har": "phone and watch",
}  # fmt: skip


def picture(folder: Path) -> str:
    """The first picture of README and documentation: pairs of means of each set, by what is known."""
    confirmed = Confirmed(folder)
    average = confirmed.zero_shot["average"]
    before, after, personal = confirmed.labels(5)
    panels = [
        _panel("nothing", ("simple classifier", "AutoTransfer"), confirmed.simple(), average),
        _panel("windows as they come", ("not followed", "followed"), *confirmed.followed("recorded")),
        _panel("all their windows", ("nothing known", "all windows"), average, confirmed.all_windows["average"]),
        _panel("five labels of each class", ("without labels", "with labels"), before, after, personal),
    ]
    names = {dataset: f"{SETS.get(dataset, dataset)} ({len(average[dataset])})" for dataset in sorted(average)}
    people = sum(map(len, average.values()))
    head = f"Balanced accuracy on {people} people never seen, by what is known of them"
    return figure(folder, "gained", gained(panels, names, NOTES, head), ALT)


NOTES = ("mean over people", "95 % interval", f"gain / lose more than {LOST:g}")
ALT = (
    "Balanced accuracy on people never seen, on eight sets, as four pairs: a simple classifier and AutoTransfer where "
    "nothing is known of them; not followed and followed as their windows come; nothing known and all their windows; "
    "without and with five labels of each class"
)


def _panel(title: str, ends: tuple[str, str], before: Scores, after: Scores, personal: Scores | None = None) -> Gain:
    gains = differences(after, before)
    people, (lose, gain) = over_people(gains), harm(gains)
    assert people.interval is not None
    low, high = people.interval
    notes = [signed(people.value), f"{signed(low)} to {signed(high)}", f"{share(gain)} / {share(lose)}"]
    third = ("own classifier", set_means_of(personal)) if personal else None
    return Gain(title, ends, set_means_of(before), set_means_of(after), notes, third)


def headline(folder: Path) -> str:
    """What README quotes, as it has to stand there."""
    confirmed = Confirmed(folder)
    people = over_people(differences(confirmed.zero_shot["average"], confirmed.simple()))
    assert people.interval is not None
    low, high = people.interval
    return f"{people.value:.3f} balanced accuracy (95 % interval {low:.3f} to {high:.3f})"


PARTS = {
    "confirmed_zero_shot": zero_shot, "confirmed_person": person_known, "confirmed_claims": claims,
    "confirmed_equivalence": equivalent, "confirmed_harm": harmed, "confirmed_peers": peers,
    "confirmed_picture": picture,
}  # fmt: skip
