"""Mutual information gradient estimation (MIGE): the gradient of I(z; s) from score estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from .. import gpu
from ..errors import check_choice, check_positive, format_number
from ..gpu import pairs
from .filters import nu_steps
from .groups import Groups, find_groups
from .kernel_matrices import check_length_scale
from .method import Method, MethodOptions, stack_option
from .printed import PaperSets, PrintedOptions, find_paper_sets, paper_weights
from .scores import ESTIMATORS, nu_method
from .terms import Term, TermSpec

if TYPE_CHECKING:
    import optuna

DEFAULT_GAMMAS = {"ssge": 0.01, "stein": 0.001, "tikhonov": 0.01, "nu_method": 0.01}  # regularization by estimator
PUBLISHED_GAMMAS = (0.01, 0.001, 0.0001)  # regularization in the published grid


@dataclass(frozen=True, kw_only=True)
class MIGEOptions(PrintedOptions):
    """Options of MIGE."""

    estimator: str = "stein"
    length_scale: str | float = "median"
    regularization: float | None = None  # γ of the estimator (scores.py); None: the estimator's default
    projection: bool = True  # remove components that the gradient of I(z; s) cannot have

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("estimator", self.estimator, ESTIMATORS)
        object.__setattr__(self, "length_scale", check_length_scale(self.length_scale))
        if self.regularization is None:
            object.__setattr__(self, "regularization", DEFAULT_GAMMAS[self.estimator])
        check_positive(self, "regularization")
        if self.as_printed:
            object.__setattr__(self, "projection", False)

    @property
    def name_parts(self) -> list[str]:
        implied = ("projection",) if self.as_printed else ()
        parts = self._changed_parts("estimator", "regularization", "length_scale", *implied)
        return [self.estimator, format_number(self.regularization or 0.0), str(self.length_scale), *parts]


class MIGE(Method):
    """Penalty whose gradient estimates the gradient of mutual information, and whose value has no meaning.

        I(z; s | context) = Σ_c p(c) [ H(z | c) − Σ_g p(g | c) H(z | g) ],   p(c) = n_c/N, p(g | c) = n_g/n_c

    N is the number of rows in valid groups. As ∇H = −E[score · ∂z], the gradient is

        g_i = (score of z_i in its nuisance group − score of z_i in its context) / N

    I does not change under z → a∘z + b, so in every context Σ_i g_i = 0 and Σ_i g_id z_id = 0 for each d. Estimated
    scores violate both equations, and z shrinks or grows. With `projection`, scores are made to satisfy Stein's
    identity, which implies both. Projecting g instead of the scores is less accurate for small groups and large D
    (cosine with the true gradient −.1 versus .7, 16 rows, D = 64).
    """

    gamma: Tensor  # (P,) or ()

    options: MIGEOptions
    label = "MIGE"
    Options = MIGEOptions
    per_member = ("regularization",)
    quick_strengths: ClassVar[dict[str, float]] = {"marginal": 0.01, "conditional": 0.01}
    useful_strengths = (0.01, 0.03)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        self.estimator: Callable[..., Tensor] = ESTIMATORS[self.options.estimator]
        self.register_buffer("gamma", stack_option(options, "regularization", spec.members))
        if self.estimator is nu_method:
            step_counts = sorted(set(nu_steps(self.gamma.reshape(-1)).int().tolist()))
            self.estimator = partial(nu_method, step_counts=step_counts)

    @classmethod
    def variations(cls) -> list[MethodOptions]:
        return [
            MIGEOptions(estimator="ssge"),
            *(
                MIGEOptions(estimator=estimator, regularization=gamma, length_scale=scale)
                for estimator in ("stein", "tikhonov", "nu_method")
                for gamma in PUBLISHED_GAMMAS
                for scale in ("median", "perplexity")
            ),
        ]

    @classmethod
    def suggest(cls, trial: optuna.Trial) -> MethodOptions:
        estimator = trial.suggest_categorical("estimator", tuple(ESTIMATORS))
        gamma = trial.suggest_float("regularization", 1e-4, 1e-1, log=True)
        return MIGEOptions(estimator=estimator, regularization=gamma)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        if self.options.as_printed:
            gradient = self.printed_gradient(term.z.detach(), find_paper_sets(term))
        else:
            gradient = self.gradient(term.z.detach(), find_groups(term, self.min_rows))
        return (gradient * term.z).sum(-1).sum(-1)

    @torch.no_grad()
    def gradient(self, z: Tensor, groups: Groups) -> Tensor:
        """Return ∂I/∂z (P, B, D), 0 in rows without a valid group."""
        gamma = self.gamma.reshape(-1)
        # One call for scores in groups and in contexts computes distances once.
        same = torch.stack([groups.group, groups.context])
        score = self.estimator(z, same=same, length_scale=self.options.length_scale, regularization=gamma)
        if self.options.projection and gpu.is_available(z) and z.shape[1] <= pairs.MAX_REGISTER_ROWS:
            return pairs.score_differences(score, z, same, groups.valid)
        if self.options.projection:
            score = project_scores(score, z, same, groups.context)
        rows = groups.valid.sum(-1).clamp(min=1)[:, None, None]
        return (score[0] - score[1]) / rows

    @torch.no_grad()
    def printed_gradient(self, z: Tensor, sets: PaperSets) -> Tensor:
        """Return ∂I/∂z with the weights of the printed equations: 1/C for a class, 1/M for a subject in a class."""
        same, gamma = torch.stack([sets.group, sets.context]) > 0, self.gamma.reshape(-1)
        score = self.estimator(z, same=same, length_scale=self.options.length_scale, regularization=gamma)
        per_context, per_group = paper_weights(sets, self.nuisances)
        return (per_group[..., None] * score[0] - per_context[..., None] * score[1]) / self.contexts


def project_scores(score: Tensor, z: Tensor, block: Tensor, context: Tensor) -> Tensor:
    """Project scores s such that Σ_i s_i = 0 in every block and Σ_i s_id z_id = −n in every context of n rows.

    score, z: (..., B, D); block, context: (..., B, B) masks. The second sum is over a context and not a block, because
    blocks may have two rows. The difference g of two such scores has Σ_i g_i = 0 and Σ_i g_id z_id = 0.
    """
    in_block, in_context = block.to(z.dtype), context.to(z.dtype)
    rows = in_block.sum(-1, keepdim=True).clamp(min=1)
    has_block = (in_block.sum(-1, keepdim=True) > 0).to(z.dtype)
    z = (z - in_block @ z / rows) * has_block
    score = (score - in_block @ score / rows) * has_block
    spread = in_context @ z.square()
    excess = in_context @ (score * z) + in_context.sum(-1, keepdim=True)
    return score - z * excess / torch.where(spread > 0, spread, torch.ones_like(spread))
