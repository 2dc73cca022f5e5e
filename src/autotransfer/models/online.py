"""The average that uses a person's windows: beside a mixture, for sessions and for all windows of a person at once.

It weighs the parts of the mixture anew, and has parts of its own: closed forms whose training people were centred.
These take the centre of the training people for that of a new person, until windows of theirs are known
(training/centring.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..training.centring import Centred, Centring, stacked_centring
from .card import OnlineCard
from .ensemble import TINY, softmax
from .saved_model import SavedModel

ALL = "all"  # of `adapt`: with all windows of a person


class Online:
    """shared: the mixture's parts (K,); parts: its own (E,), of which some are centred."""

    def __init__(self, card: OnlineCard, shared: Sequence[SavedModel], parts: Sequence[SavedModel]) -> None:
        if len(card.exponents) != len(shared) + len(parts):
            raise ValueError(
                f"the online average has {len(card.exponents)} exponents for {len(shared) + len(parts)} parts"
            )
        self.card, self.parts = card, list(parts)
        pairs = zip([*shared, *parts], card.exponents, strict=True)
        self.used = [(part, exponent) for part, exponent in pairs if exponent > 0]
        centring = [part.centring for part, _ in self.used if part.centring is not None]
        if not centring:
            raise ValueError("no part of the online average is centred")
        self.centring: Centring = stacked_centring(centring)
        self.centred = Centred(self.centring, card.rule)

    @torch.no_grad()
    def all_windows(self, X: Tensor, belief: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log-probabilities (n, C), up to a number for each window, from all raw windows (n, channels, times) of
        one person and their probabilities by the mixture (n, C). Their order makes no difference."""
        logits = [part.classifier(part.latents(X)).double().numpy() for part, _ in self.used]  # each (P, n, C)
        to_centre = [of_part for of_part, (part, _) in zip(logits, self.used, strict=True) if part.centring is not None]
        u = self.centred.beside(np.concatenate(to_centre).transpose(1, 0, 2))
        offset = self.centred.all_at_once(u, belief)[:, None]  # (P, 1, C)
        total, start = np.zeros(belief.shape), 0
        for of_part, (part, exponent) in zip(logits, self.used, strict=True):
            if part.centring is not None:
                end = start + len(of_part)
                of_part, start = of_part - offset[start:end], end
            total += exponent * np.log(np.maximum(softmax(of_part).mean(0), TINY))
        return total
