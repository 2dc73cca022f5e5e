"""Censors of a population: members of one code path share a stacked censor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ..censoring import CENSORS
from ..censoring.censor import Censor
from ..censoring.critics import CriticOptions
from ..randomness import key_of
from ..settings import Setting
from .flat import FlatParameters
from .optimizer import AdamW
from .program import Branches


class _CodePath:
    """Members of one code path with their censor and its critics' optimizer."""

    def __init__(
        self, settings: list[Setting], index: list[int], seeds: Sequence[int], *, latent_dim: int, n_classes: int,
        n_groups: int, branches: Sequence[int] | None, device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        penalties = [penalty for member in index if (penalty := settings[member].penalty) is not None]
        first, options = penalties[0], [penalty.options for penalty in penalties]
        self.name = f"{key_of(*settings[index[0]].code_path):08x}"
        self.index = torch.tensor(index, device=device)
        self.censor = Censor(
            CENSORS[first.method], first.mode, options, latent_dim=latent_dim, n_classes=n_classes,
            n_subjects=n_groups, members=len(index), seeds=[seeds[member] for member in index], branches=branches,
        ).to(device=device, dtype=dtype)  # fmt: skip
        self._labels: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # labels of all members and of these members
        self.critic: AdamW | None = None
        critics = [one for one in options if isinstance(one, CriticOptions)]
        self.steps = critics[0].critic_steps if critics else 1
        if any(True for _ in self.censor.parameters()):
            rates = [settings[member].training.lr for member in index]
            if critics:
                rates = [options.critic_lr or rate for options, rate in zip(critics, rates, strict=True)]
            decay = [settings[member].training.weight_decay for member in index]
            self.rate = torch.tensor(rates, dtype=dtype, device=device)
            self.critic = AdamW(FlatParameters(censor=self.censor), torch.tensor(decay, dtype=dtype, device=device))

    def labels(self, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels of these members, as the same tensors for critics and penalty, so that caches hold."""
        if len(self.index) == len(y):
            return y, s
        if self._labels is None or self._labels[0] is not y or self._labels[1] is not s:
            self._labels = (y, s, y[self.index], s[self.index])
        return self._labels[2:]

    def after_step(self, active: Tensor) -> None:
        self._labels = None
        self.censor.after_step(active[self.index])

    def select(self, keep: Tensor, index: Tensor) -> None:
        """Keep only members `keep` of this part; `index` are their new indices in the population."""
        self.index = index
        self.censor.select(keep)
        if self.critic is not None:
            self.rate = self.rate[keep]
            self.critic.select(keep)
            self.critic.flat = FlatParameters(censor=self.censor)


class Censors:
    """Penalties (P,) of a population, 0 for members without a censor."""

    def __init__(
        self, settings: list[Setting], seeds: Sequence[int], *, latent_dim: int, n_classes: int,
        n_groups: Sequence[int], device: torch.device, dtype: torch.dtype, branches: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Make the censors; n_groups: one per member, equal within a code path; branches: their widths in z."""
        paths: dict[tuple[object, ...], list[int]] = {}
        for member, setting in enumerate(settings):
            if setting.penalty is not None:
                paths.setdefault(setting.code_path, []).append(member)
        self.paths = [
            _CodePath(
                settings, index, seeds, latent_dim=latent_dim, n_classes=n_classes, n_groups=n_groups[index[0]],
                branches=branches, device=device, dtype=dtype,
            )
            for index in paths.values()
        ]  # fmt: skip
        self.branches = Branches(device)

    def penalty(self, z: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """Return the penalties (P,) of latents z (P, B, D) with classes y and subjects s (P, B)."""
        if len(self.paths) == 1 and len(self.paths[0].index) == len(z):
            return self.paths[0].censor(z, y, s)  # type: ignore[no-any-return]  # modules give Any

        def work(part: _CodePath) -> Tensor:
            return part.censor(z[part.index], *part.labels(y, s))  # type: ignore[no-any-return]  # modules give Any

        penalty = z.new_zeros(z.shape[0])
        for part, values in zip(self.paths, self.branches([partial(work, part) for part in self.paths]), strict=True):
            penalty = penalty.index_copy(0, part.index, values)
        return penalty

    def train_critics(self, z: Tensor, y: Tensor, s: Tensor, active: Tensor, decay: Tensor) -> None:
        """Update the critics on the latents of this step, before the encoder; decay (P,) scales learning rates."""
        z = z.detach()

        def work(part: _CodePath) -> None:
            assert part.critic is not None
            inputs = (z if len(part.index) == len(z) else z[part.index], *part.labels(y, s))
            rate, acting = part.rate * decay[part.index], active[part.index]
            for _ in range(part.steps):
                loss = part.censor.critic_loss(*inputs)
                assert loss is not None
                part.critic.step(part.critic.flat.gradient(loss.sum()), rate, acting)

        self.branches([partial(work, part) for part in self.paths if part.critic is not None])

    def after_step(self, active: Tensor) -> None:
        for part in self.paths:
            part.after_step(active)

    def select(self, keep: Tensor) -> None:
        """Keep only members keep (K,) of the population."""
        new_place = {int(old): new for new, old in enumerate(keep.tolist())}
        parts = []
        for part in self.paths:
            stay = [i for i, old in enumerate(part.index.tolist()) if old in new_place]
            if stay:
                index = torch.tensor([new_place[int(part.index[i])] for i in stay], device=keep.device)
                part.select(torch.tensor(stay, device=keep.device), index)
                parts.append(part)
        self.paths = parts

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that training changes, by name."""
        tensors = {}
        for part in self.paths:
            for name, tensor in part.censor.state_dict().items():
                tensors[f"{part.name}.censor.{name}"] = tensor
            if part.critic is not None:
                for name, tensor in part.critic.state().items():
                    tensors[f"{part.name}.critic.{name}"] = tensor
        return tensors

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])

    def member_state(self, member: int) -> dict[str, Tensor]:
        """Return one member's censor state without the member axis."""
        for part in self.paths:
            places = (part.index == member).nonzero().flatten().tolist()
            if places:
                return {f"censor.{name}": t[places[0]].clone() for name, t in part.censor.state_dict().items()}
        return {}
