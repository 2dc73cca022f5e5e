"""Censors of a population. Members of one code path, whose penalties need the same operations, share a censor."""

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
from .cuda_graphs import ParallelStreams
from .flat import FlatParameters
from .optimizer import AdamW


class _CodePath:
    """Members of one code path, with the stacked censor and the optimizer of its critics."""

    def __init__(
        self, settings: list[Setting], index: list[int], seeds: Sequence[int], *, latent_dim: int, n_classes: int,
        n_subjects: int, branches: Sequence[int] | None, device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        penalties = [penalty for member in index if (penalty := settings[member].penalty) is not None]
        first, options = penalties[0], [penalty.options for penalty in penalties]
        self.name = f"{key_of(*settings[index[0]].code_path):08x}"
        self.index = torch.tensor(index, device=device)
        self.censor = Censor(
            CENSORS[first.method], first.mode, options, latent_dim=latent_dim, n_classes=n_classes,
            n_subjects=n_subjects, members=len(index), seeds=[seeds[member] for member in index], branches=branches,
        ).to(device=device, dtype=dtype)  # fmt: skip
        # y and s of the last call for all members, and y and s for the members of this path
        self._labels: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self.critic_optimizer: AdamW | None = None
        critics = [method_options for method_options in options if isinstance(method_options, CriticOptions)]
        self.critic_steps = critics[0].critic_steps if critics else 1
        if next(self.censor.parameters(), None) is not None:
            rates = [settings[member].training.lr for member in index]
            if critics:
                rates = [critic.critic_lr or rate for critic, rate in zip(critics, rates, strict=True)]
            decay = [settings[member].training.weight_decay for member in index]
            self.critic_lr = torch.tensor(rates, dtype=dtype, device=device)
            self.critic_optimizer = AdamW(
                FlatParameters(censor=self.censor), torch.tensor(decay, dtype=dtype, device=device)
            )

    def labels(self, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and s of these members; calls in one step return the same tensors, so that the censor can cache."""
        if len(self.index) == len(y):
            return y, s
        if self._labels is None or self._labels[0] is not y or self._labels[1] is not s:
            self._labels = (y, s, y[self.index], s[self.index])
        return self._labels[2:]

    def after_step(self, active: Tensor) -> None:
        self._labels = None
        self.censor.after_step(active[self.index])

    def select(self, positions: Tensor, index: Tensor) -> None:
        """Keep only the members at positions in this path. index: their new indices in the population."""
        self.index = index
        self.censor.select(positions)
        if self.critic_optimizer is not None:
            self.critic_lr = self.critic_lr[positions]
            self.critic_optimizer.select(positions)
            self.critic_optimizer.flat = FlatParameters(censor=self.censor)


class Censors:
    """Censors of a population of P members, by code path."""

    def __init__(
        self, settings: list[Setting], seeds: Sequence[int], *, latent_dim: int, n_classes: int,
        n_subjects: Sequence[int], device: torch.device, dtype: torch.dtype, branches: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Make the censors. n_subjects: training subjects of each member; branches: widths of encoder branches in z."""
        paths: dict[tuple[object, ...], list[int]] = {}
        for member, setting in enumerate(settings):
            if setting.penalty is not None:
                paths.setdefault(setting.code_path, []).append(member)
        self.paths = [
            _CodePath(
                settings, index, seeds, latent_dim=latent_dim, n_classes=n_classes, n_subjects=n_subjects[index[0]],
                branches=branches, device=device, dtype=dtype,
            )
            for index in paths.values()
        ]  # fmt: skip
        self.streams = ParallelStreams(device)

    def penalty(self, z: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """Return penalties (P,) of latents z (P, B, D) with classes y and subjects s (P, B); 0 without a censor."""
        if len(self.paths) == 1 and len(self.paths[0].index) == len(z):
            return self.paths[0].censor(z, y, s)  # type: ignore[no-any-return]  # modules give Any

        def compute(path: _CodePath) -> Tensor:
            return path.censor(z[path.index], *path.labels(y, s))  # type: ignore[no-any-return]  # modules give Any

        penalty = z.new_zeros(z.shape[0])
        for path, values in zip(self.paths, self.streams([partial(compute, p) for p in self.paths]), strict=True):
            penalty = penalty.index_copy(0, path.index, values)
        return penalty

    def train_critics(self, z: Tensor, y: Tensor, s: Tensor, active: Tensor, decay: Tensor) -> None:
        """Update the critics of active members (P,) with the latents of this step; decay (P,) scales learning rates."""
        z = z.detach()

        def train(path: _CodePath) -> None:
            assert path.critic_optimizer is not None
            inputs = (z if len(path.index) == len(z) else z[path.index], *path.labels(y, s))
            rate, is_active = path.critic_lr * decay[path.index], active[path.index]
            for _ in range(path.critic_steps):
                loss = path.censor.critic_loss(*inputs)
                assert loss is not None
                path.critic_optimizer.step(path.critic_optimizer.flat.gradient(loss.sum()), rate, is_active)

        self.streams([partial(train, path) for path in self.paths if path.critic_optimizer is not None])

    def after_step(self, active: Tensor) -> None:
        for path in self.paths:
            path.after_step(active)

    def select(self, members: Tensor) -> None:
        """Keep only these members of the population."""
        new_index = {member: position for position, member in enumerate(members.tolist())}
        paths = []
        for path in self.paths:
            positions = [i for i, member in enumerate(path.index.tolist()) if member in new_index]
            if positions:
                index = torch.tensor([new_index[int(path.index[i])] for i in positions], device=members.device)
                path.select(torch.tensor(positions, device=members.device), index)
                paths.append(path)
        self.paths = paths

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that training changes, by name."""
        tensors = {}
        for path in self.paths:
            for name, tensor in path.censor.state_dict().items():
                tensors[f"{path.name}.censor.{name}"] = tensor
            if path.critic_optimizer is not None:
                for name, tensor in path.critic_optimizer.state().items():
                    tensors[f"{path.name}.critic.{name}"] = tensor
        return tensors

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])

    def member_state(self, member: int) -> dict[str, Tensor]:
        """Return one member's censor state without the member axis."""
        for path in self.paths:
            positions = (path.index == member).nonzero().flatten().tolist()
            if positions:
                return {f"censor.{name}": t[positions[0]].clone() for name, t in path.censor.state_dict().items()}
        return {}
