"""The page of results from invented CSVs, in the words of the first version, whose answers are known."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pandas as pd
import pytest
from benchmarks import played
from benchmarks.drawing import curves
from benchmarks.results import OF_ONE_CSV, PARTS, made, main, read

import autotransfer as at
from autotransfer.search.playback import ORDERS

SUBJECTS = {"first": 8, "second": 6}
GAIN = {
    "nested": 0.04, "published": 0.05, "mmd": 0.06, "mige": 0.0, "nested_uncensored": 0.03,
    "baseline_ensemble": 0.1, "nested_ensemble": 0.12,
}  # fmt: skip


def invented(folder: Path) -> None:
    """Baseline .5 with a little noise; gains as in GAIN plus something for each person; half of them in the control."""
    rows, results, leaks = [], [], []
    for dataset, n in SUBJECTS.items():
        for i in range(n):
            base = 0.5 + 0.016 * i
            for control in (False, True):
                given = {"dataset": dataset, "control": control, "subject": str(i)}
                rows.append(given | {"pipeline": "none", "setting": "baseline", "score": base})
                for name, gain in GAIN.items():
                    score = base + gain * (0.5 if control else 1) + (0.002 * i if gain else 0.001 * (-1) ** i)
                    setting = "mmd conditional 1 with power" if name == "mmd" else name
                    if name == "nested":
                        setting = "baseline" if i else "mmd conditional 1 with power"
                    rows.append(given | {"pipeline": name, "setting": setting, "score": score})
            for seed in range(3):
                results.append({"dataset": dataset, "control": False, "baseline": True, "method": "none",
                                "stage": "prepare", "setting": "baseline", "swapped_validation_score": 0.5,
                                "validation_subject": (i + 1) % n,
                                "test_subject": i, "seed": seed, "test_score": base + 0.01 * seed,
                                "swapped_test_score": 0.7,
                                "validation_score": base + 0.01 * seed + 0.02})  # fmt: skip
                other = {"baseline": False, "setting": "baseline with standardise channel"}
                results.append(results[-1] | other | {"swapped_validation_score": 0.5 + 0.1 * (i % 2)})
                # Nobody chose the last epoch: that validation exceeds test here is no flattery.
                last = {"setting": "baseline with schedule constant, keep last", "validation_score": 0.99}
                results.append(results[-1] | last | {"stage": "folds"})
                censored = {"method": "mmd", "setting": "mmd conditional 1 with power", "stage": "folds",
                            "test_score": 0.9, "swapped_test_score": 0.8, "validation_score": 0.95}  # fmt: skip
                results.append(results[-1] | censored)
                twin = {"method": "none", "setting": "baseline with power, balanced batches", "test_score": 0.86}
                results.append(results[-1] | twin | {"validation_score": 0.88})
                results.append(results[-2])
                # A person's mean is .85 with the true subjects, .82 and a little of its own with shuffled ones.
                shuffled = {"setting": "mmd conditional 1 shuffled with power", "control": True}
                results.append(results[-1] | shuffled | {"test_score": 0.84 + 0.004 * i})
        for role, accuracy in (("baseline", 0.9), ("uncensored", 0.95), ("chosen", 0.4)):
            leak = {"dataset": dataset, "control": False, "role": role, "fold": 0}
            leaks.append(leak | {"accuracy": accuracy, "chance": 0.1, "bits": 2.0})
    # Two seeds, which have to be averaged: .3 and .5 of everybody make .4.
    peers = [
        {"dataset": d, "pipeline": "lda", "subject": i, "seed": seed, "score": 0.3 + 0.2 * seed, "seconds": 1}
        for d, n in SUBJECTS.items() for i in range(n) for seed in (0, 1)
    ]  # fmt: skip
    for name, table in {"scores": rows, "results": results, "leakage": leaks, "peers": peers}.items():
        pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Part -> its table's rows, without the head."""
    folder = tmp_path_factory.mktemp("page") / "results"
    folder.mkdir()
    invented(folder)
    target = folder.parent / "results.md"
    target.write_text("before\n" + "".join(f"<!-- results: {name} -->\nold\n<!-- end -->\n" for name in PARTS))
    main([str(folder), "--page", str(target)])
    text = target.read_text()
    assert text.startswith("before\n")
    assert "old" not in text
    main([str(folder), "--page", str(target)])
    assert target.read_text() == text, "made twice, the page is the same"
    for name in ("gains", "people"):
        ElementTree.parse(folder / f"{name}.svg")
    parts = dict(zip(PARTS, text.split("<!-- end -->"), strict=False))
    return {
        name: [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("|")][
            2:
        ]
        for name, part in parts.items()
    }


def test_every_score(page: dict[str, list[list[str]]]) -> None:
    rows = {row[0]: row[1:] for row in page["scores"]}
    assert rows["Baseline"] == ["0.556 · 0.528 · 0.500", "0.540 · 0.520 · 0.500"]
    assert rows["AutoTransfer, nested, ensemble"][0].startswith("**0.683**"), "bold for the best, and for no other"
    assert rows["shrinkage LDA"] == ["0.400 · 0.400 · 0.400"] * 2


def test_gains_are_paired_and_corrected(page: dict[str, list[list[str]]]) -> None:
    rows = {(row[0], row[1]): row[2:] for row in page["gains"]}
    assert rows["first", "MMD"][0] == "+0.067"  # .06 and the mean of .002·i
    assert rows["first", "MMD"][2] == "8 / 0 / 0"
    assert rows["first", "MMD"][3] == "0.016"  # 2/2⁸, twice because two methods are compared
    assert rows["first", "AutoTransfer, nested"][3] == "0.008"  # not one of the methods
    assert rows["first", "MIGE"][0] == "0.000"


def test_pooled(page: dict[str, list[list[str]]]) -> None:
    rows = {row[0]: row[1:] for row in page["together"]}
    subjects, difference, _, p, equal, _, raised = rows["AutoTransfer, nested"]
    assert (subjects, difference, raised) == ("14", "+0.046", "2 of 2")  # (8·.047 + 6·.045)/14
    assert equal == "+0.046"  # (.047 + .045)/2
    assert p == "< 0.001".replace(" ", "\u00a0")


def test_censoring_beside_the_same_choice_without(page: dict[str, list[list[str]]]) -> None:
    assert [row[0] for row in page["censoring"]] == ["first", "second", "**all subjects**"]
    assert [row[2].split(" ")[0] for row in page["censoring"]] == ["+0.010"] * 3
    assert [row[3] for row in page["censoring"]] == ["–"] * 3, "no ensemble without a censor was invented"
    # Subject 0 was given a censor, which scores .9; without it .86. The others stay with the baseline: (.04 + 0)/n.
    assert [row[1].split(" ")[0] for row in page["censoring"]] == ["+0.005", "+0.007", "+0.006"]


def test_ensembles_are_compared_with_ensembles(page: dict[str, list[list[str]]]) -> None:
    both, single = ([row[place].split(" ")[0] for row in page["ensembles"]] for place in (1, 2))
    assert both == ["+0.020"] * 3  # .12 - .1, not .12
    assert single == ["+0.080"] * 3
    assert not any("ensemble" in row[0] for row in page["together"])
    assert "AutoTransfer, nested, ensemble" in {row[0] for row in page["scores"]}


def test_preprocessings_by_validation(page: dict[str, list[list[str]]]) -> None:
    """Every subject has two scores, one of which gains 0.1 for every other subject: 0.025 of their mean."""
    (name, first, second) = page["preprocessings"][0]
    assert name == "standardise train", "a name of the first version, in today's words"
    assert first == "+0.025 ± 0.009"  # 0.05 · sqrt(.25 · 8/7) / sqrt(8)
    assert second == "+0.025 ± 0.011"
    assert len(page["preprocessings"]) == 1


def test_control_says_what_only_the_true_subjects_give(page: dict[str, list[list[str]]]) -> None:
    true, shuffled, rest = (cell.split(" ")[0] for cell in page["control"][0][1:])
    assert (true, shuffled, rest) == ("+0.047", "+0.027", "+0.020")


def test_the_same_setting_with_true_and_with_shuffled_subjects(page: dict[str, list[list[str]]]) -> None:
    """Of the two methods with scores only MMD has trainings of both kinds."""
    assert [row[0] for row in page["same_settings"]] == ["MMD"]
    first, second = (cell.split(" ")[0] for cell in page["same_settings"][0][1:])
    assert (first, second) == ("+0.023", "+0.025")  # .03 minus .002·i in the mean


def test_leakage_peers_and_seeds(page: dict[str, list[list[str]]]) -> None:
    cells = ["first", "0.900, 2.00 bits", "0.950, 2.00 bits", "0.400, 2.00 bits", "0.100"]
    assert page["leakage"][0] == cells, "baseline, the chosen setting without its censor, with it"
    assert page["peers"][0][0] == "shrinkage LDA"
    assert page["peers"][0][1].startswith("+0.283"), "the ensemble first"
    assert page["peers"][3][1].startswith("+0.203"), "a single network, after the second table's two lines of head"
    assert page["peers"][0][-1] == "2 of 2"
    assert page["seeds"][0] == ["first", "3", "0.566", "0.010"]


def test_optimism_is_validation_minus_test(page: dict[str, list[list[str]]]) -> None:
    assert page["optimism"] == [["uncensored", "+0.020", "+0.020"], ["MMD", "+0.050", "+0.050"]]


def test_twins_are_read_from_columns_where_there_are_any(tmp_path: Path) -> None:
    """Names say nothing there."""
    rows = [
        ("a", "none", "best", "a", "a", False, 0.5), ("b", "none", "last", "b", "b", False, 0.6),
        ("c", "mmd", "best", "b", "d", False, 0.9), ("d", "mmd", "best", "b", "d", True, 0.8),
    ]  # fmt: skip
    results = [
        {"dataset": "one", "control": control, "stage": "folds", "setting": name, "baseline": name == "a",
         "method": method, "checkpoint": kept, "uncensored": plain, "shuffled": other, "seed": 0,
         "validation_subject": str((i + 1) % 3), "test_subject": str(i), "test_score": score, "validation_score": 1.0,
         "swapped_test_score": score, "swapped_validation_score": 1.0}
        for name, method, kept, plain, other, control, score in rows
        for i in range(3)
    ]  # fmt: skip
    scores = [
        {"dataset": "one", "control": control, "pipeline": pipeline, "setting": "c", "subject": str(i), "score": 0.9}
        for control in (False, True)
        for pipeline in ("nested", "mmd", "two_se_ensemble")
        for i in range(3)
    ]
    pd.DataFrame(results).to_csv(tmp_path / "results.csv", index=False)
    pd.DataFrame(scores).to_csv(tmp_path / "scores.csv", index=False)
    evidence = read(tmp_path)
    assert list(evidence.ensembles) == ["two_se"]
    assert "+0.300" in PARTS["censoring"](evidence, tmp_path).splitlines()[2], "c without its penalty is b"
    assert "| MMD | +0.100" in PARTS["same_settings"](evidence, tmp_path), "c with shuffled subjects is d"
    assert "| uncensored | +0.500 |" in PARTS["optimism"](evidence, tmp_path), "the last epoch of b is left out"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    evidence = read(tmp_path)
    assert all("Not measured yet" in made(part, evidence, tmp_path) for part in (*PARTS, *OF_ONE_CSV))


# The page of results rests on every table and takes 20 seconds; the leaderboard reads most of them as well.
@pytest.mark.parametrize("name", [pytest.param("results.md", marks=pytest.mark.slow), "leaderboard.md"])
def test_the_committed_page_is_the_one_that_the_csvs_make(name: str, tmp_path: Path) -> None:
    docs = Path(__file__).parent.parent / "docs"
    copy = tmp_path / "results"
    copy.mkdir()
    for path in (docs / "results").rglob("*.csv"):
        target = copy / path.relative_to(docs / "results")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    page, committed = tmp_path / name, (docs / name).read_text(encoding="utf-8")
    page.write_text(committed, encoding="utf-8")
    main([str(copy), "--page", str(page)])
    assert page.read_text(encoding="utf-8") == committed
    for path in copy.glob("*.svg"):
        assert path.read_text(encoding="utf-8") == (docs / "results" / path.name).read_text(encoding="utf-8")


def test_played_people_get_what_others_gained_by(tmp_path: Path) -> None:
    """A person who alone gains does not decide for themselves, and one who alone loses does not either."""
    people = [f"P{n}" for n in range(6)]
    level = dict.fromkeys(people, 0.5)
    lost = dict.fromkeys(people, 0.4) | {"P0": 0.9}
    scores = {
        "zero_shot": dict.fromkeys(ORDERS, level),
        "before": {"1": level, "5": level},
        "calibrated": {"1": lost, "5": dict.fromkeys(people, 0.6) | {"P0": 0.1}},
        "own": {"1": level, "5": level},
    }
    got = played.delivered(scores)
    assert got["calibrated"]["1"]["P0"] == 0.5  # others lost by it
    assert got["calibrated"]["5"]["P0"] == 0.1  # others gained
    assert set(got["calibrated"]) == {"1", "5"}


def test_curves_end_where_their_values_say() -> None:
    drawn = curves([1, 2], {"rising": [0.5, 0.9], "falling": [0.9, 0.5]}, "labels", "score")
    heights = {name: float(re.search(rf'y="([\d.]+)"[^>]*>{name}<', drawn)[1]) for name in ("rising", "falling")}
    assert heights["rising"] < heights["falling"]  # up is small


def test_what_a_penalty_removes_is_measured_beside_its_own_batches() -> None:
    from benchmarks.control import _minus_uncensored

    rows = [
        ("none", "people", "true", 0.8, 0.9), ("none", "balanced", "true", 0.6, 0.7),
        ("mmd", "marginal", "true", 0.5, 0.95), ("mmd", "marginal", "shuffled", 0.8, 0.9),
        ("mmd", "conditional", "true", 0.5, 0.6),
    ]  # fmt: skip
    columns = ["method", "mode", "people", "leakage", "score"]
    table = pd.concat([pd.DataFrame(rows, columns=columns).assign(data=d, test_subject="1") for d in ("a", "b")])
    changed = _minus_uncensored(table)
    assert changed["mmd", "marginal", "true"] == pytest.approx((-0.3, 0.05))
    assert changed["mmd", "marginal", "shuffled"] == pytest.approx((0.0, 0.0))
    assert changed["mmd", "conditional", "true"] == pytest.approx((-0.1, -0.1))


def test_estimators_in_a_stack_score_as_they_do_alone() -> None:
    from benchmarks.as_it_comes import stacked

    recordings = at.synthetic(n_subjects=4, trials_per_class=8, n_channels=3, n_times=48, subject_shift=0.5)
    X, y, who = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
    clf = at.CensoredClassifier(device="cpu", max_epochs=12, batch_size=16, sfreq=recordings.sfreq)
    fold = at.leave_one_subject_out(recordings)[-1]  # without the last person, rows have the same numbers
    ((score, _),) = stacked(clf, recordings, [fold], "cpu")
    known = who != who[fold.test[0]]
    alone = clf.fit(X[known], y[known], subjects=who[known])
    assert score == pytest.approx(alone.score(X[fold.test], y[fold.test]))
