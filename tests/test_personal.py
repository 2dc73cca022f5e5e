"""A subject's own classifier is selected by labels alone."""

from __future__ import annotations

import numpy as np
import torch

from autotransfer.search.labels import FOLDS, label_splits, personal_log_probs, predict_by_discriminant

N, CLASSES = 60, 3
Y = np.arange(N) % CLASSES
ALONE = np.arange(N)
KNOWN = np.arange(N) < 15  # five of each class


def forms(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """One that tells classes apart, and one that is noise: (n, D) each, of different D."""
    draw = np.random.default_rng(seed)
    told = np.eye(CLASSES)[Y] @ (3 * draw.standard_normal((CLASSES, 12))) + draw.standard_normal((N, 12))
    return torch.from_numpy(told), torch.from_numpy(10 * draw.standard_normal((N, 40)))


def test_scored_windows_do_not_change_the_selection() -> None:
    """Their classes and groups may be anything, and their latents say nothing of which form is taken."""
    good, useless = forms()
    before = personal_log_probs([useless, good], Y, ALONE, KNOWN, CLASSES)
    wrong = np.where(KNOWN, Y, (Y + 1) % CLASSES)
    elsewhere = np.where(KNOWN, ALONE, 0)
    assert torch.equal(personal_log_probs([useless, good], wrong, elsewhere, KNOWN, CLASSES), before)
    moved = [torch.where(torch.from_numpy(KNOWN)[:, None], z, 100.0 * z) for z in (useless, good)]
    after = personal_log_probs(moved, Y, ALONE, KNOWN, CLASSES)
    torch.testing.assert_close(after[KNOWN], before[KNOWN])


def test_groups_stay_whole_if_labels_allow_it() -> None:
    y = np.repeat([0, 1], 12)
    groups = np.arange(24) // 3  # four of each class
    splits = label_splits(y, groups)
    assert len(splits) == 4
    for fit, left in splits:
        assert not set(groups[fit]) & set(groups[left])
        assert set(y[fit]) == set(y[left]) == {0, 1}
    np.testing.assert_array_equal(np.sort(np.concatenate([left for _, left in splits])), np.arange(24))
    assert len(label_splits(y, y)) == FOLDS  # a class is one group: its windows are left out one by one
    assert label_splits(np.array([0, 0, 1]), np.arange(3)) == []
    assert label_splits(np.zeros(4, dtype=np.int64), np.arange(4)) == []


def test_a_classifier_that_recognizes_groups_is_not_selected() -> None:
    """Windows of a group are all but equal: left out one by one, a form that tells groups apart would look best."""
    draw = np.random.default_rng(1)
    y, groups = np.repeat([0, 1], 30), np.arange(60) // 3
    noise = draw.standard_normal((20, 8))[groups] + 1e-3 * draw.standard_normal((60, 8))
    helps = y[:, None] * np.ones(4) + draw.standard_normal((60, 4))
    known = np.tile(np.arange(30) < 15, 2)
    both = [torch.from_numpy(noise), torch.from_numpy(helps)]
    taken = predict_by_discriminant(both[1][known], torch.from_numpy(y[known]), both[1], 2)
    torch.testing.assert_close(personal_log_probs(both, y, groups, known, 2), taken)
    assert not torch.equal(personal_log_probs(both, y, np.arange(60), known, 2), taken)
