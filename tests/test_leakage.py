"""The probe measures leakage where there is some, and none otherwise."""

from __future__ import annotations

import numpy as np

import autotransfer as at


def latents(shift: float, n_subjects: int = 4, per_subject: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    s = np.repeat(np.arange(n_subjects), per_subject)
    means = np.eye(n_subjects, 8) * shift
    return generator.standard_normal((len(s), 8)) + means[s], s


def test_independent_latents_leak_nothing() -> None:
    z, s = latents(0.0)
    found = at.leakage(z, s)
    assert found.chance == 0.25
    assert abs(found.accuracy - 0.25) < 0.08
    assert found.bits < 0.02


def test_separated_subjects_are_read_completely() -> None:
    found = at.leakage(*latents(12.0))
    assert found.accuracy > 0.99
    assert 1.9 < found.bits <= 2.0
    assert found.excess > 0.98


def test_leakage_grows_with_the_shift_and_never_exceeds_the_information() -> None:
    found = [at.leakage(*latents(shift, per_subject=300)) for shift in (0.5, 1.0, 2.0)]
    assert found[0].accuracy < found[1].accuracy < found[2].accuracy
    # I(z; s) of the mixture by Monte Carlo, exact posteriors
    for shift, leak in zip((0.5, 1.0, 2.0), found, strict=True):
        z, s = latents(shift, per_subject=5000, seed=1)
        logits = z[:, :4] * shift
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        information = 2 + log_p[np.arange(len(s)), s].mean() / np.log(2)
        assert leak.bits <= information + 0.03
        assert leak.bits > 0.6 * information - 0.03


def test_unequal_numbers_of_windows_do_not_bias_chance() -> None:
    z, s = latents(0.0, per_subject=100)
    keep = np.r_[0:100, 100:110, 200:300, 300:312]
    found = at.leakage(z[keep], s[keep])
    assert abs(found.accuracy - 0.25) < 0.12
