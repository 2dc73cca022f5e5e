"""Versions of what is installed, and the compiled kernels: what outcomes depend on in addition to the data."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from . import kernels


def versions() -> dict[str, str]:
    """Return the versions of Python and packages by name, and what computes on a CPU."""
    installed = {"python": platform.python_version(), "kernels": kernels.description()}
    packages = ("autotransfer", "torch", "numpy", "scipy", "scikit-learn", "pandas")
    return installed | {package: _version(package) for package in packages}


@cache  # reading a package's metadata takes some 20 ms, and what is imported stays
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
