"""Class means of a subject, re-estimated from unlabeled windows by an EM algorithm that all members share.

Random effects of the subject (training/effects.py) shift the mean of every class in the latents of each member. The
classes of the windows are unknown, so the algorithm alternates between two steps:

    expectation    the probability of each class for a window, from the ensemble with the current correction
    maximization   the posterior of each member's effects, in which a window counts for each class with this probability

The prior has the variance between training subjects. Several windows count as one independent window (design effect),
because windows are correlated and predicted classes may be wrong. The correction of the log-probabilities is linear in
the latents, and 0 before the first window. In an online session, a window is predicted before it is added to the sums.
The correction is computed after every tenth window. If all windows are given at once, the two steps are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..training.effects import Effects, WindowSums

NO_ADAPTATION = "none"
UNTRIED = "untried"  # method of a model whose run had no time to evaluate adaptation
CLASS_MEANS = "class means"  # of the delivered ensemble
CENTERING = "centering"  # of the online ensemble (online.py)
CENTERED_CLASS_MEANS = "centering and class means"  # of the online ensemble
METHODS = (CLASS_MEANS, CENTERING, CENTERED_CLASS_MEANS)
ONLINE_DESIGN_EFFECT = 30.0  # in an online session, which may begin with windows of one class
DESIGN_EFFECT = 10.0  # if all windows of a subject are used at once
UPDATE_INTERVAL = 10  # windows of an online session after which the correction is computed from the new sums
N_ITERATIONS = 3  # more iterations amplify errors

State = dict[str, Tensor]  # sums over the subject's windows


def concatenate_stacks(stacks: Sequence[Effects]) -> Effects:
    """Return the effects of the members of all stacks, without projections. All stacks must have R directions."""
    _, *fields = zip(*stacks, strict=True)
    return Effects(torch.empty(0), *map(torch.cat, fields))


def may_adapt_class_means(method: str | None) -> bool:
    """Return whether the adaptation method of a model card re-estimates class means, or may do so if it is unknown."""
    return method not in (NO_ADAPTATION, CENTERING)


class Adaptation:
    """Adaptation of an ensemble to one subject.

    effects, weights: for each stack, as `Ensemble.effects_and_weights` returns them.
    """

    def __init__(self, effects: Sequence[Effects], weights: Sequence[Tensor]) -> None:
        self.prior = concatenate_stacks(effects)
        self.weights = torch.cat(list(weights))
        sums, counts = self.prior.zero_sums
        self.restore({"sums": sums, "counts": counts, "used_sums": sums, "used_counts": counts})

    def restore(self, state: State) -> None:
        """Restore the sums over the subject's windows, and the sums that the correction is computed from."""
        self.state = state
        self._correction = self._correct(WindowSums(state["used_sums"], state["used_counts"]), ONLINE_DESIGN_EFFECT)

    @property
    def n_windows(self) -> int:
        """Return the number of windows so far; each has the weight 1."""
        counts = self.state["counts"]
        return round(float(counts.view(-1, counts.shape[-1])[0].sum()))

    def _correct(self, sums: WindowSums, design_effect: float) -> tuple[Tensor, Tensor]:
        """Return weights (..., P · R, C) and bias (..., C) of the correction for weighted sums of windows."""
        weight, bias = self.prior.correction(self.prior.posterior(sums, design_effect=design_effect))
        return (weight * self.weights[:, None, None]).flatten(-3, -2), (self.weights[:, None] * bias).sum(-2)

    def adapt(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Correct log-probabilities (n, ..., C) of the next windows with projected latents (n, ..., P, R).

        Each window is corrected before it is added to the sums. Results are not normalized.
        """
        corrected = []
        while len(x):
            n = min(UPDATE_INTERVAL - self.n_windows % UPDATE_INTERVAL, len(x))
            weight, bias = self._correction
            latents = x[:n]
            log_p_windows = log_p[:n] + ((latents.flatten(-2)[..., None, :] @ weight)[..., 0, :] + bias)
            corrected.append(log_p_windows)
            p = log_p_windows.softmax(-1).to(x.dtype)
            sums = self.state["sums"] + torch.einsum("n...c,n...pr->...pcr", p, latents)
            self.state |= {"sums": sums, "counts": self.state["counts"] + p.sum(0)}
            if self.n_windows % UPDATE_INTERVAL == 0:
                self.restore(self.state | {"used_sums": sums, "used_counts": self.state["counts"]})
            x, log_p = x[n:], log_p[n:]
        return torch.cat(corrected)

    def adapt_to_all(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Correct log-probabilities (..., n, C) of all windows of a subject, with projected latents (n, P, R)."""
        return self._correct_all(x, log_p, self.estimate_classes(x, log_p))

    def estimate_classes(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Return the class probabilities (..., n, C) for the last maximization; arguments as in `adapt_to_all`."""
        p = log_p.softmax(-1)
        for _ in range(N_ITERATIONS - 1):
            p = self._correct_all(x, log_p, p).softmax(-1)
        return p

    def _correct_all(self, x: Tensor, log_p: Tensor, p: Tensor) -> Tensor:
        weight, bias = self._correct(self.sum_windows(x, p.to(x.dtype)), DESIGN_EFFECT)
        return log_p + x.flatten(1) @ weight + bias[..., None, :]

    @staticmethod
    def sum_windows(x: Tensor, p: Tensor) -> WindowSums:
        """Return sums of projected latents x (n, P, R), weighted with probabilities p (..., n, C)."""
        return WindowSums(torch.einsum("...nc,npr->...pcr", p, x), p.sum(-2))

    def correct_by_labels(self, x: Tensor, y: Tensor, known: Tensor) -> Tensor:
        """Return the correction (n, C) of the log-probabilities of all windows by the labels of some of them.

        x: projected latents (n, P, R); y: classes (n,); known: (n,), whether a window is labeled
        """
        one_hot = torch.nn.functional.one_hot(y[known], self.prior.means.shape[1]).to(x.dtype)
        weight, bias = self.prior.correction(self.prior.posterior(self.sum_windows(x[known], one_hot)))
        return x.flatten(1) @ (weight * self.weights[:, None, None]).flatten(0, 1) + self.weights @ bias
