"""python -m benchmarks.decisions DATA.npz ...: prediction sets and abstention on people left out, with models in closed
form. Everybody is held out, predicted with weights found without them, and judged with thresholds that the others
gave. Rows go to docs/results/decisions.csv as they are done; a set that is in it is not measured again."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autotransfer.runs.choice import Answering, Choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.decision import decide
from autotransfer.search.kinds import closed_forms

OUT = Path("docs/results/decisions.csv")
WITHIN = 0.03  # of the coverage that is asked for


def measured(file: Path) -> Choice:
    """What closed forms come to on the recordings of a file."""
    with TemporaryDirectory() as folder:
        options = RunOptions(source=str(file), adaptation="auto", folds="auto", device="cpu")
        run = Run.create(Path(folder) / "run", options)
        try:
            candidates = closed_forms(run.options, run.recordings)
            run.add(run.entry("folds", setting, *fold, 0) for setting in candidates for fold in run.folds())
            run.work(shown=False)
            choice, _, _ = decide(run, candidates)
        finally:
            run.ledger.close()
    return choice


def row(name: str, found: Answering) -> dict[str, object]:
    """Means over people, and the person whose sets hold the true class least often."""

    def mean(table: dict[str, dict[str, float]], asked: str) -> float:
        return round(float(np.mean(list(table[asked].values()))), 4)

    before, after = mean(found.accuracy, "0"), mean(found.accuracy, "0.2")
    return {
        "data": name, "people": found.thresholds.people,
        **{f"coverage_{asked}": mean(found.coverage, asked) for asked in found.coverage},
        "worst_person_0.9": round(min(found.coverage["0.9"].values()), 4),
        "classes_in_a_set_0.9": mean(found.set_size, "0.9"),
        "accuracy": before, "unanswered_0.2": round(1 - mean(found.answered, "0.2"), 4),
        "accuracy_0.2": after, "gain_0.2": round(after - before, 4),
    }  # fmt: skip


def summary(rows: list[dict[str, str]]) -> list[str]:
    """The mean coverage over all sets, and those that are off."""
    means = {row["data"]: float(row["coverage_0.9"]) for row in rows}
    off = [f"{name} {value:.3f}" for name, value in means.items() if abs(value - 0.9) > WITHIN]
    gains = [float(row["gain_0.2"]) for row in rows]
    return [
        f"90 % sets: {np.mean(list(means.values())):.3f} over {len(means)} sets; further than {WITHIN} from it: "
        + (", ".join(off) or "none"),
        f"with a fifth unanswered, accuracy gains {np.mean(gains):+.3f} ({min(gains):+.3f} to {max(gains):+.3f})",
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    parser.add_argument("data", type=Path, nargs="+", help="recordings (.npz)")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args(arguments)
    rows = list(csv.DictReader(asked.out.open())) if asked.out.exists() else []
    for file in asked.data:
        if file.stem in {row["data"] for row in rows}:
            continue
        found = measured(file).answering
        if found is None:
            print(f"{file.stem}: too few people")
            continue
        rows.append({name: str(value) for name, value in row(file.stem, found).items()})
        with asked.out.open("w", newline="") as out:
            table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(sorted(rows, key=lambda row: row["data"]))
        print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    main()
