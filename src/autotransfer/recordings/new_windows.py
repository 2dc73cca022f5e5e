"""Windows that a model is to predict, and that look unlike those it was trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ..errors import shown
from .concerns import FAR, codes_of, listed, signals_of, times
from .raw import Array


def unlike_training(
    X: Array | Tensor, channels: Sequence[str], scale: float | None, subject: object = None
) -> list[str]:
    """A line for people whose unit is probably not that of the training windows, and one for channels that never change
    in anybody.

    X: (N, C, T) in the model's order of channels, with their names. scale: `typical_scale` of the training windows,
    None where it is unknown. subject (N,): whose each window is, None: one person's.
    """
    person, people = codes_of(subject, X.shape[0], "subject", None)
    signals = signals_of(X, person, len(people))
    constant = np.flatnonzero(signals.constant.all(0)).tolist()
    if len(constant) == len(channels):
        return ["nothing changes in any of these windows: is the device connected?"]
    lines = []
    if constant:
        which = f"channel{'s' * (len(constant) > 1)} {listed([channels[c] for c in constant])}"
        lines.append(
            f"{which}, which the model reads, never change{'s' * (len(constant) == 1)}: look at the electrodes"
        )
    if scale is None:
        return lines
    scales = {who: s for who, s in zip(people, signals.scales, strict=True) if math.isfinite(s)}
    far = {who: s for who, s in scales.items() if not 1 / FAR < s / scale < FAR}
    if far:
        whose = "" if len(far) == len(people) else f" of {shown(next(iter(far)))}"
        more = f" and {len(far) - 1} more" if whose and len(far) > 1 else ""
        spread = next(iter(far.values()))
        lines.append(
            f"the windows{whose}{more} vary by {spread:.2g}, those that the model was trained on by {scale:.2g}, a "
            f"factor of about {times(spread / scale)}: give them in the same unit"
        )
    return lines
