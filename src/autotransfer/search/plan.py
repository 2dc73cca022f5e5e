"""The plan of a run, resolved once from options and recordings: stages in order, what each trains, and what it costs.

A dry run prints the plan, a limit cuts it, `procedure` performs it and notes what was left out, and a resumed run reads
it back. Every stage ends in an answer. Closed forms come first, because they take seconds; then a network of each kind,
because averaging kinds gains most; then other networks, further seeds, and last penalties, which gain least.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import schema
from ..augment import AUGMENTATIONS
from ..errors import UserError
from ..files import write_atomically
from ..runs.options import RunOptions
from ..settings import Setting

PLAN = "plan.json"
CLOSED_FORMS = "closed forms"  # the first stage


class Training(NamedTuple):
    """A candidate with one seed, on every fold."""

    setting: Setting
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"setting": self.setting.to_dict(), "seed": self.seed}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Training:
        setting, seed = values.get("setting"), values.get("seed")
        if not isinstance(setting, dict) or not isinstance(seed, int):
            raise UserError("a training has no setting or no seed")
        return cls(Setting.from_dict(setting), seed)


@dataclass(frozen=True)
class Stage:
    """Trainings on every fold before the next answer."""

    name: str
    trainings: list[Training]
    seconds: float = 0.0  # for all folds and the answer, on this machine; 0: not timed
    main: bool = False  # whether a limit makes room for it
    left_out: str = ""  # why it was not trained
    online: list[Training] = field(default_factory=list)  # only for the average for sessions

    @classmethod
    def of(cls, name: str, settings: Iterable[Setting], seeds: Sequence[int], *, main: bool = False) -> Stage:
        """One seed after the other; closed forms are solved for the first only, being the same for all."""
        settings = list(settings)
        every = [Training(s, seed) for seed in seeds for s in settings if seed == seeds[0] or not s.network.closed_form]
        return cls(name, every, main=main)

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(setting for setting, _ in self.trainings))

    @property
    def solved(self) -> bool:
        """Whether all of it is solved in closed form."""
        return all(setting.network.closed_form for setting, _ in self.trainings)

    @property
    def words(self) -> str:
        return f"{self.name} (linear models, solved at once)" if self.name == CLOSED_FORMS else self.name


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Frozen: a change makes another plan, which the ledger keeps."""

    options: dict[str, Any]  # resolved: as many folds and epochs as the recordings need
    folds: int
    stages: list[Stage]
    searched: int = 0  # settings that are tried on one split first; `stages` is empty until their shortlist is known
    candidates: int = 0  # networks on the shortlist, at most
    pairs: int = 0  # further trainings, with a pair of people left out: --nested full
    search_seconds: float = 0.0  # for the settings on one split
    later_seconds: float = 0.0  # for the shortlist
    limit: float | None = None  # seconds
    stops: bool = False  # before the limit, when no gain is expected
    fixed: bool = False  # performed again: neither the clock nor the expected gain ends it
    left_out: list[str] = field(default_factory=list)  # before the run started
    busy: float = 1.0  # how much longer everything takes than on an idle machine

    @property
    def ahead(self) -> list[Stage]:
        return [stage for stage in self.stages if not stage.left_out]

    @property
    def trainings(self) -> int:
        """The number of trainings of networks, at most."""
        if self.searched:
            return self.searched + self.candidates * (self.folds * int(self.options["seeds"]) - 1) + self.pairs
        return self.pairs + self.folds * sum(
            not s.network.closed_form for stage in self.ahead for s, _ in stage.trainings
        )

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.later_seconds + sum(stage.seconds for stage in self.ahead)

    def within(self, seconds: float) -> list[Stage]:
        """The stages that are expected to end in so much time; the first is always done."""
        done: list[Stage] = []
        spent = 0.0
        for stage in self.ahead:
            if not done or spent + stage.seconds <= seconds:
                spent += stage.seconds
                done.append(stage)
        return done

    def with_stage(self, number: int, stage: Stage) -> Plan:
        return replace(self, stages=[*self.stages[:number], stage, *self.stages[number + 1 :]])

    def divided(self, number: int, whole: list[Training], cut: list[Training], why: str) -> Plan:
        """With a stage in two parts: trainings that were done on every fold, and those that were not. Answers refer to
        stages by number, so that all stages keep theirs and the second part comes last."""
        stage = self.stages[number]
        rest = Stage(f"the rest of {stage.name}", cut, main=stage.main, left_out=why)
        done = replace(stage, name=f"{stage.name} (a part)", trainings=whole)
        return replace(self, stages=[*self.stages[:number], done, *self.stages[number + 1 :], rest])

    def among(self, candidates: Sequence[Setting]) -> Plan:
        """With stages for the shortlist of a search. With a limit each candidate is a stage, so that those which were
        trained were trained on every fold; otherwise all are one stage."""
        options = RunOptions.from_dict(self.options)
        seeds = list(options.every_seed)
        if self.limit is None:
            return replace(self, stages=[Stage.of("every fold", candidates, seeds)])
        solved = [setting for setting in candidates if setting.network.closed_form]
        trained = [setting for setting in candidates if not setting.network.closed_form]
        pairs = [(setting, seed) for seed in seeds for setting in trained]
        stages = [
            Stage.of(network_name(options, setting, seed), [setting], [seed], main=place == 0)
            for place, (setting, seed) in enumerate(pairs)
        ]
        if solved:
            stages.insert(1, Stage.of(CLOSED_FORMS, solved, seeds[:1], main=True))
        return replace(self, stages=stages)

    def performed(self, answered: Sequence[int]) -> Plan:
        """The stages that were answered, to be performed again whatever the clock says."""
        stages = [self.stages[number] for number in answered]
        return replace(
            self, stages=stages, searched=0, search_seconds=0.0, later_seconds=0.0, limit=None, fixed=True, left_out=[]
        )


def network_name(options: RunOptions, setting: Setting, seed: int) -> str:
    """A short name of a network: how it differs from the main one of its kind."""
    if setting == options.plain:
        return f"{setting.kind} as published, seed {seed}"
    values = setting.preprocessing.values()
    traits = [
        name for name, kind in AUGMENTATIONS.items() if any(isinstance(step, kind) for step in setting.augmentation)
    ]
    traits += [name for name in ("align", "turn") if values.get(name, "none") != "none"]
    traits += [] if setting.method is None else [setting.method]
    return f"{setting.kind}{' with ' * bool(traits)}{', '.join(traits)}, seed {seed}"


# plan.json


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """The plan that another run performed, from its folder or from a file."""
    path = path / PLAN if path.is_dir() else path
    try:
        plan = schema.from_json(Plan, path.read_text(encoding="utf-8", errors="replace"))
        RunOptions.from_dict(plan.options)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give the {PLAN} that a run has left") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --plan") from None
    except UserError as error:
        raise UserError(f"{path} is no plan ({error}); give the {PLAN} that a run has left") from None
    if not plan.stages or not all(stage.trainings for stage in plan.stages):
        raise UserError(f"{path} has no stages to perform; give the {PLAN} that a run has left")
    if not all(map(math.isfinite, (plan.busy, *(stage.seconds for stage in plan.stages)))):
        raise UserError(f"{path} is no plan (a number is not finite)")
    return plan
