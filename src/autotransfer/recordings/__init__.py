"""Labeled windows of several subjects: their readers, and their validation."""

from .sources import *  # noqa: F403
from .sources import __all__ as __all__
