"""The plan of a run: stages in order, and what each of them fits.

The plan follows from options and recordings alone, never from a clock. A dry run prints it, `procedure` performs it as
far as time allows, and a resumed run reads it back. Every stage ends in an interim result. Linear models come first,
because they take seconds; then a network of each family, because averaging families gains most; then other networks,
further seeds, and last penalties, which gain least.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import schema
from ..errors import UserError, shown
from ..files import read_plain, write_atomically
from ..jobs import Job, check_seed
from ..model.encoders import ENCODERS
from ..recordings import Recordings
from ..runs.options import RunOptions
from ..runs.preparation import Preparation
from ..settings import Setting
from ..training.train import check_jobs
from ..words import clock, count

PLAN = "plan.json"


@dataclass(frozen=True)
class PlannedFit:
    """Candidate with one seed, to be fitted on every fold."""

    setting: Setting
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True)
class Stage:
    """Fits on every fold before the next interim result."""

    name: str
    fits: list[PlannedFit]
    always: bool = False  # whether it is completed if time is over
    online: list[PlannedFit] = field(default_factory=list)  # only for the average for sessions

    @classmethod
    def of(cls, name: str, settings: Iterable[Setting], seeds: Sequence[int]) -> Stage:
        """Return a stage of these settings with every seed. Linear models do not depend on it: they have the first."""
        settings = list(settings)
        pairs = [(s, seed) for seed in seeds for s in settings if seed == seeds[0] or not s.network.closed_form]
        return cls(name, [PlannedFit(*pair) for pair in pairs])

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(training.setting for training in self.fits))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The stages of a run, in order."""

    options: RunOptions  # resolved: as many folds and epochs as the recordings need
    folds: int
    stages: list[Stage]
    searched: int = 0  # settings that are tried on one split first; `stages` is empty until their shortlist is known
    candidates: int = 0  # networks on the shortlist, at most
    fixed: bool = False  # performed again: neither the clock nor the expected gain ends it

    @property
    def fits(self) -> int:
        """Return the number of fits of networks, at most."""
        if self.searched:
            return self.searched + self.candidates * (self.folds * self.options.seeds - 1)
        return self.folds * sum(not t.setting.network.closed_form for stage in self.stages for t in stage.fits)

    def as_performed(self, delivered: int) -> Plan:
        """Return the plan of the first stages, to be performed again whatever the clock says."""
        return replace(self, stages=self.stages[:delivered], searched=0, candidates=0, fixed=True)

    def for_recordings(self, prepared: Preparation) -> Plan:
        """Return the plan for these recordings, to be performed again. Raise if a fit cannot be done on them, before
        any is begun. prepared: with the encoder as the user gave it."""
        every = [training for stage in self.stages for training in (*stage.fits, *stage.online)]
        settings = list(dict.fromkeys(training.setting for training in every))
        try:
            prepared.check_settings(settings)
            check_jobs(prepared.recordings, [Job(setting, prepared.folds[0]) for setting in settings])
        except UserError as error:
            raise UserError(f"the plan cannot be performed on {shown(prepared.options.source)}: {error}") from None
        return replace(self, options=prepared.options, folds=len(prepared.folds))

    def options_here(self, asked: RunOptions, given: Collection[str]) -> RunOptions:
        """Return the plan's options with data, device and memory as they are asked for here, and windows cut as the
        plan says unless the user gave it otherwise.

        A plan may be a stranger's: an encoder of somebody's own is imported only if the user has given it again. given:
        names of the options that the user gave.
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


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """Read the plan that another run performed, from its folder or from a file."""
    path = path / PLAN if path.is_dir() else path
    try:
        plan = schema.from_json(Plan, read_plain(path).decode(errors="replace"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give the {PLAN} that a run has left") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --plan") from None
    except (UserError, ValueError) as error:
        raise UserError(f"{path} is no plan ({error}); give the {PLAN} that a run has left") from None
    if not plan.stages or not all(stage.fits for stage in plan.stages):
        raise UserError(f"{path} has no stages to perform; give the {PLAN} that a run has left")
    return plan.as_performed(len(plan.stages))


def limit_words(options: RunOptions) -> list[str]:
    """Return when a run ends, if it has a limit."""
    if options.seconds is None:
        return []
    sooner = ", or sooner if no more gain is expected" if options.has_stages else ""
    return [f"it ends after {clock(options.seconds)}{sooner}, but not before its first result (--time none: never)"]


def stage_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for each stage."""
    for number, stage in enumerate(plan.stages, 1):
        fits = plan.folds * (len(stage.fits) + len(stage.online))
        yield f"  {number}. {stage.name}: {count(fits, 'fit')}"


def work_words(plan: Plan) -> str:
    """Say how many fits of which models the plan contains."""
    options = plan.options
    seeds = f"{options.seeds} seed{'s' * (options.seeds != 1)}"
    if plan.searched:
        return (
            f"{plan.fits} fits of up to {options.max_epochs} epochs: {plan.searched} settings on one split, "
            f"then at most {plan.candidates} candidates on {plan.folds} folds with {seeds}"
        )
    settings = list(dict.fromkeys(s for stage in plan.stages for s in stage.settings))
    solved = sum(s.network.closed_form for s in settings)
    closed = f"{solved} model{'s' * (solved != 1)} in closed form"
    again = len({t.setting for stage in plan.stages for t in stage.online})  # counted in fits, too
    online = f", {again} of them once more for sessions" if again else ""
    n = len(settings) - solved
    if not n:
        return f"{closed} on {plan.folds} folds{online}"
    more = f", and {closed}{online}" if solved else ""
    return (
        f"{plan.fits} fit{'s' * (plan.fits != 1)} of up to {options.max_epochs} epochs: {n} "
        f"candidate{'s' * (n != 1)} on {plan.folds} folds with {seeds}{more}"
    )


def why_folds(recordings: Recordings, asked: int | str | None, plan: Plan) -> list[str]:
    """Return why there are fewer folds than subjects, if nobody asked for it."""
    people, folds = recordings.n_subjects, plan.folds
    if recordings.units is not None:
        return []
    if isinstance(asked, int) or folds >= people:
        return []
    return [
        f"{folds} folds, because there are {people} people: leaving out each alone would take {people / folds:.1f} "
        "times as long; everybody is tested once all the same (--folds all: each alone)"
    ]
