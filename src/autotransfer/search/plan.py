"""What a run will do, resolved once from options and recordings: stages in order, what each trains, and what it costs.

A dry run prints the plan, a limit cuts it, `procedure` performs it and notes in it what was left out, and a resumed run
reads it back. Stages end in answers. Closed forms come first, because they take seconds; then a network of each kind,
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
    """What is trained on every fold before the next answer."""

    name: str
    trainings: list[Training]
    seconds: float = 0.0  # for all folds and the answer, on this machine; 0: nobody has timed it
    main: bool = False  # whether a limit makes room for it
    left_out: str = ""  # why it was not trained
    online: list[Training] = field(default_factory=list)  # for the average of sessions alone

    @classmethod
    def of(cls, name: str, settings: Iterable[Setting], seeds: Sequence[int], *, main: bool = False) -> Stage:
        """One seed after the other; what is solved in closed form is the same for all of them."""
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
    """Frozen: whoever changes what is done makes another, and the ledger keeps it."""

    options: dict[str, Any]  # resolved: as many folds and epochs as the recordings need
    folds: int
    stages: list[Stage]
    searched: int = 0  # settings that are tried on one split first; who goes on, `stages` says when that is done
    candidates: int = 0  # networks that go on from there, at most
    pairs: int = 0  # further trainings, with a pair of people left out: --nested full
    search_seconds: float = 0.0  # for what is tried on one split, and
    later_seconds: float = 0.0  # for what goes on
    limit: float | None = None  # seconds
    stops: bool = False  # before the limit, when no gain is expected
    fixed: bool = False  # performed again: the clock and what is expected end nothing
    left_out: list[str] = field(default_factory=list)  # before the run started
    busy: float = 1.0  # how much longer all takes than on a machine that does nothing else

    @property
    def ahead(self) -> list[Stage]:
        return [stage for stage in self.stages if not stage.left_out]

    @property
    def trainings(self) -> int:
        """Of networks, at most."""
        if self.searched:
            return self.searched + self.candidates * (self.folds * int(self.options["seeds"]) - 1) + self.pairs
        return self.pairs + self.folds * sum(
            not s.network.closed_form for stage in self.ahead for s, _ in stage.trainings
        )

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.later_seconds + sum(stage.seconds for stage in self.ahead)

    def within(self, seconds: float) -> list[Stage]:
        """The stages that end in so much time, as expected; the first is always done."""
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
        """With a stage in two: what of it was trained on every fold, and what was not. Stages after it keep their
        numbers, because answers name theirs: what was not trained comes last."""
        stage = self.stages[number]
        rest = Stage(f"the rest of {stage.name}", cut, main=stage.main, left_out=why)
        done = replace(stage, name=f"{stage.name} (a part)", trainings=whole)
        return replace(self, stages=[*self.stages[:number], done, *self.stages[number + 1 :], rest])

    def among(self, candidates: Sequence[Setting]) -> Plan:
        """For the candidates that went on from a search. With a limit each is a stage of its own, so that those which
        were trained were trained on every fold; otherwise all are one."""
        options = RunOptions.from_dict(self.options)
        seeds = list(options.every_seed)
        if self.limit is None:
            return replace(self, stages=[Stage.of("every fold", candidates, seeds)])
        solved = [one for one in candidates if one.network.closed_form]
        others = [one for one in candidates if not one.network.closed_form]
        first = seeds[:1]
        stages = [Stage.of(network_name(options, one, seeds[0]), [one], first, main=True) for one in others[:1]]
        stages += [Stage.of(CLOSED_FORMS, solved, first, main=True)] if solved else []
        later = [(one, seed) for seed in seeds for one in others][1:]
        return replace(
            self, stages=[*stages, *(Stage.of(network_name(options, one, seed), [one], [seed]) for one, seed in later)]
        )

    def performed(self, answered: Sequence[int]) -> Plan:
        """What of it was done, to be done again whatever the clock says."""
        stages = [self.stages[number] for number in answered]
        return replace(
            self, stages=stages, searched=0, search_seconds=0.0, later_seconds=0.0, limit=None, fixed=True, left_out=[]
        )


def network_name(options: RunOptions, setting: Setting, seed: int) -> str:
    """A short name of a network: what tells it from the main one of its kind."""
    if setting == options.plain:
        return f"{setting.kind} as published, seed {seed}"
    values = setting.preprocessing.values()
    traits = [
        name for name, kind in AUGMENTATIONS.items() if any(isinstance(one, kind) for one in setting.augmentation)
    ]
    traits += [name for name in ("align", "turn") if values.get(name, "none") != "none"]
    traits += [] if setting.method is None else [setting.method]
    return f"{setting.kind}{' with ' * bool(traits)}{', '.join(traits)}, seed {seed}"


# plan.json


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """What another run performed; a folder's, or a file's."""
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
