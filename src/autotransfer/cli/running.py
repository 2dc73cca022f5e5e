"""A run from beginning to end: run, resume, status, demo."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from ..errors import UserError, check_choice, shown
from .conducting import carry_through, check_end, followers, say_answer, workers
from .options import UNSAID, Folder, Moved, OwnEncoder, Source, ToTensorBoard, Windowing, own_encoders, spread
from .reporting import AtLeast, write_report
from .voice import Log, Quiet, Verbose, say, tell

Live = Annotated[
    bool, typer.Option("--live", help="Serve a page that follows the run, to browsers on this machine alone.")
]
OnCluster = Annotated[
    str | None, typer.Option("--cluster", help="Train on a Dask cluster: host:port of its scheduler, or local:N.")
]
Storage = Annotated[str | None, typer.Option("--storage", help="URL of Optuna's storage; default: RUN/optuna.sqlite.")]


def _configure(context: typer.Context, path: Path | None) -> Path | None:
    """What the file says takes the place of defaults; the command line has the last word."""
    if path is None:
        return None
    from ..runs.study import read_study

    hints = {name: hint for name, hint in get_type_hints(spread(run)).items() if name != "config"}
    values = read_study(path)
    for name, value in values.items():
        check_choice(f"option in {path}:", name, sorted(hints))
        words, types = next(
            (found for kind, found in KINDS.items() if kind in (hints[name], *get_args(hints[name]))), TEXT
        )
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UserError(f"{path}: {name} is {shown(value)}; it must be {words}")
    context.default_map = values
    return path


# What an option may be in a file, and how that is called.
TEXT: tuple[str, tuple[type, ...]] = ("text", (str,))
KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
}
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        callback=_configure,
        is_eager=True,
        help="Options from a .toml file; those of the command line come first. A run leaves its own as RUN/study.toml.",
    ),
]


def run(
    data: Source,
    out: Annotated[
        Path | None, typer.Option(help="Folder for everything the run produces; a dry run needs none.")
    ] = None,
    config: Config = None,
    time: Annotated[
        str | None,
        typer.Option(help="30m, 2h: plan for this time and keep to it; other options are then the most that is done."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="No penalties, one seed, five folds, 1,000 steps, where nothing else is said."),
    ] = False,
    grid: Annotated[
        str | None,
        typer.Option(
            help="Settings: quick (default; few, where kinds are averaged), few, extended, uncensored, augmented, or "
            "paper, with the paper's rule; autotransfer grids says what is in each."
        ),
    ] = None,
    search: Annotated[str, typer.Option(help="grid; halving: stop the worse settings early; tpe: Optuna.")] = "grid",
    trials: Annotated[int, typer.Option(help="Settings to sample with --search tpe.")] = 40,
    storage: Storage = None,
    epochs: Annotated[
        int | None, typer.Option(help="Default: about 2,500 steps, 10 to 500 epochs; paper: 500.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of the optimiser, where --epochs are not given; default 2500.")
    ] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many epochs without progress.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a minibatch; default 128.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the first epoch; default 0.001.")] = None,
    standardise: Annotated[
        str | None, typer.Option(help="trial (default), train, online, transductive or none.")
    ] = None,
    align: Annotated[str | None, typer.Option(help="Euclidean: none (default), online or transductive.")] = None,
    preprocessing: Annotated[
        str,
        typer.Option(
            help="What candidates may use of a new person: zero-shot (default), online, transductive. "
            "none: the grid as it is."
        ),
    ] = "auto",
    prepare: Annotated[str | None, typer.Option(hidden=True)] = None,
    nuisance: Annotated[
        str,
        typer.Option(help="What penalties remove: subject, session, the name of a column, or several joined with +."),
    ] = "subject",
    encoder: OwnEncoder = "eegnet",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    seeds: Annotated[int | None, typer.Option(help="How many seeds everything is trained with; default 3.")] = None,
    folds: Annotated[
        str | None,
        typer.Option(
            help="Groups of people that are held out in turn: a number, or all: each person alone. Default: "
            "all, and 10 for more than 20 people."
        ),
    ] = None,
    networks: Annotated[
        str, typer.Option(help="Beside the plain one, where kinds are averaged: all, main (two), one or none.")
    ] = "all",
    kinds: Annotated[
        str | None,
        typer.Option(help="Signals (emg, eeg, …) or representations to try, with commas. Default: by the data."),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="What is delivered: average, over candidates (default); published, one setting, as in the paper."
        ),
    ] = None,
    as_printed: Annotated[
        bool, typer.Option("--as-printed", help="Penalties exactly as the paper prints them, in shuffled batches.")
    ] = False,
    nested: Annotated[str, typer.Option(help="fast, or full: every pair of subjects left out.")] = "fast",
    final: Annotated[str, typer.Option(help="ensemble of the folds; refit: also one on everybody.")] = "ensemble",
    at_least: AtLeast = None,
    population: Annotated[str, typer.Option(help="Trainings stacked at once: auto or a number.")] = "auto",
    windowing: Windowing = UNSAID,
    clean: Annotated[
        bool, typer.Option("--clean", help="Leave out what is clearly broken: dead channels, lost values, copies.")
    ] = False,
    cluster: OnCluster = None,
    live: Live = False,
    tensorboard: ToTensorBoard = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it would cost.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = None,
) -> None:
    """Search, cross-validate over subjects, choose, and write model and report to OUT."""
    from ..runs.options import RunOptions

    if out is None and not dry_run:
        raise UserError("there is no folder to write to; give --out FOLDER, or --dry-run to see what a run would cost")
    if prepare is not None:
        preprocessing = "online" if prepare == "adaptive" else prepare
        print(f"--prepare is called --preprocessing now: --preprocessing {preprocessing}", file=sys.stderr)
    options = RunOptions.of(
        "quick" if quick else "recommended",
        source=data, grid=grid, time=time, folds=_number_or_word(folds), networks=networks, kinds=kinds, steps=steps,
        search=search, trials=trials, storage=storage, epochs=epochs, patience=patience,
        batch_size=batch_size, lr=lr, standardise=standardise, align=align, preprocessing=preprocessing,
        encoder=encoder, device=device, seed=seed, seeds=seeds, rule=rule, nested=nested, final=final,
        population=_population(population), as_printed=as_printed, nuisance=nuisance, clean=clean, at_least=at_least,
        **asdict(windowing),
    )  # fmt: skip
    encoders = own_encoders(encoder)
    check_end(tensorboard)
    if dry_run:
        _dry_run(options, encoders)
        return
    from ..runs.files import Lock
    from ..search.budget import begin

    assert out is not None, "checked above"
    with workers(cluster) as executor:  # before anything is written: there may be none
        created = begin(out, options, encoders, tell=tell, here=executor is None)
        with Lock(out), followers(out, live=live, tensorboard=tensorboard):
            carry_through(created, executor)


def _population(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"population is {text!r}; give auto or a number of at least 1")
    return int(text)


def _number_or_word(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text


def _dry_run(options: Any, encoders: dict[str, Any] | None) -> None:
    from ..folds import check_scorable, describe, leave_groups_out
    from ..recordings import load
    from ..recordings.concerns import concerns
    from ..runs.run import check_columns, check_packages
    from ..search.budget import fitted, shorter, why_folds
    from ..search.estimate import Costs, balances, estimate

    check_packages(options)
    recordings = load(options.source, **options.cutting)
    check_columns(options, recordings)
    check_scorable(recordings)
    asked, left_out = options, list[str]()
    costs = Costs.measure(recordings, asked.for_data(recordings), encoders)
    if asked.time is not None:
        options, left_out = fitted(recordings, asked, costs)
    options = options.for_data(recordings)
    say(repr(recordings))
    say(describe(leave_groups_out(recordings, options.n_folds)))
    for line in (*concerns(recordings.raw()), *why_folds(recordings, asked), *balances(recordings, options)):
        say(line)
    if asked.time is not None:
        say(f"planned for {asked.time}; left out: {'; '.join(left_out) or 'nothing'}")
    cost = estimate(recordings, options, encoders, costs)
    say(cost.work(options))
    say(cost.cost())
    if asked.time is None and cost.seconds > 60:  # nobody waits for less
        say("shorter:")
        for line in shorter(recordings, asked, costs):
            say(f"  {line}")


def resume(
    folder: Folder,
    data: Moved = None,
    encoder: OwnEncoder = "eegnet",
    cluster: OnCluster = None,
    storage: Storage = None,
    live: Live = False,
    tensorboard: ToTensorBoard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = None,
) -> None:
    """Continue a run after any interruption; finished jobs are never trained again."""
    from ..runs.files import Lock
    from ..runs.run import check_is_run, reopen

    check_is_run(folder)
    check_end(tensorboard)
    with workers(cluster) as executor, Lock(folder):
        opened = reopen(folder, own_encoders(encoder), tell, storage, data)
        if opened.ledger.recall("complete", bool) and (folder / "choice.json").exists():
            with closing(opened.ledger):
                if not (folder / "report.html").exists():  # killed after all else was done
                    write_report(opened)
            say(f"{folder} is finished; its report is {folder / 'report.html'}")
            return
        with followers(folder, live=live, tensorboard=tensorboard):
            carry_through(opened, executor)


def status(folder: Folder) -> None:
    """How far a run is: jobs done, running, failed, time left."""
    from ..runs.progress import standing

    for line in standing(folder):
        say(line)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("demo-run"),
    epochs: Annotated[int, typer.Option(help="Epochs of every training.")] = 14,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = None,
) -> None:
    """AutoTransfer end to end on real smartwatch recordings, in a few minutes; continues what was begun."""
    from ..runs.run import is_run

    if is_run(out):
        resume(out)
        if (out / "choice.json").exists():
            from ..runs.choice import read_choice

            say_answer(read_choice(out))
        return
    # Few epochs, so a high rate.
    run(data="watch", out=out, epochs=epochs, lr=1e-2, seeds=1)
