"""Score estimators and MMD: row algebra over masks against loops over subjects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import autotransfer as at
from autotransfer.censoring.mige import REGULARIZATION
from autotransfer.censoring.scores import ESTIMATORS

from . import loops
from .options import Options
from .tables import Table
from .timing import Step, measure, release

SUBJECTS = {"full": (8, 32, 128), "quick": (8, 32), "tiny": (3,)}
STACK = {"cpu": 8, "cuda": 128}  # members of the stacked column
LATENT, ROWS, BATCH = 64, 4, 128  # width of z, least rows of a subject, usual batch
DISTANCES = {"mmd": loops.mmd, "pairwise_mmd": loops.pairwise_mmd}

Problem = tuple[Tensor, Tensor, Tensor]  # z (P, B, D), y (B,), s (B,)


def problem(
    subjects: int, members: int, device: str, *, batch: int = BATCH, dtype: torch.dtype | None = None
) -> Problem:
    """Latents of a batch in which every subject has the same number of rows, 4 at least, and a mean of their own."""
    generator = torch.Generator().manual_seed(0)
    rows = max(batch // subjects, ROWS) * subjects
    s = torch.arange(rows) % subjects
    means = torch.randn(subjects, LATENT, generator=generator)
    z = torch.randn(members, rows, LATENT, generator=generator) + means[s]
    return z.to(device=device, dtype=dtype), torch.zeros_like(s, device=device), s.to(device)


def ours(name: str, z: Tensor, y: Tensor, s: Tensor) -> Callable[[], Tensor]:
    """The estimate for all members: scores (P, B, D), or for a distance its gradient (P, B, D)."""
    if name in ESTIMATORS:
        estimate, same = ESTIMATORS[name], s[:, None] == s
        return lambda: estimate(z, same=same, regularization=REGULARIZATION[name])
    subjects = int(s.max()) + 1
    censor = at.make_censor(
        name, "marginal", latent_dim=z.shape[-1], n_classes=1, n_subjects=subjects, members=len(z)
    ).to(z.device)  # fmt: skip

    def gradient() -> Tensor:
        point = z.detach().requires_grad_()
        return torch.autograd.grad(censor(point, y, s).sum(), point)[0]

    return gradient


def looped(name: str, z: Tensor, s: Tensor) -> Callable[[], Tensor]:
    """The same for one member, z (B, D), by loops over subjects."""
    if name in ESTIMATORS:
        return lambda: loops.subject_scores(z, s, name, REGULARIZATION[name])

    def gradient() -> Tensor:
        point = z.detach().requires_grad_()
        return torch.autograd.grad(DISTANCES[name](point, s), point)[0]

    return gradient


def difference(name: str, z: Tensor, y: Tensor, s: Tensor) -> float:
    """How far the loop and ours are apart, relative to the largest entry: they compute the same."""
    own, plain = ours(name, z[:1], y, s)()[0], looped(name, z[0], s)()
    return float((own - plain).abs().max() / plain.abs().max())


def tables(options: Options) -> Iterator[Table]:
    device, names = options.device, (*ESTIMATORS, *DISTANCES)
    members = options.members[-1] if options.members else STACK[device]
    sizes = SUBJECTS[options.size]
    for subjects in sizes:
        z, y, s = problem(subjects, members, device, batch=12 if options.size == "tiny" else BATCH)
        table = Table(f"estimators, {subjects} subjects × {len(s) // subjects} rows, latent {LATENT}, {device}")
        for name in names:
            steps = {
                "loop": Step(looped(name, z[0], s)),
                "alone": Step(ours(name, z[:1], y, s)),
                "stacked": Step(ours(name, z, y, s), members),
            }
            limit_s = options.budget("estimators", len(sizes) * len(names))
            found = measure(steps, rounds=options.rounds, device=device, limit_s=limit_s)
            table.add({
                "estimate": name if name in ESTIMATORS else f"{name}, gradient",
                **found["loop"].columns("loop, ms", 1e3), "ours, ms": found["alone"].median * 1e3,
                f"ours, P = {members}": found["stacked"].median * 1e3,
                "speed-up": found["loop"].ratio_to(found["alone"]).median,
                "stacked": found["loop"].ratio_to(found["stacked"]).median,
                "difference": difference(name, z, y, s),
            })  # fmt: skip
        table.notes.append("ms per member; the spread is the loop's; difference: between loop and ours, relative.")
        yield table
        release(device)
