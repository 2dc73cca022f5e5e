"""The plan of a run, resolved once from options and recordings: stages in order, what each trains, and what it costs.

A dry run prints the plan, a limit cuts it, `procedure` performs it and notes what was left out, and a resumed run reads
it back. Every stage ends in an answer. Closed forms come first, because they take seconds; then a network of each kind,
because averaging kinds gains most; then other networks, further seeds, and last penalties, which gain least.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import schema
from ..errors import UserError, shown
from ..files import read_plain, write_atomically
from ..jobs import check_seed
from ..model.encoders import ENCODERS
from ..runs.options import RunOptions
from ..runs.preparation import Preparation
from ..settings import Setting
from ..words import count

PLAN = "plan.json"
GIVEN_UP = "it was given up when the time was over"  # of a stage
LATE = 10.0  # seconds that peers, and people who play their windows, may take together before the last answer
CLOSED_FORMS = "closed forms"  # the first stage


class PlannedTraining(NamedTuple):
    """A candidate with one seed, on every fold."""

    setting: Setting
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"setting": self.setting.to_dict(), "seed": self.seed}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PlannedTraining:
        setting, seed = values.get("setting"), values.get("seed")
        if not isinstance(setting, dict) or not isinstance(seed, int):
            raise UserError("a training has no setting or no seed")
        return cls(Setting.from_dict(setting), check_seed(seed))


@dataclass(frozen=True)
class Stage:
    """Trainings on every fold before the next answer."""

    name: str
    trainings: list[PlannedTraining]
    seconds: float = 0.0  # for all folds and the answer, on this machine; 0: not timed
    main: bool = False  # whether a limit makes room for it
    left_out: str = ""  # why it was not trained
    online: list[PlannedTraining] = field(default_factory=list)  # only for the average for sessions

    @classmethod
    def of(cls, name: str, settings: Iterable[Setting], seeds: Sequence[int], *, main: bool = False) -> Stage:
        """One seed after the other; closed forms are solved for the first only, being the same for all."""
        settings = list(settings)
        pairs = [(s, seed) for seed in seeds for s in settings if seed == seeds[0] or not s.network.closed_form]
        return cls(name, [PlannedTraining(*pair) for pair in pairs], main=main)

    @classmethod
    def joined(cls, stages: Sequence[Stage], seconds: float) -> Stage:
        """One stage of several, which takes so long."""
        first, *others = stages
        further = [training for stage in others for training in stage.trainings]
        name = f"{first.name}, and {count(len(further), 'more network')}" if further else first.name
        main = any(stage.main for stage in stages)
        return replace(first, name=name, trainings=[*first.trainings, *further], seconds=seconds, main=main)

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

    options: RunOptions  # resolved: as many folds and epochs as the recordings need
    folds: int
    stages: list[Stage]
    searched: int = 0  # settings that are tried on one split first; `stages` is empty until their shortlist is known
    candidates: int = 0  # networks on the shortlist, at most
    search_seconds: float = 0.0  # for the settings on one split
    later_seconds: float = 0.0  # for the shortlist
    limit: float | None = None  # seconds
    spent: float = 0.0  # seconds of reading and timing, before it was made
    stops: bool = False  # before the limit, when no gain is expected
    fixed: bool = False  # performed again: neither the clock nor the expected gain ends it
    left_out: list[str] = field(default_factory=list)  # before the run started

    @property
    def ahead(self) -> list[Stage]:
        return [stage for stage in self.stages if not stage.left_out]

    @property
    def trainings(self) -> int:
        """The number of trainings of networks, at most."""
        if self.searched:
            return self.searched + self.candidates * (self.folds * self.options.seeds - 1)
        return self.folds * sum(not s.network.closed_form for stage in self.ahead for s, _ in stage.trainings)

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.later_seconds + sum(stage.seconds for stage in self.ahead)

    @property
    def left(self) -> float:
        """Seconds of the limit for stages; the rest was spent, or is for the last answer."""
        return math.inf if self.limit is None else self.limit - self.spent - LATE

    @property
    def expected(self) -> list[Stage]:
        """The stages that are expected to end within the limit; the first is always done."""
        done: list[Stage] = []
        spent = 0.0
        for stage in self.ahead:
            if not done or spent + stage.seconds <= self.left:
                spent += stage.seconds
                done.append(stage)
        return done

    def with_stage(self, number: int, stage: Stage) -> Plan:
        return replace(self, stages=[*self.stages[:number], stage, *self.stages[number + 1 :]])

    def as_performed(self, answered: Sequence[int]) -> Plan:
        """Return the plan of the stages that were answered, to be performed again whatever the clock says."""
        stages = [replace(self.stages[number], seconds=0.0, left_out="") for number in answered]
        return replace(
            self, stages=stages, searched=0, candidates=0, search_seconds=0.0, later_seconds=0.0, limit=None, spent=0.0,
            fixed=True, left_out=[],
        )  # fmt: skip

    def for_recordings(self, prepared: Preparation) -> Plan:
        """The plan for these recordings, to be performed again; raises where a training cannot be done on them, before
        any is. prepared: with the encoder as the user gave it."""
        every = [training for stage in self.stages for training in (*stage.trainings, *stage.online)]
        try:
            prepared.check_trainable(list(dict.fromkeys(setting for setting, _ in every)))
        except UserError as error:
            raise UserError(f"the plan cannot be performed on {shown(prepared.options.source)}: {error}") from None
        return replace(self, options=prepared.options, folds=len(prepared.folds))

    def with_more(self, seconds: float | None, spent: float) -> Plan:
        """The plan of a run that goes on for so many seconds more; None: until everything is trained. spent: seconds so
        far."""
        stages = [replace(stage, left_out="") for stage in self.stages]
        limit = None if seconds is None else spent + seconds
        return replace(self, stages=stages, limit=limit, stops=self.stops and limit is not None)

    def options_here(self, asked: RunOptions, given: Collection[str]) -> RunOptions:
        """The plan's options with data, device and memory as they are asked for here, and windows cut as the plan says
        unless the user gave it otherwise.

        A plan may be a stranger's: an encoder of somebody's own is imported only if the user has given it again.
        given: names of the options that the user gave.
        """
        planned = self.options
        if "encoder" in given and asked.encoder != planned.encoder:
            raise UserError(
                f"the plan has the encoder {shown(planned.encoder)}, not {shown(asked.encoder)}; leave --encoder out, "
                "or --plan"
            )
        if "encoder" not in given and planned.encoder not in ENCODERS:
            raise UserError(
                f"the plan has the encoder {shown(planned.encoder)}, which is imported only if you name it; if you "
                "trust it, give it again: --encoder module:function"
            )
        names = ["source", "device", *(name for name in asked.cutting if name in given)]
        return replace(planned, **{name: getattr(asked, name) for name in names})


# plan.json


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """The plan that another run performed, from its folder or from a file."""
    path = path / PLAN if path.is_dir() else path
    try:
        values = schema.parse_json(read_plain(path).decode(errors="replace"))
        plan: Plan = schema.from_values(Plan, _of_this_version(values))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give the {PLAN} that a run has left") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --plan") from None
    except (UserError, ValueError) as error:
        raise UserError(f"{path} is no plan ({error}); give the {PLAN} that a run has left") from None
    if not plan.stages or not all(stage.trainings for stage in plan.stages):
        raise UserError(f"{path} has no stages to perform; give the {PLAN} that a run has left")
    return plan.as_performed(range(len(plan.stages)))


def _of_this_version(values: Any) -> Any:
    """Return the values of a plan with the fields of this version; unknown ones are ignored."""
    if not isinstance(values, dict) or not isinstance(values.get("options"), dict):
        return values
    names = {field.name for field in fields(Plan)}
    known = {name: value for name, value in values.items() if name in names}
    return known | {"options": {"source": ""} | values["options"]}
