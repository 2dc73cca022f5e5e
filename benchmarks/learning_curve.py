"""python -m benchmarks.learning_curve DATA.npz ...: what `plan-study` expects from half the people of a study, beside
what the other half brought. Halves are drawn at random; the truth is the mean over everybody of what training on all
others gains over training on as many as half the study has. Rows go to docs/results/learning_curve.csv as they are
done; a set that is in it is not measured again."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

import autotransfer as at
from autotransfer.search.study_size import FEWEST, Pilot, expected_gain, spread

OUT = Path("docs/results/learning_curve.csv")
HALVES = 4  # that are drawn of each set


def rows_of(file: Path) -> list[dict[str, object]]:
    """A row for each half; none where half the people are too few."""
    recordings = at.load(file)
    study = Pilot(recordings)
    people, half = len(study.people), len(study.people) // 2
    if half < FEWEST:
        return []
    fewer, everybody = study.scores(study.tested(), [(half - 1, None), (people - 1, None)]).mean(0)
    found = []
    for draw in range(HALVES):
        own = sorted(np.random.default_rng(draw).permutation(study.people)[:half].tolist())
        sizes = spread(2, half - 1)
        scores = study.scores(own, [(n, None) for n in sizes], among=own)
        gain, low, high = expected_gain(sizes, scores, half - 1, people - 1)
        found.append({
            "data": file.stem, "people": people, "half": draw, "trained_on": half - 1, "then": people - 1,
            "score": round(fewer, 4), "score_then": round(everybody, 4), "gain": round(everybody - fewer, 4),
            "expected": round(gain, 4), "low": round(low, 4), "high": round(high, 4),
            "inside": int(low <= everybody - fewer <= high),
        })  # fmt: skip
    return found


def summary(rows: list[dict[str, str]]) -> list[str]:
    """How far expectations were off, and how often the interval held the truth."""
    off = np.array([float(row["expected"]) - float(row["gain"]) for row in rows])
    gains = np.array([float(row["gain"]) for row in rows])
    inside = np.mean([int(row["inside"]) for row in rows])
    return [
        f"{len({row['data'] for row in rows})} sets, {len(rows)} halves: gains {gains.mean():+.3f} in the mean, "
        f"expected {(gains + off).mean():+.3f}; off by {np.abs(off).mean():.3f} (no gain at all: "
        f"{np.abs(gains).mean():.3f})",
        f"90 % intervals that held the truth: {inside:.2f}",
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_curve", description=__doc__)
    parser.add_argument("data", type=Path, nargs="+", help="recordings (.npz)")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args(arguments)
    rows = list(csv.DictReader(asked.out.open())) if asked.out.exists() else []
    for file in asked.data:
        if file.stem in {row["data"] for row in rows}:
            continue
        found = rows_of(file)
        print(f"{file.stem}: {found[0]['gain'] if found else 'too few people'}", flush=True)
        rows += [{name: str(value) for name, value in row.items()} for row in found]
        if rows:
            with asked.out.open("w", newline="") as out:
                table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
                table.writeheader()
                table.writerows(sorted(rows, key=lambda row: (row["data"], int(row["half"]))))
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    main()
