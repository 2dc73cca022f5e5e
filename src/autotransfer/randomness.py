"""Random numbers that are functions of a key, without a shared generator.

A fit must not depend on the fits it is stacked with, so training steps never draw from a shared generator. `key_of`
makes keys from names; `bits` makes random bits from keys and counters, equal on all devices.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from . import cpu
from .gpu import elementwise


def key_of(*parts: object) -> int:
    """Return a 32-bit key, equal across processes and machines, from bytes or objects with a stable repr."""
    digest = hashlib.blake2b(digest_size=4)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
        digest.update(b"\x00")
    return int.from_bytes(digest.digest(), "little")


def as_keys(keys: list[int], device: torch.device | str = "cpu") -> Tensor:
    """Return keys as an int32 tensor (n,) with the same bit patterns."""
    return torch.tensor([key - 2**32 if key >= 2**31 else key for key in keys], dtype=torch.int32, device=device)


def mix(h: Tensor) -> Tensor:
    """Return bijective hashes of 32-bit words (int32); each input bit changes half of the output bits on average."""
    if cpu.is_available(h, dtype=torch.int32):
        return cpu.mix(h)
    # Right shifts of int32 copy the sign bit, which the masks remove.
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF)) * -1028477387
    return h ^ ((h >> 16) & 0xFFFF)


def fold_in(key: Tensor, value: Tensor | int) -> Tensor:
    """Return a new key from a key and a number, such as an epoch or a step (int32, broadcast)."""
    if elementwise.is_available(key, torch.int32):
        return elementwise.fold_in(key, value)
    if isinstance(value, int):
        value = torch.full((), value, dtype=torch.int32, device=key.device)
    return mix(key ^ mix(value.to(torch.int32) + 0x3C6EF372))


def bits(key: Tensor, n: int) -> Tensor:
    """Return n words of 32 random bits for every key: (...,) -> (..., n) int32."""
    if elementwise.is_available(key, torch.int32):
        return elementwise.bits(key, n)
    counter = mix(torch.arange(1, n + 1, dtype=torch.int32, device=key.device) * -1640531527)
    return mix(key[..., None] ^ counter)


def uniform(key: Tensor, n: int) -> Tensor:
    """Return n uniform numbers in [0, 1) for every key: (...,) -> (..., n) float32 with 24 random bits."""
    return ((bits(key, n) >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24
