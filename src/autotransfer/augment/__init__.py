"""Augmentation: training windows changed a little, so that a network learns what does not matter.

To add one, write one file with a subclass of `Augmentation` and add a line to AUGMENTATIONS. It changes preprocessed
windows in training steps alone. What it draws is a function of (fold, seed, epoch, step, row), so that an outcome does
not depend on what a job was stacked with.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..errors import is_off, plain_value
from .amplitude import Amplitude
from .augmentation import Augmentation
from .channel_mask import ChannelMask
from .channel_rotation import ChannelRotation

__all__ = ["AUGMENTATIONS", "Augmentation", "augmentation_of", "augmentation_values"]

# By the name that a Setting has for them, in the order in which they are applied.
AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "amplitude": Amplitude,
    "channel_mask": ChannelMask,
    "channel_rotation": ChannelRotation,
}


def augmentation_of(values: dict[str, Any]) -> tuple[Augmentation, ...]:
    """From the fields of a Setting: the value of each augmentation, and of its other fields."""
    found = []
    for name, kind in AUGMENTATIONS.items():
        first, *others = fields(kind)
        value = plain_value(values.get(name))
        if not is_off(value):
            own = {field.name: values[field.name] for field in others if field.name in values}
            found.append(kind(**{first.name: value} | own))
    return tuple(found)


def augmentation_values(augmentations: tuple[Augmentation, ...]) -> dict[str, Any]:
    """The fields of a Setting that make the same."""
    found: dict[str, Any] = {}
    for name, kind in AUGMENTATIONS.items():
        for one in augmentations:
            if type(one) is kind:
                first, *others = fields(kind)
                found |= {name: getattr(one, first.name)} | {field.name: getattr(one, field.name) for field in others}
    return found
