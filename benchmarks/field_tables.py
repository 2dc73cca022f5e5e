"""Compare runs of development with all committed baselines in docs/results.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autotransfer.words import score

from .evidence import Baseline, Scores, collect_baselines, read_scores, scores_by, select_best, set_means
from .inference import Differences, format_sets_ahead, mean_over_both, mean_over_data, mean_over_subjects
from .markdown import markdown

ADAPTATIONS = ("zero-shot", "transductive")
PUBLISHED = ("field", "libraries")  # CSVs with baselines of other libraries, by subject


def read_runs(folder: Path) -> dict[str, Scores]:
    """Return the scores of default runs by adaptation."""
    runs = read_scores(folder, "default_runs").rename(columns={"data": "dataset"}).sort_values(["dataset", "subject"])
    scores: dict[str, Scores] = scores_by(runs, "adaptation", "dataset", "subject")
    return scores


def minus_best(folder: Path, ours: Scores, adaptation: str, keep: Callable[[Baseline], bool]) -> Differences:
    """Return AutoTransfer minus the best of these baselines on each data set."""
    best = {d: select_best(filter(keep, collect_baselines(folder, d, adaptation))) for d in ours}
    return {d: baseline.subtract_from(ours[d]) for d, baseline in best.items() if baseline}


def ahead(folder: Path) -> str:
    """Return the data sets on which a committed baseline has a higher mean than AutoTransfer."""
    rows = []
    for adaptation, ours in read_runs(folder).items():
        means = set_means(ours)
        for dataset in ours:
            found = collect_baselines(folder, dataset, adaptation)
            above = [baseline for baseline in found if baseline.mean > means[dataset]]
            if best := select_best(above):
                gap = mean_over_subjects({dataset: best.subtract_from(ours[dataset])})
                n_above, n = (len({baseline.name for baseline in some}) for some in (above, found))
                cells = [dataset, adaptation, f"{n_above} of {n}", best.name, *map(score, (best.mean, means[dataset]))]
                rows.append((gap.value, [*cells, str(gap)]))
    heads = ["data set", "adaptation", "baselines ahead", "the best of them", "its mean", "AutoTransfer",
             "AutoTransfer minus the best"]  # fmt: skip
    return markdown(heads, [cells for _, cells in sorted(rows)]) if rows else "None.\n"


def best_of_all(folder: Path) -> str:
    """Return AutoTransfer minus the best baseline of each set, for several sets of baselines."""
    counted: dict[str, Callable[[Baseline], bool]] = {
        "of the run": lambda b: b.source == "run default",
        "of the run and the field": lambda b: b.source in ("run default", "field"),
        "of all committed": lambda b: True,
    }
    rows = []
    for adaptation in ADAPTATIONS:
        ours = read_runs(folder)[adaptation]
        for name, keep in counted.items():
            gaps = minus_best(folder, ours, adaptation, keep)
            means = [str(mean_over_subjects(gaps)), str(mean_over_both(gaps))]
            rows.append([adaptation, f"the best {name}", format_sets_ahead(gaps), *means])
    return markdown(["adaptation", "AutoTransfer minus", "sets ahead", "over subjects", "sets, then subjects"], rows)


def gaps(folder: Path) -> str:
    """Return AutoTransfer minus each baseline of other libraries."""
    rows: dict[str, list[str]] = {}
    for index, adaptation in enumerate(ADAPTATIONS):
        ours, by_name = read_runs(folder)[adaptation], dict[str, Differences]()
        for dataset in ours:
            for b in collect_baselines(folder, dataset, adaptation):
                if b.source in PUBLISHED and b.is_transductive == (adaptation == "transductive"):
                    name = b.name.removesuffix(", all windows")
                    by_name[name] = {**by_name.get(name, {}), dataset: b.subtract_from(ours[dataset])}
        for name, differences in by_name.items():
            cells = [format_sets_ahead(differences), str(mean_over_data(differences))]
            rows.setdefault(name, ["–"] * 4)[2 * index : 2 * index + 2] = cells
    heads = [f"{head}, {adaptation}" for adaptation in ADAPTATIONS for head in ("sets ahead", "difference")]
    return markdown(["AutoTransfer minus", *heads], [[name, *cells] for name, cells in sorted(rows.items())])


PARTS = {"field_ahead": ahead, "field_best": best_of_all, "field_differences": gaps}
