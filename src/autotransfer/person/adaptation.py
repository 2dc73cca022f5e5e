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
        # Members of all stacks side by side. A direction that a stack does not have says nothing: everybody is at 0.
        self._sizes = [(len(own.means), own.means.shape[-1]) for own in effects]
        self._directions = max(directions for _, directions in self._sizes)
        means = torch.cat([self._wide(own.means) for own in effects])
        shift = torch.cat([self._wide(own.shift, 1.0) for own in effects])
        interaction = torch.cat([self._wide(own.interaction, 1.0) for own in effects])
        self._everyone = Effects(means.new_empty(0), means, shift, interaction)
        self._weights = torch.cat(self.weights)
        self.restore([own.nothing for own in effects])

    def _wide(self, own: Tensor, value: float = 0.0) -> Tensor:
        """(..., R of a stack) -> (..., most R)."""
        return torch.nn.functional.pad(own, (0, self._directions - own.shape[-1]), value=value)

    def restore(self, evidence: Sequence[Evidence]) -> None:
        """Go on from there: what was known by each stack."""
        self._evidence = Evidence(torch.cat([self._wide(own.sums) for own in evidence]), evidence[0].counts)
        self._correct()

    @property
    def evidence(self) -> list[Evidence]:
        """What each stack knows."""
        sums, counts = self._evidence
        each = torch.split(sums, [members for members, _ in self._sizes])
        return [Evidence(own[..., :directions], counts) for own, (_, directions) in zip(each, self._sizes, strict=True)]

    def _correct(self) -> None:
        """What is known by now, as a correction: (P · R, C) and (C,)."""
        weight, bias = self._everyone.correction(self._everyone.given(self._evidence, labelled=False))
        self._correction = (weight * self._weights[:, None, None]).flatten(0, 1), self._weights @ bias

    def follow(self, codes: Sequence[Tensor], log_p: Tensor) -> Tensor:
        """The next windows: codes (P, n, D) of each stack, log-probabilities (n, C) up to a constant -> those of the
        person (n, C). Each is corrected by the windows before it, then counts itself."""
        each = [self._wide(own.project(z)) for own, z in zip(self.effects, codes, strict=True)]
        found = []
        for x, said in zip(torch.cat(each).transpose(0, 1), log_p, strict=True):  # (P, R)
            weight, bias = self._correction
            said = said + x.flatten() @ weight + bias
            found.append(said)
            share = said.softmax(-1).to(x.dtype)
            sums, counts = self._evidence
            self._evidence = Evidence(sums + share[:, None] * x[:, None], counts + share)
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
