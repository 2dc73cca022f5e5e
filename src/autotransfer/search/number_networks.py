"""Networks of a run with a continuous target: which are trained, in which time, and as parts of the delivered model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..machine import cores, threads
from ..models.assembly import stacked_tensors
from ..models.regression import NetworkPart
from ..preprocessing.transform import with_prefix
from ..recordings import Recordings
from ..runs.executor import LocalExecutor, OutOfTime
from ..runs.number_run import TRAINED, NumberRun
from ..runs.options import RunOptions
from ..runs.preparation import Preparation
from ..settings import Setting
from ..training.members import size_of
from ..training.number_trainer import target_scale
from ..words import clock, count
from .costs import Costs
from .kinds import networks

Tell = Callable[[str], None]
ANSWER = 20.0  # seconds that the last answer may take


@dataclass(frozen=True)
class NumberPlan:
    """Networks to train, one after the other, as the ledger keeps them."""

    settings: list[dict[str, Any]]
    seconds: list[float]  # that each is expected to take
    left_out: list[str] = field(default_factory=list)  # names of those that are not trained, and why


def network_candidates(options: RunOptions, recordings: Recordings) -> list[Setting]:
    """Networks as for classes, with the loss of numbers, but for penalties and augmentations, which were found for
    classes, and for the plain one, whose epoch a validation person would have to choose. options: resolved."""
    adapted = replace(options, adaptation=options.adaptation or "zero-shot")
    plain = adapted.plain.replace(loss=options.loss)
    every = networks([plain], recordings, adapted.adaptation, options.networks)
    return [setting for setting in every if setting != plain and not setting.augmentation]


def candidate_name(setting: Setting) -> str:
    """Of a network, or a closed form, in tables: 'shallow with standardise train', 'tangent'."""
    if setting.network.closed_form:
        return setting.name_relative_to(Setting())
    traits = setting.traits(Setting(encoder=setting.encoder, training=setting.training))
    words = [name if value is True else f"{name} {value}" for name, value in traits.items()]
    return setting.encoder + (f" with {', '.join(words)}" if words else "")


def plan_networks(recordings: Recordings, options: RunOptions, left: float = math.inf) -> NumberPlan:
    """A few steps of each network are timed; those that do not fit into `left` seconds are left out, the later first.
    options: resolved."""
    settings = network_candidates(options, recordings)
    if not settings:
        return NumberPlan([], [])
    prepared = Preparation(options, recordings)
    costs = Costs.measure(prepared, settings)
    plan, left_out = list[tuple[Setting, float]](), []
    for setting in settings:
        seconds = costs.stage([setting], prepared.groups) * options.seeds
        if seconds + ANSWER > left - sum(cost for _, cost in plan):
            left_out.append(f"{candidate_name(setting)}: it would have taken about {clock(seconds)}")
        else:
            plan.append((setting, seconds))
    return NumberPlan([setting.to_dict() for setting, _ in plan], [seconds for _, seconds in plan], left_out)


def train_networks(run: NumberRun, tell: Tell, *, shown: bool | None) -> Iterator[Setting]:
    """Train what is planned, and give each setting of which every fold was trained. Whatever has been trained before is
    not trained again."""
    start = time.monotonic() - (run.ledger.recall("spent", float) or 0.0)
    limit = math.inf if run.options.seconds is None else run.options.seconds
    plan = run.ledger.recall("plan", NumberPlan)
    if plan is None:
        if network_candidates(run.options, run.recordings):
            tell("timing a few steps of every network")
        plan = plan_networks(run.recordings, run.options, limit - (time.monotonic() - start))
        run.ledger.remember(plan=plan)
        for line in plan.left_out:
            tell(f"left out {line}")
    for place, (values, seconds) in enumerate(zip(plan.settings, plan.seconds, strict=True)):
        setting = Setting.from_dict(values)
        entries = run.entries_of(TRAINED, setting, run.options.every_seed)
        statuses = run.ledger.statuses()
        if left := [entry for entry in entries if statuses.get(entry.key) not in ("done", "failed")]:
            run.add(entries)
            work = f"{len(run.groups)} groups of people left out × {count(run.options.seeds, 'seed')}"
            tell(f"{candidate_name(setting)}: {work}, about {clock(seconds * len(left) / len(entries))}")
            over = start + limit - ANSWER
            ahead = sum(plan.seconds[place + 1 :])
            run.ledger.remember(ahead=ahead, limit=_limit(over))
            assert isinstance(run.executor, LocalExecutor)
            run.executor.until = over
            try:
                with threads(cores()):
                    expected = seconds * len(left) / len(entries)
                    run.work(shown=shown, label=candidate_name(setting), expected=expected, counted=entries)
            except OutOfTime:
                run.drop([entry.key for entry in entries], finished=True)
                late = map(Setting.from_dict, plan.settings[place:])
                cut = [f"{candidate_name(setting)}: the time was over" for setting in late]
                done = NumberPlan(plan.settings[:place], plan.seconds[:place], [*plan.left_out, *cut])
                run.ledger.remember(plan=done)
                for line in cut:
                    tell(f"left out {line}")
                return
            finally:
                run.ledger.remember(spent=time.monotonic() - start, limit=_limit(over))
        yield setting


def _limit(over: float) -> list[float]:
    """Seconds to a moment of the monotonic clock, and when that was noted; empty where there is no such moment."""
    return [over - time.monotonic(), time.time()] if math.isfinite(over) else []


def networks_of(run: NumberRun, setting: Setting) -> NetworkPart:
    """The networks of all folds and seeds, as a part of a model."""
    assert run.recordings.targets is not None
    entries = run.trainings(setting)
    states = [with_prefix("best.", run.weights(entry.key)) for entry in entries]
    folds = [run.each_fold[entry.test] for entry in entries]
    tensors = stacked_tensors(run.recordings, setting, states, folds)
    scales = [target_scale(run.recordings.targets, fold.train) for fold in folds]
    mean, spread = torch.tensor(scales, dtype=torch.float64).unbind(1)
    tensors |= {"mean": mean.clone(), "spread": spread.clone()}
    return NetworkPart.restore(setting, size_of(run.recordings, setting), len(entries), tensors)
