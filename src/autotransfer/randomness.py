"""Random numbers that are functions of a key, not of a stream.

A training must not depend on what was stacked with it, so nothing inside a step may draw from a
shared generator. Host code makes keys from names (`key_of`); device code turns keys and counters
into bits (`bits`), on any device with the same result.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from . import cpu
from .gpu import elementwise


def key_of(*parts: object) -> int:
    """Return a 32-bit key, stable across processes and machines, of anything with a stable repr or bytes."""
    digest = hashlib.blake2b(digest_size=4)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
        digest.update(b"\x00")
    return int.from_bytes(digest.digest(), "little")


def as_keys(keys: list[int], device: torch.device | str = "cpu") -> Tensor:
    """Return host keys as an int32 tensor (n,): the bit patterns are kept, the sign means nothing."""
    return torch.tensor([key - 2**32 if key >= 2**31 else key for key in keys], dtype=torch.int32, device=device)


def mix(h: Tensor) -> Tensor:
    """Map 32-bit words one to one, so that one changed input bit flips half of the output bits (int32)."""
    if cpu.available(h, dtype=torch.int32):
        return cpu.mix(h)
    # Shifts of int32 copy the sign bit, so each is masked to the bits a logical shift would keep.
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF)) * -1028477387
    return h ^ ((h >> 16) & 0xFFFF)


def fold_in(key: Tensor, value: Tensor | int) -> Tensor:
    """Make a new key from a key and a number (int32, broadcast): a step, an epoch, a layer."""
    if elementwise.available(key, torch.int32):
        return elementwise.fold_in(key, value)
    if isinstance(value, int):
        value = torch.full((), value, dtype=torch.int32, device=key.device)
    return mix(key ^ mix(value.to(torch.int32) + 0x3C6EF372))


def bits(key: Tensor, n: int) -> Tensor:
    """Draw n words of 32 random bits for every key: (...,) -> (..., n) int32."""
    if elementwise.available(key, torch.int32):
        return elementwise.bits(key, n)
    counter = mix(torch.arange(1, n + 1, dtype=torch.int32, device=key.device) * -1640531527)
    return mix(key[..., None] ^ counter)


def uniform(key: Tensor, n: int) -> Tensor:
    """Draw n numbers in [0, 1) for every key: (...,) -> (..., n) float32, 24 bits each."""
    return ((bits(key, n) >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24
