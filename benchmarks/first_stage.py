"""Score the linear models of default runs, with online sessions and calibration of every subject.

    python -m benchmarks.first_stage DATA.npz... --runs FOLDER --out docs/results/first_stage.csv
        [--online docs/results/online.csv]

Each run has the linear models of a default run and no time limit. All scores are nested: models, weights and decisions
come from the other subjects. Labeled and scored windows share no group if the recordings have groups. A row of the CSV
is the score of one subject in one case:

    zero_shot           zero-shot model, all windows
    BASELINE            baseline of the run, all windows
    windows, session    zero-shot model and online session, windows in the order of recording
    all_windows         transductive ensemble, if the run has one
    before N, calibrated N, own N
                        zero-shot model, calibrated model and own classifier of the subject, on the windows after N
                        labeled windows of each class

--online adds the replay in every order of the windows to a table of benchmarks.online.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd
import torch

import autotransfer as at
from autotransfer.runs.choice import Choice, Scores
from autotransfer.runs.options import build_options
from autotransfer.search.plan import start_run
from autotransfer.search.procedure import perform_plan
from autotransfer.words import score

from .csv_rows import append_rows, build_parser, read_known_rows
from .evidence import OWN_CASES, data_sheets, read_scores
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


def run_linear_models(source: str, folder: Path) -> Choice:
    """Return the choice of a run of linear models, with the replay of all subjects."""
    fixed = {"source": source, "adaptation": "zero-shot", "kinds": "linear", "time": "none"}
    run = start_run(folder, build_options(fixed), tell=print)
    with closing(run.database):
        return perform_plan(run, print, progress=False)


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
    for data, cases in read_scores(folder, "first_stage").groupby("data", sort=True):
        scores = cases.pivot(index="subject", columns="case", values="score")
        baselines = scores.drop(columns=[case for case in scores if str(case).split()[0] in OWN_CASES])
        wide.append(scores.assign(data=data, baseline=baselines[baselines.mean().idxmax()]))
    table, means = pd.concat(wide), {}
    for name, (ours, other) in COMPARED.items():
        both = table.reindex(columns=["data", ours, other]).dropna().groupby("data").mean()
        means[name] = both.set_axis(["ours", "other"], axis=1)
    return pd.concat(means, axis=1)


def first_stage_table(folder: Path) -> str:
    """Return the table of docs/results.md from first_stage.csv, over data sets."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser(__doc__, None)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--online", type=Path, help="table of benchmarks.online to which the replay is added")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    known = {row["data"] for row in read_known_rows(options.out)}
    for source in options.files:
        name = at.load(source).name
        if name not in known:
            choice = run_linear_models(source, options.runs / name)
            if options.online is not None and choice.replay is not None:
                add_rows(options.online, name, choice.replay)
            append_rows(options.out, [(name, *row) for row in build_rows(choice)], COLUMNS)


if __name__ == "__main__":
    main()
