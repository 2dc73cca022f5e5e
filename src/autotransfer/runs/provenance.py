"""What the outcomes of a run depend on: which data, and which versions of what is installed."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version

from .. import kernels
from ..recordings import Recordings
from ..settings import SUBJECT
from ..training.nuisance import raw_values


def fingerprint(recordings: Recordings, nuisance: str = SUBJECT) -> str:
    """Tells whether the data are the ones that a run began with."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (recordings.X, recordings.y, recordings.subject):
        digest.update(str(tuple(tensor.shape)).encode())
        for start in range(0, len(tensor), 1024):
            digest.update(tensor[start : start + 1024].contiguous().numpy().tobytes())
    if recordings.targets is not None:
        digest.update(recordings.targets.numpy().tobytes())
    if recordings.ring is not None:
        digest.update(f"ring {recordings.ring}".encode())
    if nuisance != SUBJECT:
        for values in raw_values(recordings, nuisance):
            digest.update(values)
    return digest.hexdigest()


def versions(*also: str) -> dict[str, str]:
    """What outcomes may depend on besides the data."""
    installed = {"python": platform.python_version(), "kernels": kernels.description()}
    for package in ("autotransfer", "torch", "numpy", "scipy", "scikit-learn", "pandas", *also):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed
