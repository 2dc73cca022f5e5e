"""Time of one training step per member: a plain Conv2d EEGNet in a bare loop, ours alone, ours stacked; and what each
censor adds. Interleaved rounds, medians with the spread, printed and written to bench-results/."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tests.plain_eegnet import PlainEEGNet

import autotransfer as at
from autotransfer.training.population import Population
from autotransfer.training.train import windows_for

SUBJECTS = 10


def data(channels: int, times: int, batch: int) -> at.Recordings:
    """Noise of the wanted shape: 10 subjects, 4 classes, one training batch per fold."""
    per_subject = -(-batch // (SUBJECTS - 2) // 4) * 4
    n = per_subject * SUBJECTS
    X = np.random.default_rng(0).standard_normal((n, channels, times)).astype(np.float32)
    return at.Recordings(X, np.arange(n) % 4, np.arange(n) // per_subject, sfreq=128)


def plain_step(channels: int, times: int, batch: int, device: str) -> Callable[[], None]:
    net = PlainEEGNet(channels, times, 64, dropout=0.25).to(device)
    x, y = torch.randn(batch, channels, times, device=device), torch.randint(4, (batch,), device=device)
    head = torch.nn.Linear(net(x).shape[1], 4).to(device)
    optimiser = torch.optim.AdamW([*net.parameters(), *head.parameters()])

    def step() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(head(net(x)), y).backward()
        optimiser.step()

    return step


def stacked_step(recordings: at.Recordings, setting: at.Setting, members: int, device: str) -> Callable[[], None]:
    """One step of a population whose members are spread over folds and seeds."""
    folds = at.leave_one_subject_out(recordings)
    jobs = [at.Job(setting, folds[i % SUBJECTS], seed=i // SUBJECTS) for i in range(members)]
    windows = windows_for(recordings, jobs[0], {}, device=torch.device(device), dtype=torch.float32)
    population = Population(recordings, jobs, windows, torch.float32)
    assert max(population.groups.steps_of) == 1
    return population.train_epoch


def measure(steps: dict[str, tuple[Callable[[], None], int]], rounds: int, device: str) -> dict[str, list[float]]:
    """Milliseconds per member and step, interleaved so that a slow moment of the machine hits everyone."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, (step, members) in steps.items():
            start = time.perf_counter()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            if number:  # the first round warms up
                found[name].append((time.perf_counter() - start) / members * 1e3)
    return found


def show(title: str, found: dict[str, list[float]], reference: str) -> dict[str, dict[str, float]]:
    table = Table("what", "ms per member-step", "spread", "speed-up", title=title)
    summary = {}
    base = statistics.median(found[reference])
    for name, times in found.items():
        middle, low, high = statistics.median(times), min(times), max(times)
        table.add_row(name, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{base / middle:.2f}×")
        summary[name] = {"median_ms": middle, "min_ms": low, "max_ms": high, "speed_up": base / middle}
    Console().print(table)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--members", type=int, nargs="*", default=[1, 8, 32])
    options = parser.parse_args()
    results: dict[str, object] = {"device": options.device, "batch": options.batch, "torch": torch.__version__}
    for channels, times in ((8, 128), (16, 128), (56, 128)):
        recordings = data(channels, times, options.batch)
        setting = at.Setting(batch_size=options.batch)
        steps = {"plain Conv2d EEGNet": (plain_step(channels, times, options.batch, options.device), 1)}
        for members in options.members:
            steps[f"stacked, P = {members}"] = (stacked_step(recordings, setting, members, options.device), members)
        title = f"{channels} channels × {times} samples, batch {options.batch}, {options.device}"
        results[title] = show(title, measure(steps, options.rounds, options.device), "plain Conv2d EEGNet")
    recordings = data(16, 128, 128)
    members = max(m for m in options.members if m <= 32)
    steps = {"uncensored": (stacked_step(recordings, at.Setting(), members, options.device), members)}
    for method in at.CENSORS:
        for mode in ("marginal", "conditional", "complementary"):
            setting = at.Setting(method=method, mode=mode)
            steps[f"{method} {mode}"] = (stacked_step(recordings, setting, members, options.device), members)
    title = f"censors, 16 channels × 128 samples, batch 128, P = {members}, {options.device}"
    results[title] = show(title, measure(steps, options.rounds, options.device), "uncensored")
    folder = Path("bench-results")
    folder.mkdir(exist_ok=True)
    (folder / f"{options.device}.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
