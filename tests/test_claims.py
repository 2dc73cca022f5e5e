"""Sentences of README and of the results pages, recomputed from the CSVs without the code that wrote them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
KEYS = ["dataset", "subject"]
OURS = "weighted ensemble"
NOT_BASELINES = {"data", "adaptation", "version", "subject", "score", "first", "stages", "first_seconds", "seconds",
                 "time", "seeds"}  # fmt: skip


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / f"{name}.csv", dtype={"subject": str, "case": str}, keep_default_na=False)


def numbers(page: str, pattern: str) -> list[float]:
    """Return the numbers of the first match of a pattern, in which # stands for a number."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    number = r"([+−]?\d*\.?\d+)"
    match = re.search(re.escape(pattern).replace(re.escape("#"), number), text)
    assert match is not None, pattern
    return [float(group.replace("−", "-")) for group in match.groups()]


def confirmed(pipeline: str = OURS, name: str = "zero_shot") -> pd.Series:
    """Return scores by data set and subject of all confirmations that have the table."""
    folders = [folder for folder in ("confirmation", "confirmation2") if (RESULTS / folder / f"{name}.csv").exists()]
    rows = pd.concat([table(f"{folder}/{name}") for folder in folders])
    return rows[rows["pipeline"] == pipeline].set_index(KEYS)["score"]


def replayed(method: str, case: str, folders: tuple[str, ...] = ("confirmation", "confirmation2")) -> pd.Series:
    rows = pd.concat([table(f"{folder}/replay") for folder in folders])
    return rows[(rows["method"] == method) & (rows["case"] == case)].set_index(KEYS)["score"]


def own_baselines() -> pd.DataFrame:
    """Return the baselines that the confirmations fitted: rows of data set, subject, name and score."""
    first, second = table("confirmation/zero_shot"), table("confirmation2/zero_shot")
    first = first[first["pipeline"].isin(["shrinkage LDA", "tangent space, LDA"])].assign(source="1")
    return pd.concat([first, second[second["pipeline"] != OURS].assign(source="2")]).rename(
        columns={"pipeline": "name"}
    )


def committed(modes: tuple[str, ...], sources: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Return all committed baselines of these adaptations; an empty subject is a mean over subjects."""
    files = sorted((RESULTS / "baselines").glob("*.csv"))
    tables = [table(f"baselines/{path.stem}").assign(source=path.stem) for path in files]
    tables = [rows.rename(columns={"baseline": "name"}) for rows in tables]
    runs = table("default_runs").rename(columns={"data": "dataset"})
    for name in set(runs) - NOT_BASELINES - {"dataset"}:
        score = pd.to_numeric(runs[name], errors="coerce")
        tables.append(runs[[*KEYS, "adaptation"]].assign(name=name, score=score, source="run").dropna())
    stage = table("cases").rename(columns={"data": "dataset", "case": "name"})
    ours = r"zero_shot|windows|session|all_windows|(before|calibrated|own) \d+"
    tables.append(stage[~stage["name"].str.fullmatch(ours)].assign(adaptation="zero-shot", source="stage"))
    tables.append(own_baselines().assign(adaptation="zero-shot"))
    rows = pd.concat(tables)
    rows = rows[rows["adaptation"].isin(modes)]
    rows = rows if sources is None else rows[rows["source"].isin(sources)]
    return rows.groupby(["dataset", "source", "adaptation", "name", "subject"])["score"].mean().reset_index()


def minus_best(ours: pd.Series, baselines: pd.DataFrame) -> pd.Series:
    """Return AutoTransfer minus the complete baseline with the highest mean, as means of data sets."""
    found = {}
    for dataset, scores in ours.groupby("dataset"):
        rows = baselines[baselines["dataset"] == dataset].groupby(["source", "adaptation", "name"])
        means = [g["score"].mean() for _, g in rows if len(g) == len(scores) or list(g["subject"]) == [""]]
        found[dataset] = scores.mean() - max(means)
    return pd.Series(found)


def test_readme_counts_runs_and_subjects() -> None:
    ours = confirmed()
    first = {d for d in ours.index.get_level_values(0) if (table("confirmation/zero_shot")["dataset"] == d).any()}
    in_first = ours.index.get_level_values(0).isin(first)
    pattern = "on # data sets with # subjects and version 0.2.0.dev0 (commit b5a1b112) on # data sets with # subjects"
    n_sets = ours.index.get_level_values(0).nunique()
    expected = [len(first), in_first.sum(), n_sets - len(first), (~in_first).sum()]
    assert numbers("README.md", pattern) == expected
    sheets = table("datasets").query("used != 'development'")
    assert numbers("README.md", "the # data sets are EMG (#), motion (#)")[0] == len(sheets) == n_sets
    assert numbers("README.md", "data sets are EMG (#), motion (#)") == [
        sum(sheets["signal"] == name) for name in ("EMG", "motion")
    ]
    assert numbers("README.md", "# were recorded with the same armband (Myo)") == [sum(sheets["myo"] == "yes")]


def test_the_difference_to_the_best_baseline_of_the_run_has_a_hierarchical_interval() -> None:
    ours, baselines = confirmed(), own_baselines()
    means = baselines.groupby(["dataset", "source", "name"])["score"].mean()
    gaps = []
    for dataset, scores in ours.groupby("dataset"):
        name = means[dataset].idxmax()[1]
        best = baselines[(baselines["dataset"] == dataset) & (baselines["name"] == name)].set_index(KEYS)["score"]
        gaps.append((scores - best[scores.index]).to_numpy())
    found = numbers("README.md", "the difference to the best baseline of the same run is # (# to #)")
    draw, k = np.random.default_rng(7), len(gaps)
    resampled = [
        np.mean([draw.choice(gaps[i], len(gaps[i])).mean() for i in draw.integers(0, k, k)]) for _ in range(4000)
    ]
    tail = stats.norm.cdf(np.sqrt(k / (k - 1)) * stats.t.ppf(0.025, k - 1))
    assert found[0] == pytest.approx(np.mean([gap.mean() for gap in gaps]), abs=6e-4)
    assert found[1:] == pytest.approx(np.quantile(resampled, (tail, 1 - tail)), abs=5e-3)
    ahead = sum(gap.mean() > 0 for gap in gaps)
    assert numbers("README.md", "The score is higher on # of # data sets") == [ahead, k]


def test_who_is_ahead_of_autotransfer() -> None:
    gaps = minus_best(confirmed(), committed(("zero-shot",)))
    found = numbers("README.md", "the best of all baselines is # (# to #)")
    assert found[0] == pytest.approx(gaps.mean(), abs=6e-4)
    assert numbers("README.md", "A baseline scores higher on # [data sets]") == [(gaps < 0).sum()]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for dataset in gaps[gaps < 0].index:
        assert f" {dataset} (" in text


def test_sessions_and_labels() -> None:
    gain = (replayed("adapted", "recorded") - replayed("zero_shot", "recorded")).groupby("dataset").mean()
    found = numbers("README.md", "An online session without labels adds # (# to #) on # data sets")
    assert (found[0], found[3]) == (pytest.approx(gain.mean(), abs=6e-4), len(gain))
    losing = []
    for folder in ("confirmation", "confirmation2"):
        rows = (folder,)
        change = replayed("adapted", "recorded", rows) - replayed("zero_shot", "recorded", rows)
        losing.append(round(100 * (change.round(10) < -0.02).mean()))
    pattern = "lowers the score by more than .020 in # % of subjects (version 0.1.0) and in # %"
    assert numbers("README.md", pattern) == losing
    labels = (replayed("calibrated", "5") - replayed("before", "5")).groupby("dataset").mean()
    found = numbers("README.md", "Five labeled windows per class add # (# to #) on # data sets")
    assert (found[0], found[3]) == (pytest.approx(labels.mean(), abs=6e-4), len(labels))


@pytest.mark.parametrize(
    ("row", "modes", "sources"),
    [
        ("0.1.0 | zero-shot | and LDA, pyRiemann and features of the signal |", ("zero-shot",),
         ("1", "libraries", "set_means")),
        ("0.1.0 | zero-shot | and the field, without later code |", ("zero-shot",),
         ("1", "libraries", "set_means", "field")),
        ("0.2.0.dev0 | zero-shot | and the field, without later code |", ("zero-shot",), ("2", "set_means", "field")),
        ("0.2.0.dev0 | zero-shot | and later code of AutoTransfer, and averages: all |", ("zero-shot",), None),
        ("0.1.0 | transductive | LDA, pyRiemann and features of the signal |", ("transductive",),
         ("libraries", "set_means")),
    ],
)  # fmt: skip
def test_the_difference_depends_on_the_baselines_that_count(
    row: str, modes: tuple[str, ...], sources: tuple[str, ...] | None
) -> None:
    name = "zero_shot" if modes == ("zero-shot",) else "all_windows"
    rows = table(f"confirmation{'2' * row.startswith('0.2')}/{name}")
    ours = rows[rows["pipeline"] == OURS].groupby(KEYS)["score"].mean()
    baselines = committed(modes, sources)
    later = baselines["name"].str.contains("statistics, intervals and speed|trained as candidates|^average")
    gaps = minus_best(ours, baselines[~later] if sources else baselines)
    assert numbers("docs/results.md", f"| {row} # of # | # (")[:2] == [(gaps > 0).sum(), len(gaps)]
    assert numbers("docs/results.md", f"| {row} # of # | # (")[2] == pytest.approx(gaps.mean(), abs=6e-4)


@pytest.mark.parametrize("adaptation", ["zero-shot", "transductive"])
def test_development_counts_all_baselines(adaptation: str) -> None:
    runs = table("default_runs").rename(columns={"data": "dataset"})
    ours = runs[runs["adaptation"] == adaptation].set_index(KEYS)["score"]
    gaps = minus_best(ours, committed(tuple({adaptation, "zero-shot"})))
    sizes = ours.groupby("dataset").size()
    found = numbers("docs/results.md", f"| {adaptation} | the best of all committed | # of # | # (")
    assert found[:2] == [(gaps > 0).sum(), len(gaps)]
    assert found[2] == pytest.approx(np.average(gaps, weights=sizes[gaps.index]), abs=6e-4)


def test_outliers_among_five_labels_and_clear_losses() -> None:
    stage = table("cases").pivot(index=["data", "subject"], columns="case", values="score")
    both = stage[["before 5", "calibrated 5"]].dropna().groupby("data").mean()
    rest = both.drop(index=["ecg_mitbih", "emg_knee"])
    found = numbers("docs/results.md", "emg_knee (# → #), where labeled and scored windows")
    assert found == pytest.approx(both.loc["emg_knee"].tolist(), abs=6e-4)
    found = numbers("docs/results.md", "Without them five labels add # (# to #) over # data sets")
    assert (found[0], found[3]) == (
        pytest.approx((rest["calibrated 5"] - rest["before 5"]).mean(), abs=6e-4),
        len(rest),
    )
    rows = table("confirmation2/replay")
    tested = rows[(rows["method"] == "adapted") & (rows["loses"] != "")]
    pattern = (
        "In # replays of version 0.2.0.dev0 (every subject in # orders), a bootstrap of the subject's windows finds"
    )
    assert numbers("docs/results.md", pattern) == [len(tested), tested["case"].nunique()]
    assert numbers("docs/results.md", "finds a clear loss in # %") == [
        round(100 * (tested["loses"] == "True").mean(), 1)
    ]


def test_training_sets_vary_as_stated() -> None:
    rows = table("training_sets")
    means = rows.groupby(["dataset", "repetition", "model", "half"])["score"].mean()
    gaps = means.xs(0, level="half") - means.xs(1, level="half")
    pair = gaps.xs("extra trees", level="model") - gaps.xs("LDA", level="model")
    of_models = ((gaps**2).groupby(["dataset", "model"]).mean() / 2).pow(0.5).groupby("dataset").mean()
    of_pair = ((pair**2).groupby("dataset").mean() / 2).pow(0.5)
    found = numbers("docs/results.md", "On # data sets a linear model and trees were fitted to disjoint halves")
    assert found == [len(of_models)]
    pattern = "between training sets is # in the mean (# to #), and that of the difference of the two models # (# to #)"
    expected = [f(values) for values in (of_models, of_pair) for f in (np.mean, np.min, np.max)]
    assert numbers("docs/results.md", pattern) == pytest.approx(expected, abs=6e-4)


def test_runs_of_development() -> None:
    runs = table("default_runs")
    one = runs[(runs["adaptation"] == "transductive") & (runs["seeds"] == 1)]["data"].nunique()
    assert numbers("docs/results.md", "and # have 1 seed (commit d15c8c40") == [one]
    dataset = runs[(runs["adaptation"] == "zero-shot") & (runs["data"] == "imu_har")]
    names = [name for name in set(runs) - NOT_BASELINES if pd.to_numeric(dataset[name], errors="coerce").notna().all()]
    best = max(pd.to_numeric(dataset[name]).mean() for name in names)
    found = numbers("docs/results.md", "| imu_har | # | # → #,")
    assert found == [len(dataset), pytest.approx(best, abs=6e-4), pytest.approx(dataset["score"].mean(), abs=6e-4)]


def test_penalties_do_not_raise_the_score() -> None:
    changes = table("changes")
    scores = changes.groupby(["change", *KEYS])["score"].mean()
    names = changes.loc[changes["part"] == "penalties", ["change", "reference"]].drop_duplicates()
    pairs = names.itertuples(index=False)
    gains = {change: (scores[change] - scores[reference]).dropna() for change, reference in pairs}
    limits = [stats.t.interval(0.95, len(g) - 1, g.mean(), stats.sem(g)) for g in gains.values()]
    found = numbers("docs/negative_result.md", "# of # 95 % intervals over subjects lie above no penalty, # lie below")
    assert found == [sum(low > 0 for low, _ in limits), len(gains), sum(high < 0 for _, high in limits)]
    best = max(gains, key=lambda name: gains[name].mean())
    found = numbers("docs/negative_result.md", f"of {' '.join(best.split()[:3])}, # (")
    assert found == [pytest.approx(gains[best].mean(), abs=6e-4)]
