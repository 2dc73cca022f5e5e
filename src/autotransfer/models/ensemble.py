"""Ensemble of candidates, which maps raw windows to log-probabilities; candidates of one architecture are stacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UserError
from ..model.encoders import ENCODERS
from ..preprocessing import FittedPreprocessing, SubjectPreprocessing, strongest_adaptation
from ..settings import Setting
from ..training.centering import Centering
from ..training.effects import Effects
from ..training.members import Members
from .calibration import check_effects
from .candidate import Candidate, Correction

STEP = 64  # windows per forward pass
TINY = 1e-300  # lower bound of probabilities, so that logarithms are finite
Floats = NDArray[np.float64]
# Maps the effects of P members, and latents (P, n, R) projected to R directions, to the posterior effects and to the
# weight and bias of a correction.
FitCorrection = Callable[[Effects, Tensor], tuple[Effects, Tensor, Tensor]]
Tensors = TypeVar("Tensors", Effects, Correction, Centering)


class Ensemble:
    """Weighted ensemble: log p(class | window) = Σ weight · log p of each candidate, up to a constant per window.

    A candidate's p is the mean over its members. constant: for regression, see `RegressionCombination`; otherwise None.
    """

    def __init__(
        self, candidates: Sequence[Candidate], weights: Sequence[float], constant: float | None = None
    ) -> None:
        indices_by_key: dict[object, list[int]] = {}
        for index, candidate in enumerate(candidates):
            indices_by_key.setdefault(_stacking_key(candidate), []).append(index)
        self.stacks = [CandidateStack([candidates[index] for index in indices]) for indices in indices_by_key.values()]
        self.stack_order = [index for indices in indices_by_key.values() for index in indices]  # indices of candidates
        ordered_weights = [weights[index] for index in self.stack_order]
        self.combination = (
            Combination(self.stacks, ordered_weights)
            if constant is None
            else RegressionCombination(self.stacks, ordered_weights, constant)
        )
        self.adaptation = strongest_adaptation(candidate.setting.adaptation for candidate in candidates)
        # A transform that several stacks use has an id, by which its output is cached.
        self.cache_ids = _number_repeated_keys([stack.preprocessing.cache_keys() for stack in self.stacks])

    def start_subject(self, start: int = 0) -> list[SubjectPreprocessing]:
        """Return the state of each stack for a new subject.

        start: number of transforms that were already applied to the subject's windows.
        """
        return [stack.preprocessing.start_subject(start) for stack in self.stacks]

    @torch.inference_mode()
    def predict(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        """Return log-probabilities (N, classes), up to a constant per window, or for regression predictions (N, 1).

        X: raw windows (N, channels, times), in order within a subject. subject: (N,), or None for one subject.
        """
        log_p = torch.empty(len(X), self.combination.n_classes, dtype=torch.float64)
        for rows, latents in self._latents_of_subjects(X, subject):
            log_p[rows] = self.combination(latents)
        return log_p

    @torch.inference_mode()
    def latents(self, X: Tensor, subject: Tensor | None = None, start: int = 0) -> list[Tensor]:
        """Return the latents of each stack (P, N, D); X and subject as in `predict`, start as in `start_subject`."""
        latents = [torch.empty(0) for _ in self.stacks]
        for rows, piece in self._latents_of_subjects(X, subject, start):
            for stack, z in enumerate(piece):
                if not len(latents[stack]):
                    latents[stack] = z.new_empty(z.shape[0], len(X), z.shape[2])
                latents[stack][:, rows] = z
        return latents

    @torch.inference_mode()
    def predict_with_latents(self, X: Tensor, states: Sequence[SubjectPreprocessing]) -> tuple[list[Tensor], Tensor]:
        """Return latents of each stack (P, n, D) and log-probabilities (n, classes) of a subject's next raw windows."""
        pieces = [latents for _, latents in self._latents_of_subject(X, states)]
        latents = pieces[0] if len(pieces) == 1 else [torch.cat(parts, 1) for parts in zip(*pieces, strict=True)]
        return latents, torch.cat([self.combination(piece) for piece in pieces])

    def _latents_of_subjects(
        self, X: Tensor, subject: Tensor | None, start: int = 0
    ) -> Iterator[tuple[Tensor | slice, list[Tensor]]]:
        """Yield rows of X and the latents of each stack (P, n, D) for them."""
        if subject is None or self.adaptation == "none":
            yield from self._latents_of_subject(X, self.start_subject(start))
            return
        for index in subject.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (subject == index).nonzero()[:, 0]
            for piece, latents in self._latents_of_subject(X[rows], self.start_subject(start)):
                yield rows[piece], latents

    def _latents_of_subject(
        self, X: Tensor, states: Sequence[SubjectPreprocessing]
    ) -> Iterator[tuple[slice, list[Tensor]]]:
        """Yield rows of one subject's next windows and the latents of each stack (P, n, D) for them."""
        preprocessed = [state.feed(X.to(torch.float32)) if state.needs_all_windows else None for state in states]
        for begin in range(0, len(X), STEP):
            rows = slice(begin, begin + STEP)
            windows, cache = X[rows].to(torch.float32), dict[object, Tensor]()
            latents = []
            for stack, state, ids, x in zip(self.stacks, states, self.cache_ids, preprocessed, strict=True):
                latents.append(stack.latents(state.feed(windows, ids, cache) if x is None else x[:, rows]))
            yield rows, latents

    # ---- corrections for one subject ---------------------------------------------------------------------------------

    def correct(self, X: Tensor, fit: FitCorrection, share: float = 1.0) -> list[Candidate]:
        """Fit a correction to raw windows of a subject, and return copies of the candidates with this correction.

        share: factor by which the correction is multiplied.
        """
        corrected = {}
        indices = iter(self.stack_order)
        for stack, latents in zip(self.stacks, self.latents(X), strict=True):
            assert stack.effects is not None, "checked by check_effects"
            posterior, weight, bias = fit(stack.effects, stack.effects.project(latents))
            correction = Correction(share * (stack.effects.projection @ weight), share * bias)
            if stack.correction is not None:
                correction = Correction(*map(torch.add, correction, stack.correction))
            start = 0
            for candidate in stack.candidates:
                rows = slice(start, start := start + len(candidate.members))
                corrected[next(indices)] = replace(
                    candidate,
                    effects=Effects(*(tensor[rows] for tensor in posterior)),
                    correction=Correction(*(tensor[rows] for tensor in correction)),
                )
        return [corrected[index] for index in range(len(corrected))]

    @cached_property
    def corrected_stacks(self) -> list[int]:
        """Return the indices of the stacks whose latents determine the correction for a subject."""
        indices = [k for k, stack in enumerate(self.stacks) if stack.setting.network.is_corrected]
        return indices or list(range(len(self.stacks)))

    @cached_property
    def effects_and_weights(self) -> tuple[list[Effects], list[Tensor]]:
        """Return effects and member weights (P,) of each corrected stack; all effects are padded to R directions."""
        check_effects([candidate for stack in self.stacks for candidate in stack.candidates])
        weights = torch.split(self.combination.member_weights.float(), [len(stack) for stack in self.stacks])
        effects = [effects for k in self.corrected_stacks if (effects := self.stacks[k].effects) is not None]
        directions = max(stack_effects.means.shape[-1] for stack_effects in effects)
        return [stack_effects.pad(directions) for stack_effects in effects], [weights[k] for k in self.corrected_stacks]

    def project(self, latents: Sequence[Tensor]) -> Tensor:
        """Project latents (P, n, D) of each stack to (n, P of all corrected stacks, R)."""
        pairs = zip(self.effects_and_weights[0], self.corrected_stacks, strict=True)
        return torch.cat([effects.project(latents[k]) for effects, k in pairs]).transpose(0, 1)


class Combination(nn.Module):
    """Module that maps latents of all stacks to log-probabilities of the ensemble, up to a constant per window.

    All steps after the logits are in double precision, because small probabilities would become 0 in single precision.
    """

    mean: Tensor  # (K, P) matrix that averages the members of each candidate
    weights: Tensor  # (K,)
    member_weights: Tensor  # (P,) weights of the members' corrections
    tiny: Tensor  # TINY as a buffer, because exporters write constants in single precision, where TINY is 0

    def __init__(self, stacks: Sequence[CandidateStack], weights: Sequence[float]) -> None:
        super().__init__()
        self.is_corrected = any(stack.correction is not None for stack in stacks)
        for index, (weight, bias) in enumerate(stack.head(self.is_corrected) for stack in stacks):
            self.register_buffer(f"weight{index}", weight)
            self.register_buffer(f"bias{index}", bias)
        self.n_classes = stacks[0].bias.shape[-1]
        sizes = torch.tensor([len(candidate.members) for stack in stacks for candidate in stack.candidates])
        members = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.register_buffer("mean", (members == torch.arange(len(sizes))[:, None]).double() / sizes[:, None])
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))
        self.register_buffer("member_weights", self._weigh_corrections(stacks))
        self.register_buffer("tiny", torch.tensor(TINY, dtype=torch.float64))

    def _weigh_corrections(self, stacks: Sequence[CandidateStack]) -> Tensor:
        """Return the weights (P,) of the members' corrections: 0 if not corrected, with an unchanged sum."""
        weights = self.weights @ self.mean
        is_corrected = [torch.full((len(stack),), stack.setting.network.is_corrected) for stack in stacks]
        corrected = weights * torch.cat(is_corrected)
        return corrected * (weights.sum() / corrected.sum()) if corrected.any() else weights

    def forward(self, latents: Sequence[Tensor]) -> Tensor:
        """Map latents of each stack (P, n, D) to log-probabilities (n, classes) float64."""
        logits = self.logits(latents)
        if not self.is_corrected:
            return self.pool(logits, self.mean, self.weights)
        logits, corrections = logits.chunk(2, -1)
        correction = (self.member_weights[:, None, None] * corrections).sum(0)
        return self.pool(logits, self.mean, self.weights) + correction

    def logits(self, latents: Sequence[Tensor]) -> Tensor:
        """Map latents of each stack (P, n, D) to logits (members of all stacks, n, classes or 2 · classes)."""
        heads = [(getattr(self, f"bias{index}"), getattr(self, f"weight{index}")) for index in range(len(latents))]
        parts = [torch.baddbmm(bias, z, weight) for z, (bias, weight) in zip(latents, heads, strict=True)]
        return torch.cat(parts).double()  # if corrected: (…, 2 · classes), with the corrections in the second half

    def pool(self, logits: Tensor, mean: Tensor, weights: Tensor) -> Tensor:
        """Map logits (P, n, classes) to log-probabilities (n, classes), with mean (K, P) and weights (K,)."""
        probability = torch.matmul(mean, logits.softmax(-1).flatten(1))  # (K, n · classes)
        log_p: Tensor = torch.matmul(weights, probability.maximum(self.tiny).log()).view(-1, self.n_classes)
        return log_p


class RegressionCombination(Combination):
    """Module that maps latents to predictions (n, 1): constant + Σ weight · (prediction of a candidate − constant)."""

    constant: Tensor  # ()

    def __init__(self, stacks: Sequence[CandidateStack], weights: Sequence[float], constant: float) -> None:
        super().__init__(stacks, weights)
        self.register_buffer("constant", torch.tensor(constant, dtype=torch.float64))

    def pool(self, logits: Tensor, mean: Tensor, weights: Tensor) -> Tensor:
        """Map outputs (P, n, 1) to predictions (n, 1), with mean (K, P) and weights (K,)."""
        predictions = torch.matmul(mean, logits.flatten(1))  # (K, n)
        weighted: Tensor = self.constant + torch.matmul(weights, predictions - self.constant)
        return weighted[:, None]


class CandidateStack:
    """Stack of candidates of one architecture and preprocessing, with P members in all."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        first = candidates[0]
        self.setting: Setting = first.setting
        self.candidates = list(candidates)
        tensors = _concatenate([candidate.members.tensors() for candidate in candidates])
        self.network = first.members.net
        if len(candidates) > 1:
            members = Members(self.setting, first.size, range(len(self)), dtype=tensors["classifier.weight"].dtype)
            members.load_stacked(tensors)
            self.network = members.net.eval()
        # Folding normalizations into the filters halves the time of prediction.
        self.is_folded = self.setting.encoder in ENCODERS and not self.setting.network.is_closed_form
        self.encoder = self.network.graph() if self.is_folded else self.network
        statistics = _concatenate([candidate.preprocessing.state_dict() for candidate in candidates])
        is_user_module = self.setting.encoder not in ENCODERS  # such a module needs the windows of each member
        self.group = torch.arange(len(self)) if is_user_module else _group_equal_members(statistics, len(self))  # (P,)
        first_members = torch.tensor([self.group.tolist().index(group) for group in range(int(self.group.max()) + 1)])
        by_group = {name: tensor[first_members] for name, tensor in statistics.items()}
        self.preprocessing: FittedPreprocessing = self.setting.preprocessing.restore(by_group)
        self.weight = tensors["classifier.weight"].transpose(1, 2).contiguous()  # (P, D, classes)
        self.bias = tensors["classifier.bias"][:, None]  # (P, 1, classes)
        self.correction = _concatenate_tuples([candidate.correction for candidate in candidates])
        self.effects = _concatenate_tuples([candidate.effects for candidate in candidates])
        self.centering = _concatenate_tuples([candidate.centering for candidate in candidates])

    def __len__(self) -> int:
        return sum(len(candidate.members) for candidate in self.candidates)

    def latents(self, x: Tensor) -> Tensor:
        """Map preprocessed windows (groups or 1, n, channels, times) to latents (P, n, D)."""
        if x.shape[0] > 1:
            x = x.index_select(0, self.group)
        z: Tensor = self.encoder(x if self.is_folded or x.shape[0] > 1 else x[0])
        return z

    def head(self, with_correction: bool) -> tuple[Tensor, Tensor]:
        """Return weight (P, D, classes) and bias (P, 1, classes), with the correction appended on the last axis."""
        if not with_correction:
            return self.weight, self.bias
        weight, bias = 0 * self.weight, 0 * self.bias
        if self.correction is not None:
            weight, bias = self.correction.weight, self.correction.bias[:, None]
        return torch.cat([self.weight, weight], -1), torch.cat([self.bias, bias], -1)


class Graph(nn.Module):
    """Module that maps raw windows (N, channels, times) float32 of one subject to the output of `predict_proba`."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(map(StackGraph, ensemble.stacks))
        self.combination = ensemble.combination

    def forward(self, windows: Tensor) -> Tensor:
        log_p: Tensor = self.combination([stack(windows) for stack in self.stacks])
        return log_p.softmax(-1).float()


class StackGraph(nn.Module):
    """Module that maps raw windows (N, channels, times) to the latents (P, N, D) of a stack."""

    group: Tensor  # (P,) index of each member's preprocessed windows

    def __init__(self, stack: CandidateStack) -> None:
        super().__init__()
        self.preprocessing, self.encoder = stack.preprocessing.graph(), stack.network.graph()
        self.register_buffer("group", stack.group)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.preprocessing(windows[None])
        z: Tensor = self.encoder(x if x.shape[0] == 1 else x.index_select(0, self.group))
        return z


def _stacking_key(candidate: Candidate) -> object:
    """Return a key that is equal for candidates with equal transforms and tensors of equal shapes."""
    setting = candidate.setting
    if setting.encoder not in ENCODERS:  # a user's module may have any shapes
        return id(candidate)
    directions = None if candidate.effects is None else candidate.effects.shift.shape[1]
    optional_parts = candidate.correction is not None, directions, candidate.centering is not None
    return setting.preprocessing, setting.encoder, setting.network.program(candidate.size.sfreq), optional_parts


def _concatenate_tuples(tuples: Sequence[Tensors | None]) -> Tensors | None:
    """Concatenate named tuples of tensors along the members' axis; return None if a candidate has none."""
    present = [group for group in tuples if group is not None]
    if len(present) < len(tuples):
        return None
    return type(present[0])(*map(torch.cat, zip(*present, strict=True)))


def _concatenate(state_dicts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Concatenate tensors of the same name along the members' axis."""
    return {name: torch.cat([tensors[name] for tensors in state_dicts]).detach() for name in state_dicts[0]}


def _group_equal_members(tensors: dict[str, Tensor], n_members: int) -> Tensor:
    """Return the group number (P,) of each member; members with equal values in all tensors share a group."""
    groups: dict[bytes, int] = {}
    rows = [b"".join(tensor[member].numpy().tobytes() for tensor in tensors.values()) for member in range(n_members)]
    return torch.tensor([groups.setdefault(row, len(groups)) for row in rows])


def _number_repeated_keys(lists: Sequence[Sequence[object]]) -> list[list[int | None]]:
    """Replace keys that occur more than once by a number for each distinct key, and other keys by None."""
    numbers: dict[object, int] = {}
    counts = Counter(key for keys in lists for key in keys)
    return [[numbers.setdefault(key, len(numbers)) if counts[key] > 1 else None for key in keys] for keys in lists]


def check_candidates(candidates: Sequence[Candidate], check: Callable[[Candidate], object]) -> None:
    """Run a check on each candidate; if there are several candidates, an error names the candidate."""
    for candidate in candidates:
        try:
            check(candidate)
        except UserError as error:
            if len(candidates) == 1:
                raise
            raise UserError(f"{error} (the candidate {candidate.setting.family!r})") from None
