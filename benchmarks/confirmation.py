"""Tables of docs/results.md on the confirmation: one run of version 0.1.0 on eight data sets that were not used before.

FOLDER/confirmation has a score for every subject in zero_shot.csv, all_windows.csv, replay.csv and baselines.csv
(`python -m benchmarks.run_baselines` on the eight sets), and means of baselines in set_means.csv and feature_sets.csv.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import stats

from autotransfer.report.statistics import holm
from autotransfer.report.wording import probability, share
from autotransfer.words import score, signed

from .drawing import Gain, draw_gains, write_figure
from .evidence import Scores, differences, read_scores, scores_by, select_best, set_means
from .inference import (
    HARM,
    Differences,
    equivalence_table,
    format_sets_ahead,
    harm_rates,
    harm_table,
    mean_over_both,
    mean_over_sets,
    mean_over_subjects,
)
from .markdown import bold_best, by_set_table, markdown

RUN_BASELINES = ("shrinkage LDA", "tangent space, LDA")  # baselines that every run of version 0.1.0 fitted
ZERO_SHOT_BASELINES = ("lda", "log_power", "riemann", "log_euclidean", "riemann_templates", "hudgins", "hudgins_ar")
ALL_WINDOWS_BASELINES = (
    "riemann_recentered", "log_euclidean_recentered", "riemann_templates_recentered", "hudgins_by_subject",
    "hudgins_ar_by_subject",
)  # fmt: skip
ENSEMBLE = "weighted ensemble"
ORDERS = {"recorded": "as recorded", "balanced": "shuffled", "one-sided": "class after class"}
SELECTED = "\\*"  # marks rows whose baseline was selected on the same scores, which favors the baseline

Claim = tuple[Scores, Scores, str]  # scores, the scores that they are compared with, mark


class ConfirmationScores:
    """Scores of the confirmation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "confirmation"
        self.zero_shot = self._pipelines("zero_shot")
        self.all_windows = self._pipelines("all_windows")
        self.baselines = self._pipelines("baselines")
        self.replay = scores_by(read_scores(self.folder, "replay"), "method", "case", "dataset", "subject")

    def _pipelines(self, name: str) -> dict[str, Scores]:
        return scores_by(read_scores(self.folder, name), "pipeline", "dataset", "subject")

    def baseline_means(self) -> dict[str, dict[str, float]]:
        """Return baseline -> data set -> mean over subjects, as measured outside of the run."""
        return scores_by(read_scores(self.folder, "set_means"), "pipeline", "dataset")

    def best_feature_sets(self, column: str) -> dict[str, float]:
        """Return data set -> mean score of the best feature set, which is selected on these scores."""
        best = read_scores(self.folder, "feature_sets").groupby("dataset")[column].max()
        return {str(dataset): float(score) for dataset, score in best.items()}

    def best_run_baseline(self) -> Scores:
        """Return the better of the run's two baselines on each data set."""
        return select_best(self.zero_shot, RUN_BASELINES)

    def best_baseline(self, names: tuple[str, ...]) -> Scores:
        """Return the best baseline of each data set among those with a score for every subject."""
        if names == ZERO_SHOT_BASELINES:
            return select_best({**self.baselines, **self.zero_shot}, (*names, *RUN_BASELINES))
        return select_best(self.baselines, names)

    def labels(self, number: int) -> tuple[Scores, Scores, Scores]:
        """Return scores on the windows after these labels: zero-shot, calibrated, own classifier of the subject."""
        before, calibrated, own = (self.replay[method][str(number)] for method in ("before", "calibrated", "own"))
        return before, calibrated, own

    def online(self, order: str) -> tuple[Scores, Scores]:
        """Return scores without and with online adaptation on the same windows."""
        return self.replay["zero_shot"][order], self.replay["adapted"][order]


def zero_shot(folder: Path) -> str:
    """Return mean scores without data of the subject."""
    scores = ConfirmationScores(folder)
    shown = {
        "EEGNet (paper)": "EEGNet (paper)", "LDA on features": "shrinkage LDA", "tangent space": "tangent space, LDA",
        "best single candidate": "best single candidate", "AutoTransfer": ENSEMBLE,
    }  # fmt: skip
    columns = {head: set_means(scores.zero_shot[name]) for head, name in shown.items()}
    n_subjects = {dataset: len(subjects) for dataset, subjects in scores.zero_shot[ENSEMBLE].items()}
    return by_set_table(columns, n_subjects)


def with_subject_data(folder: Path) -> str:
    """Return mean scores without and with unlabeled windows or labels of the subject."""
    scores = ConfirmationScores(folder)
    ensemble = scores.zero_shot[ENSEMBLE]
    before, after, own = scores.labels(5)
    blocks = [
        [ensemble, scores.all_windows[ENSEMBLE]],
        list(scores.online("recorded")),
        [before, own, after],
    ]
    means = [[set_means(means) for means in block] for block in blocks]
    rows = [[dataset, *(_arrows([m[dataset] for m in block]) for block in means)] for dataset in sorted(ensemble)]
    rows.append(["mean over sets", *(_arrows([float(np.mean(list(m.values()))) for m in block]) for block in means)])
    heads = ["", "zero-shot → all unlabeled windows at once", "zero-shot → online session, as recorded",
             "zero-shot → own classifier → calibrated with five labels of each class"]  # fmt: skip
    return markdown(heads, rows)


def _arrows(means: list[float]) -> str:
    return " → ".join(bold_best(means))


def _claims(scores: ConfirmationScores) -> dict[str, Claim]:
    ensemble, all_windows = scores.zero_shot[ENSEMBLE], scores.all_windows[ENSEMBLE]
    before, after, own = scores.labels(5)
    return {
        "zero-shot, versus the better of the run's two baselines": (ensemble, scores.best_run_baseline(), SELECTED),
        "zero-shot, versus EEGNet (paper)": (ensemble, scores.zero_shot["EEGNet (paper)"], ""),
        "zero-shot, versus the best of all baselines": (ensemble, scores.best_baseline(ZERO_SHOT_BASELINES), SELECTED),
        "all windows, versus the best baseline with all windows": (
            all_windows, scores.best_baseline(ALL_WINDOWS_BASELINES), SELECTED
        ),
        "weighted ensemble, versus the best single candidate": (
            ensemble, scores.zero_shot["best single candidate"], ""),
        "fitted weights, versus equal weights": (ensemble, scores.zero_shot["equal weights"], ""),
        "all windows, versus zero-shot": (all_windows, ensemble, ""),
        **{
            f"online session {name}, versus zero-shot": (*scores.online(order)[::-1], "")
            for order, name in ORDERS.items()
        },
        "five labels of each class, versus zero-shot": (after, before, ""),
        "five labels of each class, versus the subject's own classifier": (after, own, ""),
        **_penalties(scores),
    }  # fmt: skip


def _penalties(scores: ConfirmationScores) -> dict[str, Claim]:
    runs = {"zero-shot": scores.zero_shot, "all windows": scores.all_windows}
    return {
        f"penalties among the candidates, versus none, {mode}": (
            run[ENSEMBLE],
            run[f"{ENSEMBLE} without penalties"],
            "",
        )
        for mode, run in runs.items()
    }


def claims(folder: Path) -> str:
    """Return every difference with its intervals over subjects and over data sets."""
    compared = {name: (differences(a, b), mark) for name, (a, b, mark) in _claims(ConfirmationScores(folder)).items()}
    p = holm({name: _p_of_sets(gaps) for name, (gaps, _) in compared.items()})
    rows = [
        [name + mark, format_sets_ahead(g), str(mean_over_subjects(g)), str(mean_over_both(g)), probability(p[name])]
        for name, (g, mark) in compared.items()
    ]
    return markdown(["", "sets above 0", "over subjects", "sets, then subjects", "p, Holm"], rows)


def _p_of_sets(gaps: Differences) -> float:
    return float(stats.ttest_1samp([np.mean(list(subjects.values())) for subjects in gaps.values()], 0.0).pvalue)


def equivalent(folder: Path) -> str:
    """Return equivalence tests of penalties versus none."""
    claims = _penalties(ConfirmationScores(folder))
    return equivalence_table({name: differences(first, second) for name, (first, second, _) in claims.items()})


def harmed(folder: Path) -> str:
    """Return the shares of subjects who lose or gain by each step."""
    scores = ConfirmationScores(folder)
    ensemble = scores.zero_shot[ENSEMBLE]
    steps: dict[str, tuple[Scores, Scores]] = {
        "AutoTransfer instead of the better baseline": (ensemble, scores.best_run_baseline()),
        "all windows at once": (scores.all_windows[ENSEMBLE], ensemble),
        **{f"online session {ORDERS[order]}": scores.online(order)[::-1] for order in ("recorded", "one-sided")},
        **{f"{n} label{'s' * (n > 1)} of each class": scores.labels(n)[1::-1] for n in (1, 5)},
    }
    return harm_table({name: differences(after, before) for name, (after, before) in steps.items()})


def baselines(folder: Path) -> str:
    """Return differences to baselines that were fitted outside of the run, over data sets."""
    scores = ConfirmationScores(folder)
    measured = scores.baseline_means()
    blocks: list[tuple[str, dict[str, float], dict[str, dict[str, float]]]] = [
        ("zero-shot", set_means(scores.zero_shot[ENSEMBLE]), {
            "the better of the run's two baselines": set_means(scores.best_run_baseline()),
            "LDA on log power": measured["LDA on log power"], "pyRiemann": measured["pyRiemann"],
            "the best feature set": scores.best_feature_sets("zero_shot"),
        }),
        ("all windows", set_means(scores.all_windows[ENSEMBLE]), {
            "pyRiemann, re-centered": measured["pyRiemann, re-centered"],
            "the best feature set, z-scored by subject": scores.best_feature_sets("z_scored_by_subject"),
        }),
    ]  # fmt: skip
    rows = []
    for mode, ours, others in blocks:
        best = {dataset: max(means[dataset] for means in others.values()) for dataset in ours}
        for name, means in {**others, "the best of these on each set": best}.items():
            gaps = {dataset: {"": ours[dataset] - value} for dataset, value in means.items()}
            rows.append([mode, name, format_sets_ahead(gaps), str(mean_over_sets(gaps))])
    return markdown(["", "AutoTransfer minus", "sets ahead", "over sets"], rows)


# ---- the figure ------------------------------------------------------------------------------------------------------

SETS = {
    "eeg_sam40": "EEG, stress tasks", "emg_electrode_shift": "EMG, moved armband", "emg_intensity": "EMG, force levels",
    "emg_limb_position": "EMG, arm positions", "emg_lowerlimb": "EMG, leg", "emg_minimal": "EMG, armband",
    "emg_uci": "EMG, armband (UCI)", "imu_har": "phone and watch",
}  # fmt: skip
NOTES = ("mean gain", "95 % interval", f"gain / lose more than {score(HARM)}")
ALT = (
    "Balanced accuracy on unseen subjects of eight sets, as four pairs: the better of two baselines and "
    "AutoTransfer; without and with online adaptation; without and with all unlabeled windows; without and with five "
    "labels of each class"
)


def picture(folder: Path) -> str:
    """Draw the means of each data set without and with data of the subject."""
    scores = ConfirmationScores(folder)
    ensemble = scores.zero_shot[ENSEMBLE]
    before, after, own = scores.labels(5)
    panels = [
        _panel("no data", ("better baseline", "AutoTransfer"), scores.best_run_baseline(), ensemble),
        _panel("online session", ("zero-shot", "online"), *scores.online("recorded")),
        _panel("all windows", ("zero-shot", "all windows"), ensemble, scores.all_windows[ENSEMBLE]),
        _panel("five labels of each class", ("zero-shot", "calibrated"), before, after, own),
    ]
    names = {dataset: f"{SETS.get(dataset, dataset)} ({len(ensemble[dataset])})" for dataset in sorted(ensemble)}
    n_subjects = sum(map(len, ensemble.values()))
    head = f"Balanced accuracy on {n_subjects} unseen subjects, by the data of the subject that are used"
    return write_figure(folder, "gained", draw_gains(panels, names, NOTES, head), ALT)


def _panel(
    title: str, ends: tuple[str, str], before: Scores, after: Scores, own: Mapping[str, dict[str, float]] | None = None
) -> Gain:
    gains = differences(after, before)
    mean, (lose, gain) = mean_over_subjects(gains), harm_rates(gains)
    assert mean.interval is not None
    low, high = mean.interval
    notes = [signed(mean.value), f"{signed(low)} to {signed(high)}", f"{share(gain)} / {share(lose)}"]
    third = ("own classifier", set_means(dict(own))) if own else None
    return Gain(title, ends, set_means(before), set_means(after), notes, third)


def headline(folder: Path) -> str:
    """Return the main difference with its interval, as README quotes it."""
    scores = ConfirmationScores(folder)
    mean = mean_over_subjects(differences(scores.zero_shot[ENSEMBLE], scores.best_run_baseline()))
    assert mean.interval is not None
    low, high = map(score, mean.interval)
    return f"{score(mean.value)} balanced accuracy (95 % interval {low} to {high})"


PARTS = {
    "confirmed_zero_shot": zero_shot, "confirmed_person": with_subject_data, "confirmed_claims": claims,
    "confirmed_equivalence": equivalent, "confirmed_harm": harmed, "confirmed_baselines": baselines,
    "confirmed_picture": picture,
}  # fmt: skip
