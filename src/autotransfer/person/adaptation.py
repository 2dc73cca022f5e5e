"""Adaptation without labels: a session follows where a person's codes lie beside those of people trained on.

Every window moves the person's shift (training/effects.py). It counts for each class as much as the model believes in
it, so a person who shows one class alone is not taken for somebody whose classes all look like that one, and few
windows move little.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..training.effects import Effects, Evidence


class Adaptation:
    """One person: what their windows have told so far.

    effects: of the P members of each stack; weights: (P,) of each, what a member's correction counts
    """

    def __init__(self, effects: Sequence[Effects], weights: Sequence[Tensor]) -> None:
        self.effects, self.weights = list(effects), list(weights)
        self.restore([own.nothing for own in effects])

    def restore(self, evidence: Sequence[Evidence]) -> None:
        """Go on from there."""
        self.evidence = list(evidence)
        self._correct()

    def _correct(self) -> None:
        """What is known by now, as corrections of each stack: (R · P, C) and (C,)."""
        self._corrections = []
        for effects, evidence, weights in zip(self.effects, self.evidence, self.weights, strict=True):
            weight, bias = effects.correction(effects.given(evidence, labelled=False))
            self._corrections.append(((weight * weights[:, None, None]).flatten(0, 1), weights @ bias))

    def follow(self, codes: Sequence[Tensor], log_p: Tensor) -> Tensor:
        """The next windows: codes (P, n, D) of each stack, log-probabilities (n, C) up to a constant -> those of the
        person (n, C). Each is corrected by the windows before it, then counts itself."""
        projected = [own.project(z).transpose(0, 1) for own, z in zip(self.effects, codes, strict=True)]  # (n, P, R)
        found = []
        for row, said in enumerate(log_p):
            own = [x[row] for x in projected]
            for x, (weight, bias) in zip(own, self._corrections, strict=True):
                said = said + x.flatten() @ weight + bias
            found.append(said)
            share = said.softmax(-1).to(own[0].dtype)
            self.evidence = [
                Evidence(evidence.sums + share[:, None] * x[:, None], evidence.counts + share)
                for evidence, x in zip(self.evidence, own, strict=True)
            ]
            self._correct()
        return torch.stack(found)

    def calibration(self, codes: Sequence[Tensor], y: Tensor, known: Tensor) -> Tensor:
        """What labels would add to the log-probabilities of all windows: codes (P, n, D) of each stack, classes (n,),
        of which those are known that `known` (n,) says -> (n, C)."""
        found = torch.zeros(())
        for effects, z, weights in zip(self.effects, codes, self.weights, strict=True):
            x, n_classes = effects.project(z), effects.means.shape[1]
            evidence = effects.evidence(x[:, known], torch.nn.functional.one_hot(y[known], n_classes))
            weight, bias = effects.correction(effects.given(evidence, labelled=True))
            found = found + torch.einsum("pnc,p->nc", x @ weight + bias[:, None], weights)
        return found
