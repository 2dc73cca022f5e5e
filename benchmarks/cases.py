"""Scores of runs in every case: zero-shot, online sessions, all windows at once, and calibration with labels.

`python -m benchmarks.default_runs DATA.npz... --cases FOLDER` adds the rows of each run to FOLDER/cases.csv,
FOLDER/online.csv and FOLDER/release_runs.csv. All scores are nested: models, weights and decisions come from the other
subjects. Labeled and scored windows share no group if the recordings have groups. A row of cases.csv is the score of
one subject in one case:

    zero_shot           zero-shot model, all windows
    BASELINE            baseline of the run, all windows
    windows, session    zero-shot model and online session, windows in the order of recording
    all_windows         all windows at once, by the method that is selected on the other subjects
    before N, calibrated N, own N
                        zero-shot model, calibrated model and own classifier of the subject, on the windows after N
                        labeled windows of each class
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from autotransfer.runs.choice import Choice, Scores
from autotransfer.words import score, signed

from .csv_rows import replace_rows
from .evidence import ENSEMBLE, OWN_CASES, RUN_COLUMNS, data_sheets, read_scores
from .inference import estimate_mean
from .markdown import join_words, markdown
from .online import add_rows

COLUMNS = ["data", "case", "subject", "score"]
COMPARED = {  # case, and the case that it is compared with
    "best baseline → zero-shot": ("zero_shot", "baseline"),
    "zero-shot → online session": ("session", "windows"),
    "zero-shot → all windows at once": ("all_windows", "windows"),
    "zero-shot → calibrated with five labels": ("calibrated 5", "before 5"),
    "own classifier → calibrated with five labels": ("calibrated 5", "own 5"),
}
GAINS = {
    "online session": "zero-shot → online session",
    "all windows": "zero-shot → all windows at once",
    "five labels": "zero-shot → calibrated with five labels",
}


def add_cases(folder: Path, name: str, choice: Choice, run_rows: pd.DataFrame) -> None:
    """Replace the rows of a data set in the tables of the folder. run_rows: rows of benchmarks.default_runs."""
    rows = pd.DataFrame([(name, *row) for row in build_rows(choice)], columns=COLUMNS)
    replace_rows(folder / "cases.csv", rows, "data")
    replace_rows(folder / "release_runs.csv", run_rows[[*RUN_COLUMNS]], "data")
    if choice.replay is not None:
        add_rows(folder / "online.csv", name, choice.replay)


def build_rows(choice: Choice) -> Iterator[tuple[str, str, float]]:
    """Yield the case, the subject and the score of each row."""
    cases: dict[str, Scores] = {"zero_shot": choice.estimate, **choice.baselines}
    if replay := choice.replay:
        cases |= {"windows": replay.zero_shot["recorded"], "session": replay.adapted["recorded"]}
        cases |= {"all_windows": replay.all_windows}
        tables = {"before": replay.before_calibration, "calibrated": replay.calibrated, "own": replay.personal}
        for name, by_number in tables.items():
            cases |= {f"{name} {number}": scores for number, scores in by_number.items()}
    for case, scores in cases.items():
        for subject, value in scores.items():
            yield case, subject, round(value, 4)


def read_means(folder: Path) -> pd.DataFrame:
    """Return mean scores over subjects by data set (rows) and compared pair of cases, `ours` and `other`."""
    wide = []
    for data, cases in read_scores(folder, "cases").groupby("data", sort=True):
        scores = cases.pivot(index="subject", columns="case", values="score")
        baselines = scores.drop(columns=[case for case in scores if str(case).split()[0] in OWN_CASES])
        wide.append(scores.assign(data=data, baseline=baselines[baselines.mean().idxmax()]))
    table, means = pd.concat(wide), {}
    for name, (ours, other) in COMPARED.items():
        both = table.reindex(columns=["data", ours, other]).dropna().groupby("data").mean()
        means[name] = both.set_axis(["ours", "other"], axis=1)
    return pd.concat(means, axis=1)


def cases_table(folder: Path) -> str:
    """Return the table of docs/results.md from cases.csv, over data sets."""
    means, rows = read_means(folder), []
    for name in COMPARED:
        both = means[name].dropna()
        if not len(both):  # small sets have no ensemble for sessions
            rows.append([name, "–", "–", "–"])
            continue
        gain = both["ours"] - both["other"]
        cells = f"{score(both['other'].mean())} → {score(both['ours'].mean())}"
        rows.append([name, cells, str(estimate_mean(gain)), f"{(gain > 0).sum()} of {len(gain)}"])
    return markdown(["", "mean over sets", "difference (95 % interval)", "sets ahead"], rows)


def signals_table(folder: Path) -> str:
    """Return scores before and after, gains and seconds by signal type, as means over data sets."""
    runs, sheets = read_scores(folder, "release_runs"), data_sheets(folder)
    earlier = read_scores(folder, "default_runs")
    confirmed = read_scores(folder / "confirmation2", "zero_shot")
    before = pd.concat([
        earlier[earlier["adaptation"] == "zero-shot"].groupby("data")["score"].mean(),
        confirmed[confirmed["pipeline"] == ENSEMBLE].groupby("dataset")["score"].mean(),
    ])  # fmt: skip
    means = read_means(folder)
    table = pd.DataFrame({
        "before": before, "zero-shot": runs.groupby("data")["score"].mean(),
        "first": runs.groupby("data")["first_seconds"].first(), "last": runs.groupby("data")["seconds"].first(),
        **{gain: means[case]["ours"] - means[case]["other"] for gain, case in GAINS.items()},
    }).dropna(subset=["zero-shot"])  # fmt: skip
    table["signal"] = [sheets.loc[data, "signal"] for data in table.index]
    groups = [*table.groupby("signal"), ("all", table)]
    rows = [
        [str(signal), str(len(sets)), f"{score(sets['before'].mean())} → {score(sets['zero-shot'].mean())}",
         *(signed(sets[gain].mean()) if sets[gain].notna().any() else "–" for gain in GAINS),
         *(f"{sets[part].median():.0f} s" for part in ("first", "last"))]
        for signal, sets in groups
    ]  # fmt: skip
    header = ["signal", "sets", "zero-shot, before → now", *GAINS, "first result", "last result"]
    return markdown(header, rows)


def five_label_outliers(folder: Path) -> str:
    """Return the mean gain of five labels without the sets whose labels resemble the scored windows."""
    both = read_means(folder)["zero-shot → calibrated with five labels"].dropna()
    sheets = data_sheets(folder)
    one = [data for data in both.index if sheets.loc[data, "one_recording"]]
    named = [f"{data} ({score(both.loc[data, 'other'])} → {score(both.loc[data, 'ours'])})" for data in one]
    others = both.drop(index=one)
    return (
        f"The mean for five labels contains {join_words(named)}, where labeled and scored windows are from one "
        f"uninterrupted recording. Without {'them' if len(one) > 1 else 'it'} five labels add "
        f"{estimate_mean(others['ours'] - others['other'])} over {len(others)} data sets.\n"
    )
