"""Centered representations subtract a subject's mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from autotransfer.preprocessing import FittedPreprocessing, Preprocessing
from autotransfer.preprocessing.center import PRIOR_WINDOWS
from tiny import people, preprocessed

REC = people(n_subjects=4, per=30)
BASE = {"standardize": "none", "represent": "features"}
TRAIN = np.flatnonzero(REC.subject.numpy() > 0)


def fitted(kind: str) -> FittedPreprocessing:
    return Preprocessing.from_values(BASE | {"center": kind}).fit(REC.X.double(), REC.subject, [TRAIN])


def plain() -> torch.Tensor:
    return preprocessed(REC.X.double(), REC.subject, **BASE)


@pytest.mark.parametrize("kind", ["online", "transductive"])
def test_means_of_training_subjects_are_subtracted(kind: str) -> None:
    z = plain()
    found = preprocessed(REC.X.double(), REC.subject, TRAIN, **BASE, center=kind)
    for person in range(4):
        own = REC.subject == person
        torch.testing.assert_close(found[own], z[own] - z[own].mean(0))


def test_the_mean_of_a_call_is_subtracted_for_a_new_subject() -> None:
    own = REC.X[REC.subject == 0].double()
    z = plain()[REC.subject == 0]
    torch.testing.assert_close(fitted("transductive").start_subject().feed(own)[0], z - z.mean(0))
    torch.testing.assert_close(fitted("transductive").start_subject().feed(own[:7])[0], z[:7] - z[:7].mean(0))


def test_online_is_the_running_mean_with_a_prior() -> None:
    """Window by window, written as a loop."""
    z = plain()
    prior = torch.stack([z[REC.subject == person].mean(0) for person in (1, 2, 3)]).mean(0)
    own, seen, expected = z[REC.subject == 0], torch.zeros_like(prior), []
    for n, window in enumerate(own, start=1):
        seen = seen + window
        expected.append(window - (PRIOR_WINDOWS * prior + seen) / (PRIOR_WINDOWS + n))
    found = fitted("online").start_subject().feed(REC.X[REC.subject == 0].double())[0]
    torch.testing.assert_close(found, torch.stack(expected))
