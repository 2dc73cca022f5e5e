"""Tables of docs/results.md on the confirmation: one run of version 0.1.0 on eight data sets that were not used before.

They are made from FOLDER/confirmation: a score for every subject in zero_shot.csv, all_windows.csv, replay.csv and
baselines.csv (`python -m benchmarks.peers` on the eight sets), and means of baselines in set_means.csv and
specialists.csv.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import stats

from autotransfer.report.statistics import holm
from autotransfer.report.wording import probability, share, signed

from .drawing import Gain, figure, gained
from .evidence import Scores, best_baselines, differences, scores_by, set_means_of, table_of
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
from .markdown import best_in_bold, by_set_table, markdown

SIMPLE = ("shrinkage LDA", "tangent space, LDA")  # baselines that every run of version 0.1.0 fitted
ZERO_SHOT_BASELINES = ("lda", "log_power", "riemann", "log_euclidean", "riemann_templates", "hudgins", "hudgins_ar")
ALL_WINDOWS_BASELINES = (
    "riemann_recentered", "log_euclidean_recentered", "riemann_templates_recentered", "hudgins_by_person",
    "hudgins_ar_by_person",
)  # fmt: skip
ORDERS = {"recorded": "as recorded", "balanced": "shuffled", "one-sided": "class after class"}
PICKED = "\\*"  # marks rows whose baseline was picked on the same scores, which flatters it

Claim = tuple[Scores, Scores, str]  # scores, the scores that they are compared with, mark


class Confirmed:
    """Scores of the confirmation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "confirmation"
        self.zero_shot = self._pipelines("zero_shot")
        self.all_windows = self._pipelines("all_windows")
        self.baselines = self._pipelines("baselines")
        self.replayed = scores_by(table_of(self.folder, "replay"), "what", "case", "dataset", "subject")

    def _pipelines(self, name: str) -> dict[str, Scores]:
        return scores_by(table_of(self.folder, name), "pipeline", "dataset", "subject")

    def set_means(self) -> dict[str, dict[str, float]]:
        """Return baseline -> data set -> mean over subjects, as measured outside of the run."""
        return scores_by(table_of(self.folder, "set_means"), "pipeline", "dataset")

    def specialists(self, column: str) -> dict[str, float]:
        """Return data set -> mean of the best feature group of the specialists, picked on these scores."""
        best = table_of(self.folder, "specialists").groupby("dataset")[column].max()
        return {str(dataset): float(score) for dataset, score in best.items()}

    def simple(self) -> Scores:
        """Return the better of the run's two baselines on each data set."""
        return best_baselines(self.zero_shot, SIMPLE)

    def best(self, names: tuple[str, ...]) -> Scores:
        """Return the best baseline of each data set among those with a score for every subject."""
        if names == ZERO_SHOT_BASELINES:
            return best_baselines({**self.baselines, **self.zero_shot}, (*names, *SIMPLE))
        return best_baselines(self.baselines, names)

    def labels(self, number: int) -> tuple[Scores, Scores, Scores]:
        """Return scores on the windows after these labels: without them, calibrated, and of a subject's own model."""
        before, calibrated, own = (self.replayed[what][str(number)] for what in ("before", "calibrated", "own"))
        return before, calibrated, own

    def online(self, order: str) -> tuple[Scores, Scores]:
        """Return scores without and with online adaptation on the same windows."""
        return self.replayed["zero_shot"][order], self.replayed["adapted"][order]


def zero_shot(folder: Path) -> str:
    """Return the mean scores of models that know nothing of the subject."""
    confirmed = Confirmed(folder)
    shown = {
        "EEGNet (paper)": "plain network", "LDA on features": "shrinkage LDA", "tangent space": "tangent space, LDA",
        "best single candidate": "best single candidate", "AutoTransfer": "average",
    }  # fmt: skip
    columns = {head: set_means_of(confirmed.zero_shot[name]) for head, name in shown.items()}
    return by_set_table(columns, {dataset: len(people) for dataset, people in confirmed.zero_shot["average"].items()})


def person_known(folder: Path) -> str:
    """Return mean scores without and with unlabeled windows or labels of the subject."""
    confirmed = Confirmed(folder)
    average = confirmed.zero_shot["average"]
    before, after, own = confirmed.labels(5)
    blocks = [
        [average, confirmed.all_windows["average"]],
        list(confirmed.online("recorded")),
        [before, own, after],
    ]
    means = [[set_means_of(scores) for scores in block] for block in blocks]
    rows = [[dataset, *(_arrows([m[dataset] for m in block]) for block in means)] for dataset in sorted(average)]
    rows.append(["mean over sets", *(_arrows([float(np.mean(list(m.values()))) for m in block]) for block in means)])
    heads = ["", "zero-shot → all unlabeled windows at once", "zero-shot → online session, as recorded",
             "zero-shot → own classifier → calibrated with five labels of each class"]  # fmt: skip
    return markdown(heads, rows)


def _arrows(means: list[float]) -> str:
    return " → ".join(best_in_bold(means))


def _claims(confirmed: Confirmed) -> dict[str, Claim]:
    average, whole = confirmed.zero_shot["average"], confirmed.all_windows["average"]
    before, after, own = confirmed.labels(5)
    return {
        "zero-shot, versus the better of the run's two baselines": (average, confirmed.simple(), PICKED),
        "zero-shot, versus EEGNet (paper)": (average, confirmed.zero_shot["plain network"], ""),
        "zero-shot, versus the best of all baselines": (average, confirmed.best(ZERO_SHOT_BASELINES), PICKED),
        "all windows, versus the best baseline with all windows": (
            whole, confirmed.best(ALL_WINDOWS_BASELINES), PICKED
        ),
        "weighted ensemble, versus the best single candidate": (
            average, confirmed.zero_shot["best single candidate"], ""),
        "weights found, versus equal weights": (average, confirmed.zero_shot["equal weights"], ""),
        "all windows, versus zero-shot": (whole, average, ""),
        **{
            f"online session {name}, versus zero-shot": (*confirmed.online(order)[::-1], "")
            for order, name in ORDERS.items()
        },
        "five labels of each class, versus zero-shot": (after, before, ""),
        "five labels of each class, versus the subject's own classifier": (after, own, ""),
        **_penalties(confirmed),
    }  # fmt: skip


def _penalties(confirmed: Confirmed) -> dict[str, Claim]:
    runs = {"zero-shot": confirmed.zero_shot, "all windows": confirmed.all_windows}
    return {
        f"penalties among the candidates, versus none, {name}": (run["average"], run["average without penalties"], "")
        for name, run in runs.items()
    }


def claims(folder: Path) -> str:
    """Return every difference with subjects, with data sets, and with both as the unit."""
    compared = {name: (differences(a, b), mark) for name, (a, b, mark) in _claims(Confirmed(folder)).items()}
    p = holm({name: _p_of_sets(gaps) for name, (gaps, _) in compared.items()})
    rows = [
        [f"{name}{mark}", ahead_on(gaps), str(over_people(gaps)), str(over_both(gaps)), probability(p[name])]
        for name, (gaps, mark) in compared.items()
    ]
    return markdown(["", "sets above 0", "over subjects", "sets, then subjects", "p, Holm"], rows)


def _p_of_sets(gaps: Differences) -> float:
    return float(stats.ttest_1samp([np.mean(list(people.values())) for people in gaps.values()], 0.0).pvalue)


def equivalent(folder: Path) -> str:
    """Return the test of whether penalties change less than a hundredth."""
    claims = _penalties(Confirmed(folder))
    return equivalence_table({name: differences(first, second) for name, (first, second, _) in claims.items()})


def harmed(folder: Path) -> str:
    """Return how many subjects lose by each step."""
    confirmed = Confirmed(folder)
    average = confirmed.zero_shot["average"]
    steps: dict[str, tuple[Scores, Scores]] = {
        "AutoTransfer instead of the better baseline": (average, confirmed.simple()),
        "all windows at once": (confirmed.all_windows["average"], average),
        **{f"online session {ORDERS[order]}": confirmed.online(order)[::-1] for order in ("recorded", "one-sided")},
        **{f"{n} label{'s' * (n > 1)} of each class": confirmed.labels(n)[1::-1] for n in (1, 5)},
    }
    return harm_table({name: differences(after, before) for name, (after, before) in steps.items()})


def baselines(folder: Path) -> str:
    """Return differences to baselines that were fitted outside of the run, with data sets as the unit."""
    confirmed = Confirmed(folder)
    measured = confirmed.set_means()
    blocks: list[tuple[str, dict[str, float], dict[str, dict[str, float]]]] = [
        ("zero-shot", set_means_of(confirmed.zero_shot["average"]), {
            "the better of the run's two": set_means_of(confirmed.simple()),
            "LDA on log power": measured["LDA on log power"], "pyRiemann": measured["pyRiemann"],
            "the best specialist": confirmed.specialists("zero_shot"),
        }),
        ("all windows", set_means_of(confirmed.all_windows["average"]), {
            "pyRiemann, re-centered": measured["pyRiemann, re-centered"],
            "the best specialist, z-scored by subject": confirmed.specialists("z_scored_by_person"),
        }),
    ]  # fmt: skip
    rows = []
    for mode, ours, others in blocks:
        best = {dataset: max(means[dataset] for means in others.values()) for dataset in ours}
        for name, means in {**others, "the best of these, set by set": best}.items():
            gaps = {dataset: {"": ours[dataset] - value} for dataset, value in means.items()}
            rows.append([mode, name, ahead_on(gaps), str(over_sets(gaps))])
    return markdown(["", "AutoTransfer minus", "sets ahead", "over sets"], rows)


# ---- the figure ------------------------------------------------------------------------------------------------------

SETS = {
    "eeg_sam40": "EEG, stress tasks", "emg_electrode_shift": "EMG, moved armband", "emg_intensity": "EMG, force levels",
    "emg_limb_position": "EMG, arm positions", "emg_lowerlimb": "EMG, leg", "emg_minimal": "EMG, armband",
    "emg_uci": "EMG, armband (UCI)", "imu_har": "phone and watch",
}  # fmt: skip
NOTES = ("mean over subjects", "95 % interval", f"gain / lose more than {LOST:g}")
ALT = (
    "Balanced accuracy on people never seen, on eight sets, as four pairs: the better of two baselines and "
    "AutoTransfer; without and with online adaptation; without and with all unlabeled windows; without and with five "
    "labels of each class"
)


def picture(folder: Path) -> str:
    """Draw the figure of README and docs: means of each data set before and after, by what is known of the subject."""
    confirmed = Confirmed(folder)
    average = confirmed.zero_shot["average"]
    before, after, own = confirmed.labels(5)
    panels = [
        _panel("nothing known", ("better baseline", "AutoTransfer"), confirmed.simple(), average),
        _panel("online session", ("zero-shot", "online"), *confirmed.online("recorded")),
        _panel("all their windows", ("zero-shot", "all windows"), average, confirmed.all_windows["average"]),
        _panel("five labels of each class", ("zero-shot", "calibrated"), before, after, own),
    ]
    names = {dataset: f"{SETS.get(dataset, dataset)} ({len(average[dataset])})" for dataset in sorted(average)}
    people = sum(map(len, average.values()))
    head = f"Balanced accuracy on {people} people never seen, by what is known of them"
    return figure(folder, "gained", gained(panels, names, NOTES, head), ALT)


def _panel(
    title: str, ends: tuple[str, str], before: Scores, after: Scores, own: Mapping[str, dict[str, float]] | None = None
) -> Gain:
    gains = differences(after, before)
    people, (lose, gain) = over_people(gains), harm(gains)
    assert people.interval is not None
    low, high = people.interval
    notes = [signed(people.value), f"{signed(low)} to {signed(high)}", f"{share(gain)} / {share(lose)}"]
    third = ("own classifier", set_means_of(dict(own))) if own else None
    return Gain(title, ends, set_means_of(before), set_means_of(after), notes, third)


def headline(folder: Path) -> str:
    """Return the words in which README quotes the main difference."""
    confirmed = Confirmed(folder)
    people = over_people(differences(confirmed.zero_shot["average"], confirmed.simple()))
    assert people.interval is not None
    low, high = people.interval
    return f"{people.value:.3f} balanced accuracy (95 % interval {low:.3f} to {high:.3f})"


PARTS = {
    "confirmed_zero_shot": zero_shot, "confirmed_person": person_known, "confirmed_claims": claims,
    "confirmed_equivalence": equivalent, "confirmed_harm": harmed, "confirmed_baselines": baselines,
    "confirmed_picture": picture,
}  # fmt: skip
