"""Statistics on data with a known subject shift: does each method do what it says, and for the reason it says?

Every method lowers leakage by at least a third of its excess over chance while the task stays; with shuffled subjects
the same training removes less than a third of that; a flipped sign raises leakage.
"""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from control import conditions, leak, median

pytestmark = pytest.mark.slow

STRENGTH = {"adversary": 0.3, "mige": 0.1, "mmd": 3.0, "pairwise_mmd": 1.0, "began": 3.0}
COMMON = {"max_epochs": 100, "batch_size": 128, "lr": 3e-3, "critic_lr": 3e-2}
SEEDS = 3


@pytest.fixture(scope="module")
def recordings() -> at.Recordings:
    return at.synthetic(trials_per_class=48, subject_shift=0.5)


@pytest.mark.parametrize("mode", ["marginal", "conditional"])
@pytest.mark.parametrize("method", list(STRENGTH))
def test_true_subjects_lower_leakage_shuffled_do_not_flipped_raises(
    recordings: at.Recordings, method: str, mode: str
) -> None:
    setting = at.Setting(method=method, mode=mode, strength=STRENGTH[method], **COMMON)
    found = conditions(recordings, [setting], seeds=SEEDS)
    leakage = {c: median([leak(recordings, o) for o in next(iter(own.values()))]) for c, own in found.items()}
    score = {c: median([o.validation_score for o in next(iter(own.values()))]) for c, own in found.items()}
    removed = leakage["baseline"] - leakage["true"]
    print(f"{setting.name}: {leakage} {score}")
    assert removed >= leakage["baseline"] / 3
    assert leakage["baseline"] - leakage["shuffled"] < removed / 3
    assert leakage["flipped"] > leakage["baseline"]
    assert score["true"] >= 0.9 * score["baseline"]


@pytest.mark.parametrize("method", list(STRENGTH))
def test_complementary_mode_moves_the_subject_to_the_second_half(recordings: at.Recordings, method: str) -> None:
    setting = at.Setting(method=method, mode="complementary", strength=STRENGTH[method], **COMMON)
    found = conditions(recordings, [setting], seeds=SEEDS)
    half = at.EEGNet(recordings.n_channels, recordings.n_times).latent_dim // 2

    def of(condition: str, part: slice) -> float:
        return median([leak(recordings, o, part) for o in next(iter(found[condition].values()))])

    first, second = slice(0, half), slice(half, None)
    assert of("true", first) < of("baseline", first)
    assert of("true", second) > of("baseline", second)


def test_the_published_began_fails_the_control_and_the_labelled_one_passes(recordings: at.Recordings) -> None:
    share = {}
    for variant in ("paper", "labelled"):
        setting = at.Setting(method="began", variant=variant, strength=STRENGTH["began"], **COMMON)
        found = conditions(recordings, [setting], seeds=SEEDS)
        leakage = {c: median([leak(recordings, o) for o in next(iter(own.values()))]) for c, own in found.items()}
        removed = leakage["baseline"] - leakage["true"]
        share[variant] = (leakage["baseline"] - leakage["shuffled"]) / max(removed, 1e-9)
        print(variant, leakage)
    assert share["labelled"] < 1 / 3
    assert not share["paper"] < 1 / 3


def test_the_baseline_transfers_without_a_shift_and_the_shift_costs_accuracy_and_leaks() -> None:
    scores, leaks = [], []
    for shift in (0.0, 1.0):
        recordings = at.synthetic(subject_shift=shift, trials_per_class=36)
        folds = at.leave_one_subject_out(recordings)
        outcomes = at.train(recordings, [at.Job(at.Setting(max_epochs=60, batch_size=64), fold) for fold in folds])
        scores.append(float(np.mean([o.test_score for o in outcomes])))
        leaks.append(median([leak(recordings, o) for o in outcomes[:3]]))
    print(scores, leaks)
    assert scores[0] >= 0.9
    assert scores[1] < scores[0] - 0.1
    assert leaks[1] > leaks[0] + 0.3
