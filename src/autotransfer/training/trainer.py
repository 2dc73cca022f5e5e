"""Trainer of a population, with members, optimizer, critics, checkpoints and the training step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from ..augment import Scaling, TrainingBatch
from ..gpu import use_kernels
from ..gpu.autograd import attach_gradient
from ..jobs import Job
from ..model.encoders import Encoders
from ..model.moments import Moments, SplitWindows
from ..randomness import fold_in, key_of
from ..tasks import task_of
from ..tasks.classification import weighted_nll
from .averaging import WeightAverage, cumulative_statistics
from .censored import Censors
from .cuda_graphs import GraphFunction, allow_tf32
from .evaluation import HISTORY_COLUMNS, Checkpoints, HeldOutRows
from .flat import FlatParameters
from .groups import MemberGroups
from .member_options import MemberOptions
from .members import Members, size_of
from .memory import is_out_of_memory
from .metrics import class_weights, mean_loss
from .optimizer import AdamW
from .packing import program_of
from .prepared import PreparedWindows
from .windows import Windows

# Triton kernels are used if they save more time in all steps than their compilation takes.
SECONDS_SAVED_PER_STEP, COMPILATION_SECONDS = 1e-5, 1.0
AUGMENTATION_KEYS = 1000  # first number of random keys for augmentations; dropout uses smaller numbers
_kernels_work: dict[tuple[object, ...], bool] = {}  # whether kernels can compute a step, by `step_key`


class Trainer:
    """Population of P jobs whose tensors have equal shapes, trained as one stack: axis 0 of tensors is the member."""

    def __init__(self, jobs: Sequence[Job], windows: Windows, encoders: Encoders | None = None) -> None:
        recordings, device, dtype = windows.recordings, windows.device, windows.dtype
        settings = [job.setting for job in jobs]
        setting, n_members = settings[0], len(jobs)  # `setting` is read for options that all members share
        self.row_loss = task_of(recordings.target).row_loss or weighted_nll
        self.jobs, self.size = list(jobs), n_members
        self.has_tried_kernels = False
        self.step_key = (recordings.n_channels, recordings.n_times, *program_of(recordings, jobs[0]))
        # G groups of members share minibatches; B is the number of rows in a batch.
        self.groups = MemberGroups(recordings, jobs, min(setting.training.batch_size, len(jobs[0].fold.train)), device)
        folds = [job.fold for job in self.groups.jobs]
        self.prepared = PreparedWindows(windows, [fold.train for fold in folds], [fold.held_out_rows for fold in folds])
        self.y, self.in_memory = windows.y, windows.in_memory
        self.augmentation = setting.augmentation
        self.n_signals = setting.preprocessing.n_signal_channels(recordings.n_channels, recordings.n_times)
        self.held_out = HeldOutRows(folds, device)
        self.device, self.options = device, MemberOptions.from_settings(settings, device, dtype)
        self.weights = class_weights(self.groups.class_counts.to(dtype))[self.groups.group_of_member]  # (P, C)

        seeds = [key_of("weights", job.fold.training_key, job.seed) for job in jobs]
        self.members = Members(
            setting, size_of(recordings, setting), seeds, encoders=encoders, device=device, dtype=dtype
        )  # fmt: skip
        self.net, self.classifier = self.members.net, self.members.classifier
        # Split windows store constant channels as one number each, which not all encoders accept.
        only_scales = all(isinstance(step, Scaling) for step in self.augmentation)
        self.takes_split_windows = only_scales and bool(getattr(self.net, "takes_split_windows", False))
        if self.takes_split_windows and self.augmentation and self.prepared.standardized is not None:
            self.prepared.standardized.tabulate_channels()  # for the moments of scaled channels
        self.flat = FlatParameters(**self.members.modules)
        steps = sum(setting.max_epochs for setting in settings) * max(self.groups.steps_per_epoch)
        self.uses_kernels = steps * SECONDS_SAVED_PER_STEP > COMPILATION_SECONDS
        self.optimizer = AdamW(self.flat, self.options.weight_decay)
        n_subjects = [self.groups.n_subjects[group] for group in self.groups.group_of_member.tolist()]
        critic_seeds = [key_of("critic", job.fold.training_key, job.seed) for job in jobs]  # equal for all settings
        self.censors = Censors(
            settings, critic_seeds, latent_dim=self.members.latent_dim, n_classes=recordings.n_classes,
            n_subjects=n_subjects, device=device, dtype=dtype, branches=getattr(self.net, "branches", None),
        )  # fmt: skip
        self.epoch = 0
        self.seconds = [0.0] * n_members  # each member's share of the training time
        # (2, P): task loss and penalty, summed over the epoch
        self.losses = torch.zeros(2, n_members, dtype=dtype, device=device)
        # Numbers that change between steps are tensors with a fixed address, for CUDA graphs.
        self.epoch_index = torch.zeros((), dtype=torch.long, device=device)  # epoch, from 1
        self.step_index = torch.zeros((), dtype=torch.long, device=device)  # step of the epoch, from 0
        self.decay = torch.ones(n_members, dtype=dtype, device=device)  # factor of the learning rate
        self.finished_members: set[int] = set()  # members that have finished but are still in the stack
        self._cached_epoch_rows: tuple[int, Tensor] | None = None  # an epoch and its row indices (steps, G, B)
        keeps_last = torch.tensor([setting.training.checkpoint != "best" for setting in settings], device=device)
        max_epochs = max(setting.max_epochs for setting in settings)
        self.checkpoints = Checkpoints(self.flat, recordings.n_classes, max_epochs, keeps_last, len(self.held_out.rows))
        self.average = WeightAverage.from_settings(settings, self.groups, self.flat)
        uses_graph = device.type == "cuda" and windows.in_memory and bool(self.net.is_capturable)
        self.train_on_next_batch = GraphFunction(self._train_on_next_batch, uses_graph=uses_graph)
        self.measure = GraphFunction(self._measure, uses_graph=uses_graph)
        self._allocate_epoch_rows()

    def _allocate_epoch_rows(self) -> None:
        """Allocate the tensor with the row indices of every step of an epoch, and discard captured graphs."""
        size = (max(self.groups.steps_per_epoch, default=0), len(self.groups.jobs), self.groups.batch_size)
        self.epoch_rows = torch.zeros(size, dtype=torch.long, device=self.device)
        self._cached_epoch_rows = None
        self.train_on_next_batch.discard_graph()
        self.measure.discard_graph()

    def train_epoch(self) -> None:
        """Train every member for one epoch. Members with fewer batches skip the last steps."""
        self.epoch += 1
        self.net.train()
        epoch_rows = self._find_epoch_rows(self.epoch)
        self.epoch_index.fill_(self.epoch)
        self.decay.fill_(1.0).masked_fill_(self.options.is_inverse_sqrt, self.epoch**-0.5)
        self.step_index.zero_()
        self.losses.zero_()
        if self.train_on_next_batch.uses_graph and self.uses_kernels and not self.has_tried_kernels:
            self.uses_kernels, self.has_tried_kernels = self._can_use_kernels(epoch_rows[0].to(self.device)), True
        with use_kernels(enabled=self.uses_kernels):
            self._take_steps(epoch_rows)
            self._finish_averages(epoch_rows)
        if self.train_on_next_batch.uses_graph:  # compute the next epoch's batches while the device is busy
            self._find_epoch_rows(self.epoch + 1)

    def _take_steps(self, epoch_rows: Tensor) -> None:
        if not self.in_memory:
            for rows, x in self.prepared.batches(epoch_rows.to(self.device)):
                self._train_on_batch(rows, x)
        else:
            self.epoch_rows.copy_(epoch_rows, non_blocking=True)
            for _ in range(len(epoch_rows)):
                self.train_on_next_batch()

    def _can_use_kernels(self, rows: Tensor) -> bool:
        """Try a step with kernels on rows (G, B), restore all tensors, and return whether it succeeded; warn if not."""
        key = (self.step_key, self.groups.shared_group is None, frozenset(job.setting.code_path for job in self.jobs))
        if key not in _kernels_work:
            tensors = {name: tensor for name, tensor in self.state().items() if not name.startswith("checkpoints.")}
            copies = {name: tensor.clone() for name, tensor in tensors.items()}
            try:
                with use_kernels(enabled=True):
                    self._train_on_batch(rows, self._gather(rows))
                _kernels_work[key] = True
            except Exception as error:  # compilers and drivers fail in many ways
                if is_out_of_memory(error):
                    raise
                warnings.warn(
                    f"training runs without Triton kernels and is slower: {str(error).strip().partition(chr(10))[0]}",
                    stacklevel=2,
                )
                _kernels_work[key] = False
            for name, tensor in tensors.items():
                tensor.copy_(copies[name])
            self.step_index.zero_()
            self.losses.zero_()
        return _kernels_work[key]

    def _find_epoch_rows(self, epoch: int) -> Tensor:
        """Return the row indices (steps, G, B) of an epoch, from the cache if they were computed before."""
        if self._cached_epoch_rows is None or self._cached_epoch_rows[0] != epoch:
            self._cached_epoch_rows = (epoch, self.groups.draw_rows(epoch))
        return self._cached_epoch_rows[1]

    def _train_on_next_batch(self) -> None:
        rows = self.epoch_rows.index_select(0, self.step_index.view(1))[0]
        self._train_on_batch(rows, self._gather(rows))

    def _gather(self, rows: Tensor) -> Tensor | SplitWindows:
        """Return windows of rows (G, B), as `SplitWindows` if possible."""
        split = self.prepared.split_windows(rows) if self.takes_split_windows else None
        return self.prepared.gather(rows) if split is None else split

    def _augment(
        self, x: Tensor | SplitWindows, step_keys: Tensor, rows: Tensor, batch: TrainingBatch
    ) -> tuple[Tensor | SplitWindows, Moments | None]:
        """Return augmented windows, and their moments if tables of sums are available; step_keys: (G,)."""
        factors: Tensor | None = None
        for index, augment in enumerate(self.augmentation):
            key = fold_in(fold_in(step_keys, AUGMENTATION_KEYS + index)[:, None], rows)
            if isinstance(x, Tensor):
                x = augment(x, key, batch)
            else:
                assert isinstance(augment, Scaling)
                new_factors = augment.factors(x.n_channels, key, batch)
                factors = new_factors if factors is None else factors * new_factors
        if isinstance(x, Tensor) or factors is None:
            return x, None  # the encoder computes the moments
        x = x.scale(factors)
        return x, self.prepared.moments_of_standardized(x, rows, factors)

    def _train_on_batch(self, rows: Tensor, x: Tensor | SplitWindows) -> None:
        """Take one step of every member with a remaining batch. rows: (G, B); x: windows (G, B, channels, times)."""
        group = self.groups.group_of_member
        active = (self.step_index < self.groups.steps)[group]
        batch = TrainingBatch(self.y[rows], self.groups.subject_index.gather(1, rows), self.n_signals)
        y, s = batch.y[group], batch.s[group]
        step_keys = fold_in(fold_in(self.groups.keys, self.epoch_index), self.step_index)
        if self.augmentation:
            x, moments = self._augment(x, step_keys, rows, batch)
        else:
            moments = self.prepared.moments(x, rows)
        with allow_tf32(rows.device):
            latents = self.net(
                x, group=self.groups.shared_group, moments=moments, noise=step_keys, drop=self.options.drop,
                active=active,
            )  # fmt: skip

        z = latents.detach().requires_grad_()
        self.censors.train_critics(z, y, s, active, self.decay)
        task_loss = mean_loss(self.row_loss, self.classifier(z), y, self.weights)
        penalty = self.censors.penalty(z, y, s)
        loss = task_loss + self.options.strength_at(self.epoch_index) * penalty
        latent_grad, *classifier_grads = torch.autograd.grad(loss.sum(), [z, *self.classifier.parameters()])
        with allow_tf32(rows.device):
            surrogate = attach_gradient(latents, latent_grad)  # has the gradient of the loss in the encoder's weights
            encoder_grads = torch.autograd.grad(surrogate, list(self.net.parameters()), materialize_grads=True)
        grads = torch.cat([grad.flatten(1) for grad in (*encoder_grads, *classifier_grads)], 1)
        self.optimizer.step(grads, self.options.lr * self.decay, active)
        if self.average is not None:
            self.average.update(self.flat.values, self.optimizer.steps, active)
        self.censors.after_step(active)
        self.losses += torch.where(active, torch.stack([task_loss, penalty]).detach(), 0.0)
        self.step_index += 1

    @torch.no_grad()
    def _finish_averages(self, epoch_rows: Tensor) -> None:
        """Load averaged weights into members in their last epoch, and compute their running statistics again."""
        if self.average is None:
            return
        settings = [job.setting for job in self.jobs]
        flags = [s.training.checkpoint == "averaged" and s.max_epochs == self.epoch for s in settings]
        if not any(flags):
            return
        is_last, group = torch.tensor(flags, device=self.device), self.groups.group_of_member
        self.flat.values.copy_(torch.where(is_last[:, None], self.average.values, self.flat.values))
        for step, rows in enumerate(epoch_rows.to(self.device)):
            x = self._gather(rows)
            with cumulative_statistics(self.net, step):
                self.net(
                    x, group=self.groups.shared_group, moments=self.prepared.moments(x, rows), noise=self.groups.keys,
                    drop=torch.zeros_like(self.options.drop), active=is_last & (step < self.groups.steps)[group],
                )  # fmt: skip

    def evaluate(self) -> None:
        """Evaluate every member on its two held-out sets and update its checkpoints."""
        self.net.eval()
        with use_kernels(enabled=self.uses_kernels):
            self.measure()

    @torch.no_grad()
    def _measure(self) -> None:
        group = self.groups.group_of_member
        loss, confusion, log_probs = self.held_out.measure(self._logits, self.y, group, self.weights, self.row_loss)
        train_loss, penalty = self.losses / self.groups.steps[group]
        set_index = self.held_out.set_index.transpose(0, 1)[group]
        self.checkpoints.update(self.epoch_index, train_loss, penalty, loss, confusion, log_probs, set_index)

    def _logits(self, rows: Tensor) -> Tensor:
        """Return logits (P, B, C) of held-out rows (G, B)."""
        x = self.prepared.gather_held_out(rows)
        with allow_tf32(x.device):
            z = self.net(x, group=self.groups.shared_group)
        logits: Tensor = self.classifier(z)
        return logits

    def find_finished(self) -> dict[int, str | None]:
        """Return the members that finish with this epoch, each with the reason of a failure, or None."""
        # Reading these values waits for the device.
        losses = self.checkpoints.history[:, self.epoch - 1].tolist()
        best_epochs = self.checkpoints.epoch.amax(1).tolist()
        finished: dict[int, str | None] = {}
        for member, job in enumerate(self.jobs):
            if member in self.finished_members:
                continue
            setting = job.setting
            loss, penalty, *held_out = losses[member][: len(HISTORY_COLUMNS) - 2]
            if not math.isfinite(loss):
                finished[member] = f"the training loss became {loss} in epoch {self.epoch}"
            elif not math.isfinite(penalty):
                finished[member] = f"the penalty became {penalty} in epoch {self.epoch}"
            elif any(map(math.isnan, held_out)):  # weights became NaN in the last step of the epoch
                finished[member] = f"the weights became nan in epoch {self.epoch}"
            elif self.epoch >= setting.max_epochs or (
                (patience := setting.training.patience) is not None and self.epoch - best_epochs[member] >= patience
            ):
                finished[member] = None
        return finished

    def validation_index(self, member: int) -> int:
        """Return the index, 0 or 1, of the held-out set that is the member's validation set."""
        fold = self.jobs[member].fold
        return 0 if fold.held_out[0] is fold.validation else 1

    def remove(self, members: Collection[int]) -> None:
        """Remove finished members from the stack; with CUDA graphs, only if an eighth of the stack has finished."""
        if not members:
            return
        self.finished_members.update(members)
        if not self.train_on_next_batch.uses_graph or 8 * len(self.finished_members) >= len(self.jobs):
            self.select([member for member in range(len(self.jobs)) if member not in self.finished_members])

    def select(self, members: Sequence[int]) -> None:
        """Keep only these members in the stack."""
        new_index = {member: position for position, member in enumerate(members)}
        self.finished_members = {new_index[member] for member in self.finished_members if member in new_index}
        index = torch.tensor(list(members), dtype=torch.long, device=self.device)
        self.jobs = [self.jobs[member] for member in members]
        self.seconds = [self.seconds[member] for member in members]
        self.options = self.options.select(index)
        self.weights, self.losses, self.decay = self.weights[index], self.losses[:, index], self.decay[index]
        groups = self.groups.select(index)
        chunks = self.held_out.select(groups)
        self.prepared.select(groups)
        self.flat.select(index)
        self.net.members = len(members)
        self.optimizer.select(index)
        self.censors.select(index)
        self.checkpoints.select(index, chunks)
        if self.average is not None:
            self.average = self.average.select(index)
        self._allocate_epoch_rows()

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that training changes, by name, for `load`."""
        parts = {
            "flat": {"values": self.flat.values, "stats": self.flat.stats},
            "optimizer": self.optimizer.state(),
            "checkpoints": self.checkpoints.state(),
            "censors": self.censors.state(),
        }
        if self.average is not None:
            parts["average"] = {"values": self.average.values}
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def load(self, tensors: dict[str, Tensor], epoch: int, seconds: Sequence[float]) -> None:
        """Load the `state()` of a population of the same jobs."""

        def find_part(prefix: str) -> dict[str, Tensor]:
            start, device = f"{prefix}.", self.device
            return {name.removeprefix(start): t.to(device) for name, t in tensors.items() if name.startswith(start)}

        self.flat.load(**find_part("flat"))
        self.optimizer.load(find_part("optimizer"))
        self.checkpoints.load(find_part("checkpoints"))
        self.censors.load(find_part("censors"))
        if self.average is not None:
            self.average.values.copy_(find_part("average")["values"])
        self.epoch, self.seconds = epoch, list(seconds)
        self._allocate_epoch_rows()
