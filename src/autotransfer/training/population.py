"""A population: jobs of one program, trained side by side with the member on axis 0 of everything."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..jobs import Job, Outcome
from ..model.encoders import Encoders, kernel_of, make_encoder
from ..model.layers import Linear
from ..randomness import fold_in, key_of
from ..recordings import Recordings
from .censored import Censors, critic_seed
from .evaluation import HISTORY, HeldOut, Snapshots, sides
from .flat import Flat
from .gather import Windows
from .groups import Groups
from .metrics import balanced_accuracy, class_weights, weighted_cross_entropy
from .newcomers import held_out_rows
from .optimiser import AdamW


def program_of(recordings: Recordings, job: Job) -> tuple[object, ...]:
    """Jobs that agree in this can be stacked: the same shapes everywhere. All else is a number per member."""
    setting, train = job.setting, job.fold.train
    return (
        setting.encoder, kernel_of(setting, recordings.sfreq),
        setting.temporal_filters, setting.spatial_depth, setting.latent_filters, setting.max_norm,
        setting.standardise, setting.align, min(setting.batch_size, len(train)),
        len(np.unique(recordings.subject.numpy()[train])),
    )  # fmt: skip


def warmed_up(epoch: int | Tensor, warm_up: Tensor) -> Tensor:
    """Share of the full strength (P,) in an epoch counted from 1: 0 in the first, 1 once `warm_up` (P,) have passed."""
    return torch.where(warm_up > 0, ((epoch - 1) / warm_up.clamp(min=1)).clamp(max=1), 1.0)


class Population:
    """P members, their optimiser and censors, the best snapshots and the history."""

    def __init__(
        self,
        recordings: Recordings,
        jobs: Sequence[Job],
        windows: Windows,
        dtype: torch.dtype,
        encoders: Encoders | None = None,
    ) -> None:
        device = windows.device
        settings = [job.setting for job in jobs]
        first, members = settings[0], len(jobs)
        self.jobs, self.size, self.windows = list(jobs), members, windows
        self.groups = Groups(recordings, jobs, min(first.batch_size, len(jobs[0].fold.train)), device)
        self.fitted = windows.fit([job.fold.train for job in self.groups.jobs])
        folds = [job.fold for job in self.groups.jobs]
        self.newcomers = windows.newcomers([fold.train for fold in folds], [held_out_rows(fold) for fold in folds])
        self.held_out = HeldOut([job.fold for job in self.groups.jobs], device)

        def numbers(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self.lr = numbers([setting.lr for setting in settings])
        self.drop = numbers([setting.dropout for setting in settings])
        self.strength = numbers([setting.strength or 0.0 for setting in settings])
        self.warm_up = numbers([setting.warm_up for setting in settings])
        self.weights = class_weights(self.groups.class_counts.to(dtype))[self.groups.of_member]  # (P, C)

        seeds = [key_of("weights", job.fold.trajectory, job.seed) for job in jobs]
        self.net = make_encoder(
            first, encoders, n_channels=recordings.n_channels, n_times=recordings.n_times,
            n_classes=recordings.n_classes, sfreq=recordings.sfreq, kernel=windows.kernel, members=members, seeds=seeds,
        ).to(device=device, dtype=dtype)  # fmt: skip
        self.classifier = Linear(members, self.net.latent_dim, recordings.n_classes, seeds=[s + 1 for s in seeds])
        self.classifier.to(device=device, dtype=dtype)
        self.max_norm = first.max_norm
        self.flat = Flat(encoder=self.net, classifier=self.classifier)
        self.optimiser = AdamW(self.flat, numbers([setting.weight_decay for setting in settings]))
        self.censors = Censors(
            settings, [critic_seed(job.fold.trajectory, job.seed) for job in jobs], latent_dim=self.net.latent_dim,
            n_classes=recordings.n_classes, n_subjects=self.groups.n_subjects, device=device, dtype=dtype,
        )  # fmt: skip
        self.epoch = 0
        self.seconds = [0.0] * members  # each member's share of the time spent so far
        self.train_loss = self.penalty = torch.zeros(members, dtype=dtype, device=device)
        self.snapshots = Snapshots(self.flat, recordings.n_classes, max(setting.max_epochs for setting in settings))

    def train_epoch(self) -> None:
        """One epoch of every member. A member with fewer batches than others takes no step in the rest."""
        self.epoch += 1
        self.net.train()
        group, decay = self.groups.of_member, self.epoch**-0.5
        plan, steps = self.groups.plan(self.epoch)
        keys = fold_in(self.groups.keys, self.epoch)
        strength = self.strength * warmed_up(self.epoch, self.warm_up)
        losses = self.lr.new_zeros(2, len(self.lr))
        for step, (rows, x) in enumerate(self.windows.batches(plan, self.fitted)):
            active = (step < steps)[group]
            y = self.windows.y[rows][group]
            s = self.groups.rank.gather(1, rows)[group]
            z = self.net(
                x, group=group, moments=self.windows.moments(x, rows, self.fitted), noise=fold_in(keys, step),
                drop=self.drop, active=active,
            )  # fmt: skip
            self.censors.train_critics(z, y, s, active, decay)
            task = weighted_cross_entropy(self.classifier(z), y, self.weights)
            penalty = self.censors.penalty(z, y, s)
            loss = task + strength * penalty
            self.optimiser.step(self.flat.gradient(loss.sum()), self.lr * decay, active)
            self.censors.after_step(active)
            if self.max_norm:
                self.net.constrain_()
                self.classifier.constrain_()
            losses += torch.where(active, torch.stack([task, penalty]).detach(), 0.0)
        self.train_loss, self.penalty = losses / steps[group]

    @torch.no_grad()
    def evaluate(self) -> None:
        """Loss and confusion on both held-out subjects of every member, and what follows for its snapshots."""
        self.net.eval()
        loss, confusion = self.held_out.measure(self._logits, self.windows.y, self.groups.of_member, self.weights)
        self.snapshots.update(self.epoch, self.train_loss, self.penalty, loss, confusion)

    def _logits(self, rows: Tensor) -> Tensor:
        """rows: (G, B) -> (P, B, C)."""
        new = self.newcomers
        x = self.windows.gather(rows, self.fitted) if new is None else new.gather(rows)
        return self.classifier(self.net(x, group=self.groups.of_member))  # type: ignore[no-any-return]

    def finished(self) -> dict[int, str | None]:
        """Members whose training is over, with the reason if that is a failure. Waits for the device."""
        measured, best = self.snapshots.history[:, self.epoch - 1].tolist(), self.snapshots.epoch.amax(1).tolist()
        over: dict[int, str | None] = {}
        for member, job in enumerate(self.jobs):
            setting = job.setting
            loss, penalty, *held_out = measured[member][: len(HISTORY) - 2]
            if not math.isfinite(loss):
                over[member] = f"the training loss became {loss} in epoch {self.epoch}"
            elif not math.isfinite(penalty):
                over[member] = f"the penalty became {penalty} in epoch {self.epoch}"
            elif any(map(math.isnan, held_out)):  # the last step of an epoch has ruined the weights
                over[member] = f"the weights became nan in epoch {self.epoch}"
            elif self.epoch >= setting.max_epochs or (
                setting.patience is not None and self.epoch - best[member] >= setting.patience
            ):
                over[member] = None
        return over

    def side(self, member: int) -> int:
        """Which of the two held-out sets validates this member."""
        fold = self.jobs[member].fold
        return 0 if sides(fold)[0] is fold.validation else 1

    def outcome(self, member: int, failure: str | None) -> Outcome:
        """What a member has come to, seen from its job's fold and, as `swapped`, from the twin."""
        job, side = self.jobs[member], self.side(member)
        final = self.flat.unflatten(self.flat.values[member].cpu(), self.flat.stats[member].cpu())
        final |= {name: tensor.cpu() for name, tensor in self.censors.member_state(member).items()}
        twin = Job(job.setting, job.fold.swapped(), job.seed)
        swapped = self._seen_from(member, 1 - side, twin, final, failure, None)
        return self._seen_from(member, side, job, final, failure, swapped)

    def _seen_from(
        self,
        member: int,
        side: int,
        job: Job,
        final: dict[str, Tensor],
        failure: str | None,
        swapped: Outcome | None,
    ) -> Outcome:
        shots = self.snapshots
        confusion = shots.confusion[member, side].cpu()  # (2, C, C): measured on either side
        own, other = confusion[side], confusion[1 - side]
        history = shots.history[member, : self.epoch].cpu().double()
        columns = ("train_loss", "penalty", f"loss_{side}", f"score_{side}")
        names = ("train_loss", "penalty", "validation_loss", "validation_score")
        return Outcome(
            job=job,
            best_epoch=int(shots.epoch[member, side]),
            validation_score=float(balanced_accuracy(own)),
            test_score=float(balanced_accuracy(other)),
            validation_confusion=own.long().numpy(),
            test_confusion=other.long().numpy(),
            history={n: history[:, HISTORY.index(c)].tolist() for n, c in zip(names, columns, strict=True)},
            state=self.flat.unflatten(shots.values[member, side].cpu(), shots.stats[member, side].cpu()),
            final_state=final,
            population=self.size,
            epochs=self.epoch,
            seconds=self.seconds[member],
            failure=failure,
            swapped=swapped,
        )

    def select(self, members: Sequence[int]) -> None:
        """Keep only these members; the others leave the stack."""
        keep = torch.tensor(list(members), dtype=torch.long, device=self.lr.device)
        self.jobs = [self.jobs[member] for member in members]
        self.seconds = [self.seconds[member] for member in members]
        self.lr, self.drop, self.strength = self.lr[keep], self.drop[keep], self.strength[keep]
        self.warm_up = self.warm_up[keep]
        self.weights, self.train_loss, self.penalty = (
            self.weights[keep],
            self.train_loss[keep],
            self.penalty[keep],
        )
        stay = self.groups.select(keep)
        self.held_out.select(stay)
        if self.newcomers is not None:
            self.newcomers.select(stay)
        if self.fitted is not None:
            self.fitted = self.fitted.select(stay)
        self.flat.select(keep)
        self.net.members = len(members)
        self.optimiser.select(keep)
        self.censors.select(keep)
        self.snapshots.select(keep)

    def state(self) -> dict[str, Tensor]:
        """All that training has changed, by name; with `epoch`, `seconds` and the jobs it restores the population."""
        parts = {
            "flat": {"values": self.flat.values, "stats": self.flat.stats},
            "optimiser": self.optimiser.state(),
            "snapshots": self.snapshots.state(),
            "censors": self.censors.state(),
            "last": {"train_loss": self.train_loss, "penalty": self.penalty},
        }
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def load(self, tensors: dict[str, Tensor], epoch: int, seconds: Sequence[float]) -> None:
        """Continue where a population of the same jobs was when it gave `state()`."""

        def part(prefix: str) -> dict[str, Tensor]:
            device = self.lr.device
            start = prefix + "."
            return {name.removeprefix(start): t.to(device) for name, t in tensors.items() if name.startswith(start)}

        self.flat.load(**part("flat"))
        self.optimiser.load(part("optimiser"))
        self.snapshots.load(part("snapshots"))
        self.censors.load(part("censors"))
        self.train_loss, self.penalty = part("last")["train_loss"], part("last")["penalty"]
        self.epoch, self.seconds = epoch, list(seconds)
