"""The commands run, resume, status and demo."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..errors import UserError
from .console import Quiet, Verbose, print_lines, print_progress
from .execution import event_files, execute_run, handle_interrupts, open_workers, print_result
from .options import (
    AtLeast,
    EncoderFactory,
    Folder,
    MovedData,
    Text,
    ToTensorBoard,
    add_cutting_options,
    import_encoder,
    merge_options,
)
from .report_commands import write_report

if TYPE_CHECKING:
    from ..runs.options import RunOptions
    from ..search.plan import Plan

MACHINE = "Machine"
SEARCH = "Candidates and evaluation"

OnDevice = Annotated[Text, Option(rich_help_panel=MACHINE, help="Device for networks: auto (default), cpu or cuda.")]
OnCluster = Annotated[
    str | None, Option("--cluster", rich_help_panel=MACHINE, help="Train on a Dask cluster with this HOST:PORT.")
]


def _search(help: str) -> Any:
    return Option(help=help, rich_help_panel=SEARCH)


def _hidden(help: str) -> Any:
    """Return an option that is accepted and documented, but hidden from --help."""
    return Option(help=help, hidden=True)


@add_cutting_options
def run(
    cutting: dict[str, Any],
    data: Annotated[Text, Argument(metavar="DATA", help="Recordings: a file, a folder, or a data set's name.")] = None,
    out: Annotated[Path | None, Option(help="Folder for the run; not needed with --dry-run.")] = None,
    time: Annotated[Text, Option(help="Time limit, such as 10m (default) or 2h; none: train all candidates.")] = None,
    adaptation: Annotated[
        Text, Option(help="zero-shot (default); online or transductive adapt to earlier or all unlabeled windows.")
    ] = None,
    encoder: Annotated[Text, Option(help="Encoder: eegnet (default), shallow, or function MODULE:NAME.")] = None,
    target: Annotated[Text, Option(help="Target: classes (default), or continuous[:NAME] for regression.")] = None,
    metric: Annotated[
        Text, Option(help="balanced_accuracy (default), f1, auc, kappa, accuracy; regression: r2, correlation, rmse.")
    ] = None,
    at_least: AtLeast = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Hyperparameter, such as lr=3e-4; can be given several times."),
    ] = None,
    config: Annotated[Path | None, Option(metavar="FILE", help="File with options, such as RUN/study.toml.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and all options without training.")] = False,
    grid: Annotated[
        Text, _search("Grid of censoring penalties: quick (default), core, paper, uncensored, or FILE.json.")
    ] = None,
    kinds: Annotated[
        Text, _search("Model families: linear,trees,networks (default: all); emg adds features for EMG.")
    ] = None,
    hold_out: Annotated[Text, _search("Held-out unit: subject (default), session, or a column of the data.")] = None,
    folds: Annotated[Text, _search("Number of folds, or all (one per subject; default up to 20 subjects).")] = None,
    seeds: Annotated[int | None, _search("Number of random seeds of each network; default: 3.")] = None,
    seed: Annotated[int | None, _search("First random seed; default: 0.")] = None,
    networks: Annotated[Text, _hidden("Networks among the candidates: all, main, one, none.")] = None,
    rule: Annotated[Text, _hidden("Delivered model: average (weighted ensemble), published (one setting).")] = None,
    search: Annotated[Text, _hidden("Search of penalties: grid or tpe (Optuna).")] = None,
    trials: Annotated[int | None, _hidden("Number of settings that --search tpe samples.")] = None,
    max_steps: Annotated[int | None, _hidden("Maximum of optimizer steps of a fit if max_epochs is not set.")] = None,
    as_printed: Annotated[bool, Option("--as-printed", help="Short for --set as_printed=true.", hidden=True)] = False,
    max_epochs: Annotated[int | None, Option("--epochs", help="Short for --set max_epochs=N.", hidden=True)] = None,
    plan: Annotated[Path | None, _hidden("File RUN/plan.json of an earlier run, whose stages are repeated.")] = None,
    clean: Annotated[bool, Option("--clean", help="Leave out invalid or constant windows, and dead channels.")] = False,
    device: OnDevice = None,
    cluster: OnCluster = None,
    tensorboard: ToTensorBoard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train models, evaluate them on held-out subjects, and write model and report to OUT.

    The first result takes about a minute. Slower models are then added, and usually improve it.
    """
    options = {
        "source": data, "time": time, "adaptation": adaptation, "encoder": encoder, "target": target, "metric": metric,
        "at_least": at_least, "grid": grid, "kinds": kinds, "hold_out": hold_out, "folds": folds, "seeds": seeds,
        "seed": seed, "networks": networks, "rule": rule, "search": search, "trials": trials, "max_steps": max_steps,
        "as_printed": as_printed, "max_epochs": max_epochs, "clean": clean, "device": device,
    }  # fmt: skip
    user_options = merge_options(options | cutting, set_ or [], config)
    _start_or_print(user_options, out, plan=plan, cluster=cluster, tensorboard=tensorboard, dry_run=dry_run)


def _start_or_print(
    user_options: dict[str, Any],
    out: Path | None,
    *,
    plan: Path | None = None,
    cluster: str | None = None,
    tensorboard: Path | None = None,
    dry_run: bool = False,
) -> None:
    """Start a run, or print its plan. user_options: options by name, as `build_options` accepts them."""
    start_time = monotonic()
    if out is None and not dry_run:
        raise UserError("--out is missing; give --out FOLDER, or --dry-run to print the plan")
    with handle_interrupts(None if dry_run else out):
        from ..runs.options import NO_TIME_LIMIT, build_options

        unlimited = {} if cluster is None else {"time": NO_TIME_LIMIT}  # the speed of workers is unknown
        options, earlier_plan = build_options(unlimited | user_options), None
        if plan is not None:
            from ..search.plan import read_plan

            _check_options_with_plan(user_options)
            earlier_plan = read_plan(plan)
            options = earlier_plan.merge_options(options, user_options)
        if options.task.is_numeric:
            _refuse_for_regression(plan=plan, cluster=cluster, tensorboard=tensorboard)
        encoders = import_encoder(options.encoder)
        if dry_run or out is None:
            _print_plan(options, out, encoders, earlier_plan)
            return
        from ..runs.lock import Lock
        from ..search.plan import start_run

        events = event_files(out, tensorboard)
        with open_workers(cluster) as executor:  # raises before any file is written if there is no worker
            new_run = start_run(
                out, options, encoders, tell=print_progress, earlier_plan=earlier_plan, start_time=start_time
            )
            new_run.warn_of_recordings()
            with Lock(out), events:
                execute_run(new_run, executor)


def _check_options_with_plan(names: Collection[str]) -> None:
    """Raise if --plan determines one of these options. Options of the machine and the data are allowed."""
    from ..runs.options import CUTTING

    fixed = sorted(set(names) - {"source", "device", "clean", "encoder", *CUTTING})
    if fixed:
        raise UserError(f"--plan determines {', '.join(fixed)}; use either --plan or these options")


def _refuse_for_regression(**options: object) -> None:
    """Raise if an option is given that is not available for regression."""
    for name, value in options.items():
        if value:
            raise UserError(f"--{name} is not available with --target continuous; leave it out")


def _print_plan(
    options: RunOptions, out: Path | None, encoders: dict[str, Any] | None, earlier_plan: Plan | None
) -> None:
    """Print the plan and the options of a run, and raise the errors that the run would raise."""
    from ..runs.run import check_unused

    if out is not None:
        check_unused(out)
    from ..folds import describe, use_whole_subjects
    from ..recordings.concerns import Study, find_concerns
    from ..recordings.overview import describe as describe_recordings
    from ..runs.preparation import prepare
    from ..runs.study import study_text
    from ..search.plan import describe_fits, describe_time_limit, explain_folds, make_plan, stage_lines, unread_options

    prepared = prepare(options, encoders)
    recordings = prepared.recordings
    plan = make_plan(prepared) if earlier_plan is None else earlier_plan.for_recordings(prepared)
    concerns = find_concerns(Study.from_raw(use_whole_subjects(recordings).raw()))
    lines = [describe_recordings(recordings), describe(prepared.folds), *concerns]
    lines += explain_folds(recordings, options.folds, plan) + unread_options(options, plan)
    lines += [describe_fits(plan), *stage_lines(plan), *(describe_time_limit(options) if earlier_plan is None else [])]
    # Lines other than options are comments, so that --config can read the output.
    print_lines(*(f"# {line}" for text in lines for line in text.splitlines()), study_text(plan.options).rstrip())


def resume(
    folder: Folder,
    data: MovedData = None,
    time: Annotated[str | None, Option(help="Additional time, such as 10m; none: train all candidates.")] = None,
    encoder: EncoderFactory = "eegnet",
    cluster: OnCluster = None,
    tensorboard: ToTensorBoard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Continue a run after an interruption or its time limit, without repeating finished fits."""
    from ..runs.choice import Choice, read_choice, write_choice
    from ..runs.lock import Lock
    from ..runs.options import NO_TIME_LIMIT, parse_time
    from ..runs.run import Run, check_is_run
    from ..search.plan import extend_time

    additional_seconds = None if time is None or time == NO_TIME_LIMIT else parse_time(time)
    check_is_run(folder)
    events = event_files(folder, tensorboard)
    with open_workers(cluster) as executor, Lock(folder):
        saved_run = Run.open(folder, import_encoder(encoder), source=data)
        if saved_run.options.task.is_numeric:
            _refuse_for_regression(cluster=cluster, tensorboard=tensorboard)
        saved_choice = saved_run.database.load_fact("choice", Choice)
        if saved_choice is not None and not (folder / "choice.json").exists():
            write_choice(folder, saved_choice)
        if time is not None:
            extend_time(saved_run, additional_seconds)
        if saved_run.database.load_fact("complete", bool):
            choice = read_choice(folder)
            with closing(saved_run.database):
                if not (folder / "report.html").exists():  # interrupted after the last fit
                    write_report(saved_run)
            print_lines(f"{folder} is finished")
            print_result(choice, folder)
            return
        with events:
            execute_run(saved_run, executor)


def status(folder: Folder) -> None:
    """Show how many fits of a run are finished, running and failed, and the remaining time."""
    from ..runs.progress import status_lines

    print_lines(*status_lines(folder))


def demo(
    out: Annotated[Path, Option(help="Folder for the run.")] = Path("demo-run"),
    epochs: Annotated[int, Option(help="Epochs of every fit.")] = 14,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train and evaluate models on embedded EMG recordings in two minutes, or continue an interrupted demo."""
    from ..runs.run import is_run

    if is_run(out):
        resume(out)
        return
    # Few epochs need a high learning rate.
    options = {"time": "110s", "networks": "main", "seeds": 1, "max_epochs": epochs, "lr": 1e-2}
    _start_or_print({"source": "gestures"} | options, out)
