"""Versions of packages and compiled kernels, on which outcomes depend."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from . import kernels


def versions() -> dict[str, str]:
    """Return the versions of Python and of packages by name, and the name of the kernels for the CPU."""
    installed = {"python": platform.python_version(), "kernels": kernels.description()}
    packages = ("autotransfer", "torch", "numpy", "scipy", "scikit-learn", "pandas")
    return installed | {package: _version(package) for package in packages}


@cache  # reading the metadata of a package takes about 20 ms
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
