"""Labelled windows of several subjects: where they come from, and what must hold for them."""

from .sources import *  # noqa: F403
from .sources import __all__ as __all__
