"""Keyed randomness: uniform, independent across keys, the same everywhere."""

from __future__ import annotations

import numpy as np
import torch

from autotransfer.randomness import as_keys, bits, fold_in, key_of, mix, uniform

KNOWN = 0xCB753415


def test_keys_are_stable_and_distinct() -> None:
    assert key_of("weights", "a", 0) == KNOWN  # stored runs rely on it
    keys = {key_of("weights", fold, seed) for fold in range(50) for seed in range(50)}
    assert len(keys) == 2500


def test_mix_is_the_reference_finalizer() -> None:
    """Against the same function in Python integers: shifts must be logical, products modulo 2³²."""

    def reference(h: int) -> int:
        h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
        h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
        return h ^ (h >> 16)

    words = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 123456789]
    ours = mix(as_keys(words)).to(torch.int64) & 0xFFFFFFFF
    assert ours.tolist() == [reference(word) for word in words]


def test_uniform_moments_and_independence() -> None:
    u = uniform(as_keys([1, 2, 3, 2**31]), 50_000).double()
    np.testing.assert_allclose(u.mean(1), 0.5, atol=0.01)
    np.testing.assert_allclose(u.var(1), 1 / 12, atol=0.002)
    assert np.abs(np.corrcoef(u) - np.eye(4)).max() < 0.02
    serial = np.corrcoef(u[0, :-1], u[0, 1:])[0, 1]
    assert abs(serial) < 0.02


def test_bits_depend_on_the_key_alone() -> None:
    keys = as_keys([5, 6, 7])
    assert torch.equal(bits(keys, 100)[1], bits(keys[1:2], 100)[0])
    assert torch.equal(bits(keys, 40), bits(keys, 100)[:, :40])
    assert not torch.equal(fold_in(keys, 1), fold_in(keys, 2))
    each_bit = ((bits(keys, 20_000)[..., None] >> torch.arange(32)) & 1).double().mean(1)
    np.testing.assert_allclose(each_bit, 0.5, atol=0.02)
