"""A run from beginning to end: run, resume, status, demo."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer import Option

from ..errors import UserError, check_choice, shown
from ..options import AskedOptions
from .conducting import carry_through, check_end, say_answer, say_finished, stoppable, workers, writing_events
from .options import UNASKED, UNSAID, Folder, Moved, OwnEncoder, Source, ToTensorBoard, Windowing, flatten, own_encoders
from .regressing import describe_regression, resume_regression, run_regression
from .reporting import write_report
from .voice import Quiet, Verbose, say, tell

OUTPUT = "Machine and output"


OnCluster = Annotated[
    str | None, Option("--cluster", rich_help_panel=OUTPUT, help="Train on a Dask cluster, at host:port.")
]


def _configure(context: typer.Context, path: Path | None) -> Path | None:
    """Values of the file replace defaults; the command line overrides both."""
    if path is None:
        return None
    from ..runs.study import read_study

    hints = {name: hint for name, hint in get_type_hints(flatten(run)).items() if name not in ("context", "config")}
    values = read_study(path)
    for name, value in values.items():
        check_choice(f"option in {path}:", name, sorted(hints))
        kinds = (hints[name], *get_args(hints[name]))
        types = next((types for kind, types in KINDS.items() if kind in kinds), (str,))
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UserError(f"{path}: {name} is {shown(value)}; it must be {types[0].__name__}")
    context.default_map = values
    return path


KINDS: dict[type, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (float, int)}  # what a file may hold
Config = Annotated[
    Path | None,
    Option(
        "--config", metavar="FILE", callback=_configure, is_eager=True, help="Options from a file, as RUN/study.toml."
    ),
]  # fmt: skip


def run(
    context: typer.Context,
    data: Source,
    out: Annotated[Path | None, Option(help="Folder for everything the run produces; a dry run needs none.")] = None,
    asked: AskedOptions = UNASKED,
    quick: Annotated[bool, Option("--quick", help="A rougher answer: no penalties, one seed, five folds.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be done and what it would cost.")] = False,
    seed: Annotated[int, Option(help="Seed of everything random.")] = 0,
    config: Config = None,
    plan: Annotated[Path | None, Option("--plan", metavar="FILE", help="Perform RUN/plan.json of another run.")] = None,
    windowing: Windowing = UNSAID,
    clean: Annotated[bool, Option("--clean", help="Leave out dead channels, lost values, copies.")] = False,
    cluster: OnCluster = None,
    tensorboard: ToTensorBoard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train, measure on people left out, and write model and report to OUT. A first answer stands within a minute or
    so; what is trained after that usually improves it."""
    if out is None and not dry_run:
        raise UserError("there is no folder to write to; give --out FOLDER, or --dry-run to see what a run would cost")
    with stoppable(None if dry_run else out):
        from ..runs.options import EVERYTHING, RunOptions

        if asked.time is None and cluster is not None:
            asked = replace(asked, time=EVERYTHING)  # nobody can say how long it takes elsewhere
        options = RunOptions.of(
            "quick" if quick else "recommended", source=data, seed=seed, clean=clean, **asdict(asked),
            **asdict(windowing),
        )  # fmt: skip
        again = None
        if plan is not None:
            from ..search.plan import read_plan

            given = _given(context)
            _check_beside_plan(given)
            again = read_plan(plan)
            options = again.options_here(options, given)
        if options.target != "classes":
            _check_alone(plan=plan, cluster=cluster, tensorboard=tensorboard)
        encoders = own_encoders(options.encoder)
        check_end(tensorboard)
        if dry_run or out is None:
            _dry_run(options, out, encoders, again)
            return
        if options.target != "classes":
            run_regression(options, out)
            return
        from ..runs.lock import Lock
        from ..search.planning import begin

        with workers(cluster) as executor:  # before anything is written: there may be none
            created = begin(out, options, encoders, tell=tell, here=executor is None, again=again)
            with Lock(out), writing_events(out, tensorboard):
                carry_through(created, executor)


# What belongs to the machine, the data and the output, and what a plan may name but never brings: all else is the
# plan's.
BESIDE_PLAN = {
    "data", "out", "dry_run", "config", "plan", "device", "clean", "cluster", "tensorboard", "quiet", "verbose",
    "encoder", *asdict(UNSAID),
}  # fmt: skip


def _given(context: typer.Context) -> set[str]:
    """Options that the user gave, on the command line or in the file of --config."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}


def _check_beside_plan(given: set[str]) -> None:
    others = [f"--{name.replace('_', '-')}" for name in sorted(given - BESIDE_PLAN)]
    if others:
        raise UserError(
            f"a plan says itself what is done, and {', '.join(others)} would change nothing; leave "
            f"{'it' if len(others) == 1 else 'them'} out, or --plan"
        )


def _check_alone(**others: object) -> None:
    """Refuse options that a run with a continuous target does not have."""
    for name, value in others.items():
        if value:
            raise UserError(f"--{name} is for runs that tell classes apart; leave it out with a continuous target")


def _dry_run(options: Any, out: Path | None, encoders: dict[str, Any] | None, again: Any = None) -> None:
    """Print what a run would do and what it would cost; refuse what the run would refuse."""
    from ..runs.run import check_unused

    if out is not None:
        check_unused(out)
    if options.target != "classes":
        describe_regression(options)
        return
    from ..folds import describe, whole_people
    from ..recordings.concerns import concerns
    from ..runs.preparation import prepare
    from ..search.costs import Costs
    from ..search.kinds import candidates_of
    from ..search.plan_words import cost_words, stage_lines, why_folds, work_words
    from ..search.planning import plan_within_limit

    start = time.monotonic()
    prepared = prepare(options, encoders)
    recordings = prepared.recordings
    if again is None:
        costs = Costs.measure(prepared, candidates_of(prepared).every)
        plan = plan_within_limit(prepared, options, costs, time.monotonic() - start)
    else:
        plan = again.for_recordings(prepared)
    prepared = replace(prepared, options=plan.options)
    say(repr(recordings), describe(prepared.folds))
    say(*concerns(whole_people(recordings).raw()))
    say(*why_folds(recordings, options.folds, plan))
    say(work_words(plan), *stage_lines(plan), *cost_words(plan))


def resume(
    folder: Folder,
    data: Moved = None,
    time: Annotated[str | None, Option(help="10m: this much longer; none: until everything is trained.")] = None,
    encoder: OwnEncoder = "eegnet",
    cluster: OnCluster = None,
    tensorboard: ToTensorBoard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Continue a run after any interruption, or one that ended because its time was over; finished jobs are never
    trained again."""
    from ..runs.choice import read_choice
    from ..runs.ending import longer_words
    from ..runs.lock import Lock
    from ..runs.options import EVERYTHING, parse_time
    from ..runs.regression import is_regression
    from ..runs.run import Run, check_is_run
    from ..search.planning import give_more

    if is_regression(folder):
        _check_alone(time=time, cluster=cluster, tensorboard=tensorboard)
        resume_regression(folder, data)
        return
    more = None if time is None or time == EVERYTHING else parse_time(time)
    check_is_run(folder)
    check_end(tensorboard)
    with workers(cluster) as executor, Lock(folder):
        opened = Run.open(folder, own_encoders(encoder), source=data)
        if time is not None:
            give_more(opened, more)
        if opened.ledger.recall("complete", bool):
            choice = read_choice(folder)
            with closing(opened.ledger):
                if not (folder / "report.html").exists():  # stopped after all else was done
                    write_report(opened)
                    say_answer(choice, folder)
            say_finished(folder, longer_words(choice.ended, folder))
            return
        with writing_events(folder, tensorboard):
            carry_through(opened, executor)


def status(folder: Folder) -> None:
    """How far a run is: jobs done, running, failed, time left."""
    from ..runs.progress import status_lines

    name = "numbers.sqlite" if (folder / "numbers.sqlite").exists() else "ledger.sqlite"
    say(*status_lines(folder, name))


DEMO_TIME = "85s"


def demo(
    context: typer.Context,
    out: Annotated[Path, Option(help="Folder for the run.")] = Path("demo-run"),
    epochs: Annotated[int, Option(help="Epochs of every training.")] = 14,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """AutoTransfer end to end on real smartwatch recordings, in two minutes; continues what was begun."""
    from ..runs.run import is_run

    if is_run(out):
        resume(out)
        if (out / "choice.json").exists():
            from ..runs.choice import read_choice

            say_answer(read_choice(out), out)
        return
    # Few epochs, so a high rate; a limit, so that a slow machine shows fewer stages and not a longer demo. Random
    # kernels (MiniRocket) would take as long as all else.
    asked = AskedOptions(time=DEMO_TIME, networks="main", kinds="statistics", epochs=epochs, lr=1e-2, seeds=1)
    run(context, data="watch", out=out, asked=asked)
