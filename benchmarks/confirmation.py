"""Tables, figure and sentences of README and docs/results.md on the confirmations: single runs on unused data sets.

FOLDER/confirmation and FOLDER/confirmation2 have a score for every subject in zero_shot.csv and replay.csv, the first
also in all_windows.csv. The best of all committed baselines is collected by benchmarks.evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
from scipy import stats

from autotransfer.report.statistics import holm
from autotransfer.report.wording import probability, share
from autotransfer.words import score, signed

from .drawing import Gain, draw_gains, write_figure
from .evidence import (
    ENSEMBLE,
    Baseline,
    Scores,
    collect_baselines,
    data_sheets,
    differences,
    read_scores,
    scores_by,
    select_best,
    set_means,
)
from .inference import (
    HARM,
    Differences,
    all_values,
    equivalence_table,
    format_sets_ahead,
    harm_rates,
    harm_table,
    mean_over_both,
    mean_over_data,
    mean_over_sets,
    mean_over_subjects,
)
from .markdown import bold_best, join_words, markdown

LABELS = 5  # number of labels of each class
SELECTED = "\\*"  # marks rows whose baseline was selected on the same scores, which favors the baseline


@dataclass(frozen=True)
class Confirmation:
    """Scores of one version on data sets that had not been used in its development."""

    results: Path
    name: str  # name of the folder
    version: str
    commit: str
    seeds: int

    @cached_property
    def zero_shot(self) -> dict[str, Scores]:
        return self._pipelines("zero_shot")

    @cached_property
    def all_windows(self) -> dict[str, Scores]:
        """Return scores with all unlabeled windows of a subject; empty without complete transductive runs."""
        return self._pipelines("all_windows") if (self.results / self.name / "all_windows.csv").exists() else {}

    @cached_property
    def replay(self) -> dict[str, dict[str, Scores]]:
        return scores_by(read_scores(self.results / self.name, "replay"), "method", "case", "dataset", "subject")

    @property
    def ours(self) -> Scores:
        return self.zero_shot[ENSEMBLE]

    def _pipelines(self, name: str) -> dict[str, Scores]:
        return scores_by(read_scores(self.results / self.name, name), "pipeline", "dataset", "subject")

    def baselines(self, dataset: str, adaptation: str = "zero-shot") -> tuple[Baseline, ...]:
        return collect_baselines(self.results, dataset, adaptation)

    def is_own(self, baseline: Baseline) -> bool:
        """Return whether the confirmation itself fitted the baseline, on the folds of the run."""
        return baseline.source == f"run {self.name}"

    def minus_best(
        self, keep: Callable[[Baseline], bool] = lambda _: True, adaptation: str = "zero-shot"
    ) -> Differences:
        """Return AutoTransfer minus the best of these baselines on each data set."""
        ours = self.ours if adaptation == "zero-shot" else self.all_windows.get(ENSEMBLE, {})
        best = {dataset: select_best(filter(keep, self.baselines(dataset, adaptation))) for dataset in ours}
        return {dataset: baseline.subtract_from(ours[dataset]) for dataset, baseline in best.items() if baseline}

    def minus_pipeline(self, name: str, transductive: bool = False) -> Differences:
        run = self.all_windows if transductive else self.zero_shot
        return differences(run[ENSEMBLE], run[name]) if name in run else {}

    def minus_zero_shot(self) -> Differences:
        return differences(self.all_windows.get(ENSEMBLE, {}), self.ours)

    def online_gain(self, order: str) -> Differences:
        return differences(self.replay["adapted"][order], self.replay["zero_shot"][order])

    def label_gain(self, over: str, number: int = LABELS) -> Differences:
        """Return calibrated scores minus scores without labels (before) or of the subject's own classifier (own)."""
        return differences(self.replay["calibrated"][str(number)], self.replay[over][str(number)])


@cache
def read_confirmations(folder: Path) -> tuple[Confirmation, Confirmation]:
    return (
        Confirmation(folder, "confirmation", "0.1.0", "ddfcb1d", 1),
        Confirmation(folder, "confirmation2", "0.2.0.dev0", "b5a1b112", 3),
    )


Claim = Callable[[Confirmation], Differences]  # empty if the confirmation did not measure it
VERSUS_RUN = f"zero-shot, versus the best baseline of the run{SELECTED}"
VERSUS_ALL = f"zero-shot, versus the best of all committed baselines{SELECTED}"
ONLINE = "online session as recorded, versus zero-shot"
ALL_WINDOWS = "all windows, versus zero-shot"
FIVE_LABELS = "five labels of each class, versus zero-shot"
PENALTIES: dict[str, Claim] = {
    f"penalties among the candidates, versus none, {name}": partial(
        Confirmation.minus_pipeline, name=f"{ENSEMBLE} without penalties", transductive=transductive
    )
    for name, transductive in {"zero-shot": False, "all windows": True}.items()
}
CLAIMS: dict[str, Claim] = {
    VERSUS_RUN: lambda c: c.minus_best(c.is_own),
    VERSUS_ALL: Confirmation.minus_best,
    "zero-shot, versus the equal average of generic baselines": partial(
        Confirmation.minus_best, keep=lambda b: b.name == "average of generic baselines"
    ),
    "zero-shot, versus EEGNet (paper)": partial(Confirmation.minus_pipeline, name="EEGNet (paper)"),
    f"all windows, versus the best of all committed baselines{SELECTED}": partial(
        Confirmation.minus_best, adaptation="transductive"
    ),
    "weighted ensemble, versus the best single candidate": partial(
        Confirmation.minus_pipeline, name="best single candidate"
    ),
    "fitted weights, versus equal weights": partial(Confirmation.minus_pipeline, name="equal weights"),
    ALL_WINDOWS: Confirmation.minus_zero_shot,
    ONLINE: partial(Confirmation.online_gain, order="recorded"),
    FIVE_LABELS: partial(Confirmation.label_gain, over="before"),
    "five labels of each class, versus the subject's own classifier": partial(Confirmation.label_gain, over="own"),
    **PENALTIES,
}


def both(folder: Path, claim: str) -> Differences:
    """Return the differences of a claim on the data sets of all confirmations."""
    return {dataset: gaps for c in read_confirmations(folder) for dataset, gaps in CLAIMS[claim](c).items()}


# ---- sentences -------------------------------------------------------------------------------------------------------


def list_ahead(folder: Path) -> list[str]:
    """Return each data set of the confirmations on which a baseline is ahead, with the best baseline."""
    found = []
    for confirmation in read_confirmations(folder):
        for dataset, ours in sorted(confirmation.ours.items()):
            best = select_best(confirmation.baselines(dataset))
            mean = set_means({dataset: ours})[dataset]
            if best is not None and best.mean > mean:
                found.append(f"{best.name} on {dataset} ({score(best.mean)}, AutoTransfer {score(mean)})")
    return found


def describe_runs(folder: Path) -> str:
    runs = [
        f"version {c.version} (commit {c.commit}) on {len(c.ours)} data sets with "
        f"{sum(map(len, c.ours.values()))} subjects"
        for c in read_confirmations(folder)
    ]
    return f"Two versions were evaluated once each, on data sets that had not been used before: {' and '.join(runs)}."


def describe_signals(folder: Path) -> str:
    sheets = data_sheets(folder)
    sheets = sheets[sheets["used"] != "development"]
    counts = sheets["signal"].value_counts()
    parts = [f"{signal} ({n})" for signal, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    myo = int((sheets["myo"] == "yes").sum())
    words = f"The signals of the {len(sheets)} data sets are {join_words(parts)}."
    return f"{words} {myo} were recorded with the same armband (Myo)."


def summary(folder: Path) -> str:
    """Return the first sentences of docs/results.md."""
    run, every = both(folder, VERSUS_RUN), both(folder, VERSUS_ALL)
    older = {d: gaps for c in read_confirmations(folder) for d, gaps in c.minus_best(lambda b: not b.is_later).items()}
    lines = [
        describe_runs(folder),
        f"Zero-shot scores are above the best baseline of the same run on {format_sets_ahead(run)} data sets, by "
        f"{mean_over_both(run)} over data sets and then subjects.",
        f"They are above the best of all committed baselines on {format_sets_ahead(every)} data sets, by "
        f"{mean_over_both(every)}.",
        f"A baseline scores higher in {len(list_ahead(folder))} cases: {'; '.join(list_ahead(folder))}.",
        f"Without baselines that use later code of AutoTransfer, scores are above the best on "
        f"{format_sets_ahead(older)} data sets, by {mean_over_both(older)}.",
        describe_signals(folder),
    ]
    return " ".join(lines) + "\n"


def readme(folder: Path) -> str:
    """Return the numbers of README."""
    run, every = both(folder, VERSUS_RUN), both(folder, VERSUS_ALL)
    ahead = [text.partition(" on ")[2] for text in list_ahead(folder)]  # without the names of the baselines
    online, labels = both(folder, ONLINE), both(folder, FIVE_LABELS)
    rates = {c.version: harm_rates(c.online_gain("recorded"))[0] for c in read_confirmations(folder)}
    losing = join_words([f"in {share(rate)} of subjects (version {version})" for version, rate in rates.items()])
    lines = [
        f"{describe_runs(folder)} Numbers are mean differences with 95 % bootstrap intervals over data sets and the "
        "subjects in them.",
        "",
        f"- Without any data of the new subject, the difference to the best baseline of the same run is "
        f"{mean_over_both(run)}. The score is higher on {format_sets_ahead(run)} data sets.",
        f"- The difference to the best of all baselines is {mean_over_both(every)}. These baselines include other "
        "packages and models that were added to AutoTransfer later, and the best one is selected on the same scores. "
        f"A baseline scores higher on {len(ahead)} [data sets](docs/results.md#by-type-of-signal): {', '.join(ahead)}.",
        f"- An online session without labels adds {mean_over_both(online)} on {len(online)} data "
        f"sets. It lowers the score by more than {score(HARM)} {losing}.",
        f"- Five labeled windows per class add {mean_over_both(labels)} on {len(labels)} data sets.",
    ]
    return "\n".join(lines) + "\n"


def limits(folder: Path) -> str:
    """Return limitations that follow from the tables."""
    first, second = read_confirmations(folder)
    sheets = data_sheets(folder)
    one = [d for d in sorted({**first.ours, **second.ours}) if sheets.loc[d, "one_recording"]]
    missing = sorted(set(second.ours) - set(second.replay["zero_shot"]["recorded"]))
    lines = [
        f"Runs of version {first.version} have {first.seeds} seed, those of version {second.version} {second.seeds}.",
        describe_signals(folder),
        f"On {', '.join(one)}, labeled and scored windows of a class are from one uninterrupted recording.",
        f"No transductive result is claimed for version {second.version}, because one transductive run of "
        f"{len(second.ours)} ended in time, and {', '.join(missing)} was not replayed.",
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n"


def readme_limits(folder: Path) -> str:
    """Return the limitations that README names."""
    return (
        f"{describe_signals(folder)} Intervals do not include the variation between training sets. Later versions were "
        "tested only on data sets that were used to develop them.\n"
    )


# ---- tables ----------------------------------------------------------------------------------------------------------


def by_signal(folder: Path) -> str:
    """Return zero-shot differences by type of signal."""
    run, every = both(folder, VERSUS_RUN), both(folder, VERSUS_ALL)
    groups = {**_sets_by_signal(folder, list(run)), "all": sorted(run)}
    rows = []
    for signal, datasets in groups.items():
        cells = [signal, str(len(datasets)), str(sum(len(run[dataset]) for dataset in datasets))]
        for gaps in (run, every):
            chosen = {dataset: gaps[dataset] for dataset in datasets}
            cells += [format_sets_ahead(chosen), str(mean_over_data(chosen))]
        rows.append(cells)
    heads = ["sets ahead", f"best baseline of the run{SELECTED}", "sets ahead", f"best of all baselines{SELECTED}"]
    return markdown(["signal", "sets", "subjects", *heads], rows)


def _sets_by_signal(folder: Path, datasets: list[str]) -> dict[str, list[str]]:
    """Return signal -> data sets, signals with most data sets first."""
    signals = data_sheets(folder).loc[sorted(datasets), "signal"]
    return {str(signal): list(signals.index[signals == signal]) for signal in signals.value_counts().index}


def by_set(folder: Path) -> str:
    """Return mean zero-shot scores by data set: the best baselines and AutoTransfer."""
    rows = []
    confirmations = {dataset: c for c in read_confirmations(folder) for dataset in c.ours}
    for datasets in _sets_by_signal(folder, list(confirmations)).values():
        for dataset in datasets:
            c = confirmations[dataset]
            all_baselines = c.baselines(dataset)
            conditions: list[Callable[[Baseline], bool]] = [
                c.is_own, lambda b: b.kind == "generic", lambda b: b.kind == "specialist"
            ]  # fmt: skip
            best = [select_best(filter(keep, all_baselines)) for keep in conditions]
            ours = set_means(c.ours)[dataset]
            cells = bold_best([*(b.mean if b else None for b in best), ours])
            named = [f"{cell} {b.name}" if b else cell for cell, b in zip(cells[1:3], best[1:], strict=True)]
            n_names = len({b.name for b in all_baselines})
            rows.append([dataset, c.version, str(len(c.ours[dataset])), str(n_names), cells[0], *named, cells[-1]])
    heads = ["", "version", "subjects", "baselines", "best of the run", "best generic baseline", "best specialist"]
    return markdown([*heads, "AutoTransfer"], rows)


COUNTED = {  # adaptation -> name of a set of baselines -> sources without baselines of later code; empty: all baselines
    "zero-shot": {
        "of the same run": ("{run}",),
        "and LDA, pyRiemann and features of the signal": ("{run}", "libraries", "set_means"),
        "and the field, without later code": ("{run}", "libraries", "set_means", "field"),
        "and later code of AutoTransfer, and averages: all": (),
    },
    "transductive": {
        "LDA, pyRiemann and features of the signal": ("libraries", "set_means"),
        "and the field, without later code": ("libraries", "set_means", "field"),
        "and later code of AutoTransfer, and zero-shot: all": (),
    },
}


def counted(folder: Path) -> str:
    """Return how the difference to the best baseline depends on the baselines that are counted."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for c in read_confirmations(folder):
        for adaptation, steps in COUNTED.items():
            for name, sources in steps.items():
                gaps = c.minus_best(_keep(c, adaptation, sources), adaptation)
                if gaps:
                    cells = [format_sets_ahead(gaps), str(mean_over_sets(gaps)), str(mean_over_both(gaps))]
                    rows.setdefault((c.version, *cells), [c.version, adaptation, name, *cells])
    heads = ["version", "adaptation", "baselines counted", "sets ahead", "over sets", "sets, then subjects"]
    return markdown(heads, list(rows.values()))


def _keep(c: Confirmation, adaptation: str, sources: tuple[str, ...]) -> Callable[[Baseline], bool]:
    """Return a function that tells whether a baseline is counted. See `COUNTED` for the sources."""
    kept = {source.format(run=f"run {c.name}") for source in sources}
    used = adaptation == "transductive"
    return lambda b: not kept or (b.source in kept and not b.is_later and b.is_transductive == used)


def claims(folder: Path) -> str:
    """Return every difference by version, with its intervals over subjects and over data sets."""
    compared: dict[tuple[str, str], Differences] = {}
    for name, claim in CLAIMS.items():
        measured = {c.version: gaps for c in read_confirmations(folder) if (gaps := claim(c))}
        compared |= {(name, version): gaps for version, gaps in measured.items()}
        if len(measured) > 1:
            compared[name, "both"] = both(folder, name)
    p = holm({" ".join(key): _p_of_sets(gaps) for key, gaps in compared.items() if key[1] != "both"})
    rows = []
    for key, gaps in compared.items():
        means = [str(mean_over_subjects(gaps)), str(mean_over_both(gaps))]
        rows.append([*key, format_sets_ahead(gaps), *means, probability(p.get(" ".join(key)))])
    return markdown(["", "version", "sets above 0", "over subjects", "sets, then subjects", "p, Holm"], rows)


def _p_of_sets(gaps: Differences) -> float:
    return float(stats.ttest_1samp([np.mean(list(subjects.values())) for subjects in gaps.values()], 0.0).pvalue)


def equivalent(folder: Path) -> str:
    """Return equivalence tests of candidates with penalties versus candidates without penalties."""
    first = read_confirmations(folder)[0]
    return equivalence_table({name: claim(first) for name, claim in PENALTIES.items()})


def harmed(folder: Path) -> str:
    """Return the shares of subjects whose score decreases or increases by each step."""
    steps: dict[str, Claim] = {
        "AutoTransfer instead of the best baseline of the run": CLAIMS[VERSUS_RUN],
        "all windows at once": CLAIMS[ALL_WINDOWS],
        "online session as recorded": CLAIMS[ONLINE],
        "online session class after class": partial(Confirmation.online_gain, order="one-sided"),
        "1 label of each class": partial(Confirmation.label_gain, over="before", number=1),
        "5 labels of each class": CLAIMS[FIVE_LABELS],
    }
    gaps = {
        f"{name}, {c.version}": found
        for name, step in steps.items()
        for c in read_confirmations(folder)
        if (found := step(c))
    }
    return harm_table(gaps)


def clear_losses(folder: Path) -> str:
    """Return a sentence with the shares of replays that lose clearly, and that lose more than HARM."""
    second = read_confirmations(folder)[1]
    rows = read_scores(folder / second.name, "replay")
    tested = rows[(rows["method"] == "adapted") & (rows["loses"] != "")]
    clear = (tested["loses"] == "True").mean()
    values = np.concatenate([all_values(second.online_gain(order)) for order in tested["case"].unique()])
    return (
        f"In {len(tested)} replays of version {second.version} (every subject in {tested['case'].nunique()} orders), a "
        f"bootstrap of the subject's windows finds a clear loss in {100 * clear:.1f} %, and "
        f"{100 * (values < -HARM).mean():.1f} % lose more than {score(HARM)}. The bootstrap has little power, so the "
        "second number is the one to expect.\n"
    )


# ---- the figure ------------------------------------------------------------------------------------------------------

NOTES = ("mean gain", "95 % interval", f"gain / lose more than {score(HARM)}")
ALT = (
    "Balanced accuracy on unseen subjects of 17 data sets by type of signal: the best of all committed baselines and "
    "AutoTransfer; without and with online adaptation; without and with all unlabeled windows; without and with five "
    "labels of each class"
)


def picture(folder: Path) -> str:
    """Draw the means of each data set without and with data of the subject, by type of signal."""
    confirmations = read_confirmations(folder)
    merged: dict[str, Scores] = {}
    for c in confirmations:
        shown = {
            "ours": c.ours, "all": c.all_windows.get(ENSEMBLE, {}), "session": c.replay["adapted"]["recorded"],
            "windows": c.replay["zero_shot"]["recorded"],
            **{method: c.replay[method][str(LABELS)] for method in ("before", "calibrated", "own")},
        }  # fmt: skip
        for name, scores in shown.items():
            merged.setdefault(name, {}).update(scores)
    means = {name: set_means(scores) for name, scores in merged.items()}
    ours = means["ours"]
    every = both(folder, VERSUS_ALL)
    best = {dataset: ours[dataset] - float(np.mean(list(gaps.values()))) for dataset, gaps in every.items()}
    panels = [
        _panel("no data", ("best of all baselines", "AutoTransfer"), best, ours, every, paired=False),
        _panel("online session", ("zero-shot", "online"), means["windows"], means["session"],
               both(folder, ONLINE)),
        _panel("all windows", ("zero-shot", "all windows"), ours, means["all"],
               both(folder, ALL_WINDOWS)),
        _panel("five labels of each class", ("zero-shot", "calibrated"), means["before"], means["calibrated"],
               both(folder, FIVE_LABELS), means["own"]),
    ]  # fmt: skip
    names: dict[str, str] = {}
    for signal, datasets in _sets_by_signal(folder, list(ours)).items():
        names[f"# {signal}"] = signal
        names |= {dataset: f"{dataset} ({len(merged['ours'][dataset])})" for dataset in datasets}
    n_subjects = sum(map(len, merged["ours"].values()))
    head = f"Balanced accuracy on {n_subjects} unseen subjects, by the data of the subject that are used"
    return write_figure(folder, "gained", draw_gains(panels, names, NOTES, head), ALT)


def _panel(
    title: str, ends: tuple[str, str], before: Mapping[str, float], after: Mapping[str, float], gains: Differences,
    own: Mapping[str, float] | None = None, *, paired: bool = True,
) -> Gain:  # fmt: skip
    """Return a panel. paired: whether scores are paired by subject, so that the panel states the share that loses."""
    mean, (lose, gain) = mean_over_both(gains), harm_rates(gains)
    assert mean.interval is not None
    low, high = mean.interval
    notes = [
        signed(mean.value),
        f"{signed(low)} to {signed(high)}",
        f"{share(gain)} / {share(lose)}" if paired else "–",
    ]
    return Gain(title, ends, before, after, notes, ("own classifier", own) if own else None)


PARTS = {
    "confirmed_summary": summary, "confirmed_picture": picture, "confirmed_signals": by_signal,
    "confirmed_sets": by_set, "confirmed_counted": counted, "confirmed_claims": claims, "readme": readme,
    "confirmed_equivalence": equivalent, "confirmed_harm": harmed, "confirmed_clear_losses": clear_losses,
    "confirmed_limits": limits, "readme_limits": readme_limits,
}  # fmt: skip
