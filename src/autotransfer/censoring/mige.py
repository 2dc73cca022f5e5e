"""Mutual information gradient estimation: only the gradient of I(z; s) is estimated, from scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..settings import Setting
from .groups import Groups, find_groups
from .method import Method, member_numbers
from .scores import ESTIMATORS
from .terms import Term, TermSpec


class MIGE(Method):
    """The value means nothing; the gradient is an estimate of that of

        I(z; s | context) = Σ_c p(c) [ H(z | c) − Σ_g p(g | c) H(z | g) ],   p(c) = n_c/N, p(g | c) = n_g/n_c

    over the N rows that count. As ∇H = −E[score · ∂z], it is with N rows

        g_i = (score of z_i in its nuisance group − score of z_i in its context) / N

    I does not change under z → a∘z + b, so in every context Σ_i g_i = 0 and Σ_i g_id z_id = 0 for each d;
    with `projection` the components of the estimate that break this are taken out.
    """

    gamma: Tensor  # (P,) or ()

    def __init__(self, spec: TermSpec, settings: Sequence[Setting]) -> None:
        super().__init__(spec, settings)
        setting = settings[0]
        self.estimator = ESTIMATORS[setting.estimator or "ssge"]
        self.length_scale = setting.length_scale or "median"
        self.projection = setting.projection
        self.register_buffer("gamma", member_numbers(settings, "regularization", spec.members))

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        gradient = self.gradient(term.z.detach(), groups)
        return (gradient * term.z).sum(-1).sum(-1)

    @torch.no_grad()
    def gradient(self, z: Tensor, groups: Groups) -> Tensor:
        """∂I/∂z: (P, B, D) -> (P, B, D), 0 in rows that do not count."""
        gamma = self.gamma.reshape(-1)

        def score(same: Tensor) -> Tensor:
            return self.estimator(z, same=same, length_scale=self.length_scale, regularization=gamma)

        rows = groups.counts.sum(-1).clamp(min=1)[:, None, None]
        g = (score(groups.group) - score(groups.context)) / rows
        return project(g, z, groups) if self.projection else g


def project(g: Tensor, z: Tensor, groups: Groups) -> Tensor:
    """g less its components along 1 and z_d, in every context and dimension d: all (P, B, D)."""
    same = groups.context.to(z.dtype)
    rows = groups.context_rows[..., None]
    z = (z - same @ z / rows) * groups.counts[..., None]
    g = (g - same @ g / rows) * groups.counts[..., None]
    spread = same @ z.square()
    return g - z * (same @ (g * z)) / torch.where(spread > 0, spread, torch.ones_like(spread))
