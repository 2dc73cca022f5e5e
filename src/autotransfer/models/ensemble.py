"""Candidates arranged for prediction: the one way from raw windows to probabilities.

Candidates that differ in their weights alone are one stack of networks, and transforms that several stacks begin with
are applied once. Only online transforms remember windows: see `Ensemble.follow`.
"""

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
from ..preprocessing import Batch, FittedPreprocessing, SubjectPreprocessing, strongest_adaptation
from ..settings import Setting
from ..training.centering import Centering
from ..training.effects import Effects
from ..training.members import Members
from .candidate import Candidate, Correction

STEP = 16  # windows that are prepared and encoded at once
TINY = 1e-300  # probabilities below count as this: 0 has no logarithm
Floats = NDArray[np.float64]
# Effects of P members and projected latents (P, n, R) -> the posterior, weight and bias of a correction
Learn = Callable[[Effects, Tensor], tuple[Effects, Tensor, Tensor]]
Known = TypeVar("Known", Effects, Correction, Centering)


class Ensemble:
    """log p(class | window) = Σ weight · log p of each candidate, up to a number for each window. A candidate's p is
    the mean over its members.

    weights: (K,) of the candidates
    constant: if a number is predicted, the one that has the rest of the weight; None: classes are predicted
    """

    def __init__(
        self, candidates: Sequence[Candidate], weights: Sequence[float], constant: float | None = None
    ) -> None:
        alike: dict[object, list[int]] = {}
        for place, candidate in enumerate(candidates):
            alike.setdefault(_likeness(candidate), []).append(place)
        self.stacks = [CandidateStack([candidates[place] for place in places]) for places in alike.values()]
        self.places = [place for places in alike.values() for place in places]  # of the candidates, in stack order
        in_order = [weights[place] for place in self.places]
        self.combination = (
            Combination(self.stacks, in_order)
            if constant is None
            else NumberCombination(self.stacks, in_order, constant)
        )
        self.adaptation = strongest_adaptation(candidate.setting.adaptation for candidate in candidates)
        self.shared_transforms = _numbers_of([stack.preprocessing.cache_keys() for stack in self.stacks])

    def follow(self, start: int = 0) -> list[SubjectPreprocessing]:
        """Return the memory of each stack for a new person; windows have been through the transforms before `start`."""
        return [stack.preprocessing.start_subject(start) for stack in self.stacks]

    @torch.inference_mode()
    def predict(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        """Map raw windows (N, channels, times) of subjects (N,), None: of one, to log-probabilities (N, classes), up to
        a number for each window, or to numbers (N, 1). The windows of a subject are in order."""
        log_p = torch.empty(len(X), self.combination.n_classes, dtype=torch.float64)
        for rows, latents in self._latents_of_subjects(X, subject):
            log_p[rows] = self.combination(latents)
        return log_p

    @torch.inference_mode()
    def latents(self, X: Tensor, subject: Tensor | None = None, start: int = 0) -> list[Tensor]:
        """Return the latents of each stack (P, N, D); X and subject as of `predict`. start: how many of the transforms
        the windows have been through."""
        latents = [torch.empty(0) for _ in self.stacks]
        for rows, found in self._latents_of_subjects(X, subject, start):
            for place, z in enumerate(found):
                if not len(latents[place]):
                    latents[place] = z.new_empty(z.shape[0], len(X), z.shape[2])
                latents[place][:, rows] = z
        return latents

    @torch.inference_mode()
    def read(self, X: Tensor, people: Sequence[SubjectPreprocessing]) -> tuple[list[Tensor], Tensor]:
        """Map the next raw windows (n, channels, times) of a person to the latents of each stack (P, n, D) and
        log-probabilities (n, classes), up to a number for each window."""
        pieces = [latents for _, latents in self._latents_of_person(X, people)]
        latents = pieces[0] if len(pieces) == 1 else [torch.cat(of_stack, 1) for of_stack in zip(*pieces, strict=True)]
        return latents, torch.cat([self.combination(piece) for piece in pieces])

    def _latents_of_subjects(
        self, X: Tensor, subject: Tensor | None, start: int = 0
    ) -> Iterator[tuple[Tensor | slice, list[Tensor]]]:
        """Yield rows of X and the latents of each stack (P, n, D), in pieces."""
        if subject is None or self.adaptation == "none":
            yield from self._latents_of_person(X, self.follow(start))
            return
        for one in subject.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (subject == one).nonzero()[:, 0]
            for piece, latents in self._latents_of_person(X[rows], self.follow(start)):
                yield rows[piece], latents

    def _latents_of_person(
        self, X: Tensor, people: Sequence[SubjectPreprocessing]
    ) -> Iterator[tuple[slice, list[Tensor]]]:
        """Yield rows of a person's next windows and the latents of each stack (P, n, D), in pieces."""
        at_once = [person.feed(X.to(torch.float32)) if person.at_once else None for person in people]
        for begin in range(0, len(X), STEP):
            rows = slice(begin, begin + STEP)
            windows, known = X[rows].to(torch.float32), dict[object, Batch]()
            latents = []
            for stack, person, keys, ready in zip(self.stacks, people, self.shared_transforms, at_once, strict=True):
                latents.append(stack.latents(person.feed(windows, keys, known) if ready is None else ready[:, rows]))
            yield rows, latents

    # ---- corrections for one person ----------------------------------------------------------------------------------

    def corrected(self, X: Tensor, learn: Learn, share: float = 1.0) -> list[Candidate]:
        """Return the candidates for the person of raw windows (n, channels, times), in the order in which they were
        given. share: of the correction that counts."""
        corrected = {}
        places = iter(self.places)
        for stack, latents in zip(self.stacks, self.latents(X), strict=True):
            assert stack.effects is not None, "checked"
            posterior, weight, bias = learn(stack.effects, stack.effects.project(latents))
            correction = Correction(share * (stack.effects.projection @ weight), share * bias)
            if stack.correction is not None:
                correction = Correction(*map(torch.add, correction, stack.correction))
            start = 0
            for candidate in stack.candidates:
                rows = slice(start, start := start + len(candidate.members))
                corrected[next(places)] = replace(
                    candidate,
                    effects=Effects(*(tensor[rows] for tensor in posterior)),
                    correction=Correction(*(tensor[rows] for tensor in correction)),
                )
        return [corrected[place] for place in range(len(corrected))]

    @cached_property
    def effects(self) -> tuple[list[Effects], list[Tensor]]:
        """Return the effects of each stack, with equally many directions, and weights (P,) of members' corrections."""
        weights = torch.split(self.combination.member_weights.float(), [len(stack) for stack in self.stacks])
        effects = [stack.effects for stack in self.stacks if stack.effects is not None]
        directions = max(known.means.shape[-1] for known in effects)
        return [known.pad(directions) for known in effects], list(weights)

    def project(self, latents: Sequence[Tensor]) -> Tensor:
        """Map latents (P, n, D) of each stack to (n, P of all stacks, R)."""
        effects, _ = self.effects
        return torch.cat([known.project(z) for known, z in zip(effects, latents, strict=True)]).transpose(0, 1)


class Combination(nn.Module):
    """Latents of the members of all stacks -> log-probabilities of the ensemble, up to a number for each window.

    Single precision has no room for the probabilities that sharp candidates give to classes they rule out, and others
    may outvote them, so all but the logits is in double precision.
    """

    mean: Tensor  # (K, P) the mean over the members of each candidate
    weights: Tensor  # (K,)
    member_weights: Tensor  # (P,) of members' corrections
    tiny: Tensor  # a buffer: exporters write a number of `clamp` in single precision, where it is 0

    def __init__(self, stacks: Sequence[CandidateStack], weights: Sequence[float]) -> None:
        super().__init__()
        self.is_corrected = any(stack.correction is not None for stack in stacks)
        for place, (weight, bias) in enumerate(stack.head(self.is_corrected) for stack in stacks):
            self.register_buffer(f"weight{place}", weight)
            self.register_buffer(f"bias{place}", bias)
        self.n_classes = stacks[0].bias.shape[-1]
        sizes = torch.tensor([len(candidate.members) for stack in stacks for candidate in stack.candidates])
        members = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.register_buffer("mean", (members == torch.arange(len(sizes))[:, None]).double() / sizes[:, None])
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))
        self.register_buffer("member_weights", self.weights @ self.mean)
        self.register_buffer("tiny", torch.tensor(TINY, dtype=torch.float64))

    def forward(self, latents: Sequence[Tensor]) -> Tensor:
        """Map latents of each stack (P, n, D) to log-probabilities (n, classes) float64."""
        logits = self.logits(latents)
        if not self.is_corrected:
            return self.pool(logits, self.mean, self.weights)
        logits, corrections = logits.chunk(2, -1)
        added = (self.member_weights[:, None, None] * corrections).sum(0)
        return self.pool(logits, self.mean, self.weights) + added

    def logits(self, latents: Sequence[Tensor]) -> Tensor:
        """Map latents of each stack (P, n, D) to logits (P of all, n, classes) float64, followed by corrections, if
        there are any, along the last axis."""
        heads = [(getattr(self, f"bias{place}"), getattr(self, f"weight{place}")) for place in range(len(latents))]
        parts = [torch.baddbmm(bias, z, weight) for z, (bias, weight) in zip(latents, heads, strict=True)]
        return torch.cat(parts).double()

    def pool(self, logits: Tensor, mean: Tensor, weights: Tensor) -> Tensor:
        """Map logits (P, n, classes) of the members of K candidates, whose mean is (K, P) and weights (K,), to
        log-probabilities (n, classes)."""
        probability = torch.matmul(mean, logits.softmax(-1).flatten(1))  # (K, n · classes)
        log_p: Tensor = torch.matmul(weights, probability.maximum(self.tiny).log()).view(-1, self.n_classes)
        return log_p


class NumberCombination(Combination):
    """Latents of the members of all stacks -> constant + Σ weight · (number of a candidate − constant), (n, 1)."""

    constant: Tensor  # ()

    def __init__(self, stacks: Sequence[CandidateStack], weights: Sequence[float], constant: float) -> None:
        super().__init__(stacks, weights)
        self.register_buffer("constant", torch.tensor(constant, dtype=torch.float64))

    def pool(self, logits: Tensor, mean: Tensor, weights: Tensor) -> Tensor:
        """Map outputs (P, n, 1) of the members of K candidates to numbers (n, 1)."""
        numbers = torch.matmul(mean, logits.flatten(1))  # (K, n)
        weighted: Tensor = self.constant + torch.matmul(weights, numbers - self.constant)
        return weighted[:, None]


class CandidateStack:
    """Candidates alike in all but their weights: P members in all, one candidate's after the other's."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        first = candidates[0]
        self.setting: Setting = first.setting
        self.candidates = list(candidates)
        tensors = _side_by_side([candidate.members.tensors() for candidate in candidates])
        self.network = first.members.net
        if len(candidates) > 1:
            members = Members(self.setting, first.size, range(len(self)), dtype=tensors["classifier.weight"].dtype)
            members.load_stacked(tensors)
            self.network = members.net.eval()
        # In use, networks with normalizations folded into their filters take half as long as in training.
        self.is_folded = self.setting.encoder in ENCODERS and not self.setting.network.closed_form
        self.encoder = self.network.graph() if self.is_folded else self.network
        statistics = _side_by_side([candidate.preprocessing.state_dict() for candidate in candidates])
        own = self.setting.encoder not in ENCODERS  # a user's module takes windows of every member
        self.group = torch.arange(len(self)) if own else _equal_rows(statistics, len(self))  # (P,), of G
        chosen = torch.tensor([self.group.tolist().index(group) for group in range(int(self.group.max()) + 1)])
        by_group = {name: tensor[chosen] for name, tensor in statistics.items()}
        self.preprocessing: FittedPreprocessing = self.setting.preprocessing.restore(by_group)
        self.weight = tensors["classifier.weight"].transpose(1, 2).contiguous()  # (P, D, classes)
        self.bias = tensors["classifier.bias"][:, None]  # (P, 1, classes)
        self.correction = _of_all([candidate.correction for candidate in candidates])
        self.effects = _of_all([candidate.effects for candidate in candidates])
        self.centering = _of_all([candidate.centering for candidate in candidates])

    def __len__(self) -> int:
        return sum(len(candidate.members) for candidate in self.candidates)

    def latents(self, x: Tensor) -> Tensor:
        """Map prepared windows (G or 1, n, C, T) to latents (P, n, D)."""
        if x.shape[0] > 1:
            x = x.index_select(0, self.group)
        z: Tensor = self.encoder(x if self.is_folded or x.shape[0] > 1 else x[0])
        return z

    def head(self, corrected: bool) -> tuple[Tensor, Tensor]:
        """Return weight (P, D, classes) and bias (P, 1, classes) from latents to logits. corrected: with those of a
        person's correction after them along the last axis, 0 where there is none."""
        if not corrected:
            return self.weight, self.bias
        known = self.correction
        weight, bias = (0 * self.weight, 0 * self.bias) if known is None else (known.weight, known.bias[:, None])
        return torch.cat([self.weight, weight], -1), torch.cat([self.bias, bias], -1)


def _likeness(candidate: Candidate) -> object:
    """Return what candidates must agree in to have the same transforms, and networks of the same shapes."""
    setting = candidate.setting
    if setting.encoder not in ENCODERS:  # the user's own, of which nothing is known
        return id(candidate)
    directions = None if candidate.effects is None else candidate.effects.shift.shape[1]
    known = candidate.correction is not None, directions, candidate.centering is not None
    return setting.preprocessing, setting.encoder, setting.network.program(candidate.size.sfreq), known


def _of_all(known: Sequence[Known | None]) -> Known | None:
    """Return named tuples of tensors with the member on axis 0 one after the other; None where a candidate has none."""
    present = [of_candidate for of_candidate in known if of_candidate is not None]
    if len(present) < len(known):
        return None
    return type(present[0])(*map(torch.cat, zip(*present, strict=True)))


def _side_by_side(candidates: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return tensors by name, with the members of all candidates on axis 0."""
    return {name: torch.cat([tensors[name] for tensors in candidates]).detach() for name in candidates[0]}


def _equal_rows(tensors: dict[str, Tensor], members: int) -> Tensor:
    """Number members (P,) so that those whose rows are equal in all tensors have the same number, from 0 on."""
    known: dict[bytes, int] = {}
    rows = [b"".join(tensor[member].numpy().tobytes() for tensor in tensors.values()) for member in range(members)]
    return torch.tensor([known.setdefault(row, len(known)) for row in rows])


def _numbers_of(lists: Sequence[Sequence[object]]) -> list[list[int | None]]:
    """Return numbers in place of keys, equal ones for equal keys; None for one that only a single list has."""
    numbers: dict[object, int] = {}
    counts = Counter(key for keys in lists for key in keys)
    return [[numbers.setdefault(key, len(numbers)) if counts[key] > 1 else None for key in keys] for keys in lists]


def refuse_candidates(candidates: Sequence[Candidate], check: Callable[[Candidate], object]) -> None:
    """Raise where the check refuses a candidate, which the message names where there are several."""
    for candidate in candidates:
        try:
            check(candidate)
        except UserError as error:
            if len(candidates) == 1:
                raise
            raise UserError(f"{error} (the candidate {candidate.setting.family!r})") from None
