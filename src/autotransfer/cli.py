"""The command line. Heavy modules are imported inside the commands, so that --help answers at once."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from autotransfer import __version__

from .errors import UserError, check_choice, machine_trouble, one_line, shown
from .runs.limits import check_address_space
from .runs.signals import Stopped, signals_stop

if TYPE_CHECKING:
    from .runs.choice import Choice
    from .runs.executor import Executor
    from .runs.run import Run

app = typer.Typer(
    name="autotransfer",
    help="Models for biosignals that work on people they have never seen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.npz, MNE epochs .fif, .edf, .bdf, .gdf, .xdf, .csv, WFDB's .hea), a folder of such files or of "
        ".npy files, a BIDS folder, moabb:NAME, or what datasets lists.",
    ),
]
# How continuous recordings are cut into windows.
Window = Annotated[float | None, typer.Option(help="Continuous recordings: seconds of a window.")]
Hop = Annotated[
    float | None,
    typer.Option(
        help="Seconds from one window to the next, in a recording or while an event lasts; default: one window after "
        "the other, or one for each event."
    ),
]
Offset = Annotated[
    float | None,
    typer.Option(help="Seconds from an event, or from a recording's start, to its first window."),
]
Events = Annotated[
    str | None,
    typer.Option(help="Events and their classes: T1=left,T2=right, or JSON; T0= only ends what came before."),
]
Pattern = Annotated[
    str | None,
    typer.Option(help="What names of files mean: '{subject}/{session}_{class}_*.csv'; other names are columns."),
]
Rate = Annotated[float | None, typer.Option("--sfreq", help="Sampling rate in Hz of files that do not say it (.csv).")]
Folder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
OwnEncoder = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="eegnet, shallow, linear, templates, braindecode:MODEL,option=value,… where it is installed, or "
        "module:function, a factory (n_channels, n_times) -> nn.Module.",
    ),
]
Live = Annotated[
    bool, typer.Option("--live", help="Serve a page that follows the run, to browsers on this machine alone.")
]
ToTensorBoard = Annotated[
    Path | None,
    typer.Option("--tensorboard", metavar="DIR", help="Folder for TensorBoard's event files, one for each training."),
]
OnCluster = Annotated[
    str | None, typer.Option("--cluster", help="Train on a Dask cluster: host:port of its scheduler, or local:N.")
]
Storage = Annotated[str | None, typer.Option("--storage", help="URL of Optuna's storage; default: RUN/optuna.sqlite.")]


@dataclass
class Voice:
    """How much is said."""

    quiet: bool = False


VOICE = Voice()


def _be_quiet(context: typer.Context, asked: bool) -> bool:
    if asked:
        VOICE.quiet = True
        context.call_on_close(lambda: setattr(VOICE, "quiet", False))
    return asked


def _be_verbose(context: typer.Context, asked: bool) -> bool:
    if asked:
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(lambda record: record.levelno == logging.DEBUG)  # the rest is said anyway
        _listen(context, handler)
        LOG.setLevel(logging.DEBUG)
    return asked


def _write_log(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        try:
            handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UserError(f"cannot write to {path} ({error.strerror}); choose another --log") from None
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        _listen(context, handler)
        told = warnings.showwarning

        def also_here(message: Any, category: Any, *where: Any, **more: Any) -> None:
            told(message, category, *where, **more)
            LOG.warning("%s", message)

        warnings.showwarning = also_here
        context.call_on_close(lambda: setattr(warnings, "showwarning", told))
        LOG.info("autotransfer %s: %s", __version__, " ".join(sys.argv[1:]))
    return path


def _listen(context: typer.Context, handler: logging.Handler) -> None:
    LOG.addHandler(handler)
    LOG.setLevel(min(LOG.level or logging.INFO, logging.INFO))
    LOG.propagate = False

    def stop() -> None:
        if isinstance(error := sys.exc_info()[1], UserError):
            handler.handle(LOG.makeRecord(LOG.name, logging.ERROR, "", 0, str(error), (), None))
        LOG.removeHandler(handler)
        handler.close()
        if not LOG.handlers:
            LOG.setLevel(logging.NOTSET)
            LOG.propagate = True

    context.call_on_close(stop)


def _configure(context: typer.Context, path: Path | None) -> Path | None:
    """What the file says takes the place of defaults; the command line has the last word."""
    if path is None:
        return None
    from .runs.study import read_study

    hints = {name: hint for name, hint in get_type_hints(run).items() if name not in ("config", "return")}
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
Quiet = Annotated[
    bool, typer.Option("--quiet", callback=_be_quiet, help="Say nothing but the answer, warnings and errors.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", callback=_be_verbose, help="Say a line about every finished training.")
]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", callback=_write_log, help="File to which all that is said is added."),
]
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
Moved = Annotated[
    str | None, typer.Option("--data", metavar="FILE", help="Where the recordings are now, if they have moved.")
]


LIGHT = ("status", "datasets")  # commands that compute nothing
LOG = logging.getLogger("autotransfer")  # what --verbose shows and --log keeps


def _version(asked: bool) -> None:
    if asked:
        print(f"autotransfer {__version__}")
        raise typer.Exit


@app.callback()
def before(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    if context.invoked_subcommand not in LIGHT:
        check_address_space()


def say(line: str) -> None:
    """An answer."""
    print(line, flush=True)
    LOG.info(line)


def complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
    if LOG.handlers:  # without any, Python would print it once more
        LOG.error(line)


def tell(line: str) -> None:
    """What is being done, which --quiet leaves out."""
    if not VOICE.quiet:
        print(line, flush=True)
    LOG.info(line)


@app.command()
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
    population: Annotated[str, typer.Option(help="Trainings stacked at once: auto or a number.")] = "auto",
    window: Window = None,
    hop: Hop = None,
    offset: Offset = None,
    events: Events = None,
    pattern: Pattern = None,
    sfreq: Rate = None,
    cluster: OnCluster = None,
    live: Live = False,
    tensorboard: ToTensorBoard = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it would cost.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = None,
) -> None:
    """Search, cross-validate over subjects, choose, and write model and report to OUT."""
    from .runs.options import RunOptions

    if out is None and not dry_run:
        raise UserError("there is no folder to write to; give --out FOLDER, or --dry-run to see what a run would cost")
    if prepare is not None:
        preprocessing = "online" if prepare == "adaptive" else prepare
        print(f"--prepare is called --preprocessing now: --preprocessing {preprocessing}", file=sys.stderr)
    options = RunOptions.of(
        "quick" if quick else "recommended",
        source=data, grid=grid, time=time, folds=_number_or_word(folds), networks=networks, steps=steps, search=search,
        trials=trials, storage=storage, epochs=epochs, patience=patience,
        batch_size=batch_size, lr=lr, standardise=standardise, align=align, preprocessing=preprocessing,
        encoder=encoder, device=device, seed=seed, seeds=seeds, rule=rule, nested=nested, final=final,
        population=_population(population), as_printed=as_printed, nuisance=nuisance,
        window=window, hop=hop, offset=offset, events=events, pattern=pattern, sfreq=sfreq,
    )  # fmt: skip
    encoders = _encoders(encoder)
    _check_end(tensorboard)
    if dry_run:
        _dry_run(options, encoders)
        return
    from .runs.files import Lock
    from .search.budget import begin

    assert out is not None, "checked above"
    with _cluster(cluster) as executor:  # before anything is written: there may be none
        created = begin(out, options, encoders, tell=tell, here=executor is None)
        with Lock(out), _followers(out, live=live, tensorboard=tensorboard):
            _conduct(created, executor)


def _population(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"population is {text!r}; give auto or a number of at least 1")
    return int(text)


def _number_or_word(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text


def _encoders(text: str) -> dict[str, Any] | None:
    """The user's own factory, which is imported only because the command line names it."""
    from .model.encoders import ENCODERS, find_factory, is_ours

    if is_ours(text):
        if text not in ENCODERS:
            find_factory(text, None)  # complains before anything is read
        return None
    from importlib import import_module
    from os import getcwd

    module, _, name = text.partition(":")
    if not module or not name:
        raise UserError(f"the encoder is {text!r}; give {', '.join(ENCODERS)}, braindecode:MODEL or module:function")
    if getcwd() not in sys.path:
        sys.path.insert(0, getcwd())  # as python itself does for a script beside the data
    try:
        return {text: getattr(import_module(module), name)}
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot import the encoder {text!r} ({error}); give module:function") from None


def _dry_run(options: Any, encoders: dict[str, Any] | None) -> None:
    from .folds import check_scorable, describe, leave_groups_out
    from .recordings import load
    from .recordings.concerns import concerns
    from .runs.run import check_columns, check_packages
    from .search.budget import fitted, shorter, why_folds
    from .search.estimate import Costs, balances, estimate

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
    if asked.time is None:
        say("shorter:")
        for line in shorter(recordings, asked, costs):
            say(f"  {line}")


@app.command()
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
    from .runs.files import Lock
    from .runs.run import check_is_run, reopen

    check_is_run(folder)
    _check_end(tensorboard)
    with _cluster(cluster) as executor, Lock(folder):
        opened = reopen(folder, _encoders(encoder), tell, storage, data)
        if opened.ledger.recall("complete", bool) and (folder / "choice.json").exists():
            with closing(opened.ledger):
                if not (folder / "report.html").exists():  # killed after all else was done
                    _write_report(opened)
            say(f"{folder} is finished; its report is {folder / 'report.html'}")
            return
        with _followers(folder, live=live, tensorboard=tensorboard):
            _conduct(opened, executor)


@contextmanager
def _followers(folder: Path, *, live: bool, tensorboard: Path | None) -> Iterator[None]:
    """Those who watch the run while it works."""
    with ExitStack() as stack:
        if tensorboard is not None:
            from .report.tensorboard import EventFiles

            stack.enter_context(EventFiles(folder, tensorboard))
        if live:
            from .report.live import LivePage

            say(f"live page: {stack.enter_context(LivePage(folder)).url}")
        yield


@contextmanager
def _cluster(address: str | None) -> Iterator[Executor | None]:
    """The workers that --cluster names; None: this process."""
    if address is None:
        yield None
        return
    from .cluster import Cluster

    with Cluster(address) as executor:
        tell(f"{executor.workers} worker{'s' * (executor.workers != 1)} on {address}")
        yield executor


def _check_end(tensorboard: Path | None = None) -> None:
    """What is only used when all is trained is missed before."""
    from .report import collect  # noqa: F401
    from .report.page import plotly_of

    plotly_of()
    if tensorboard is not None:
        from .report.tensorboard import writer_kind

        writer_kind()


def _conduct(opened: Run, executor: Executor | None) -> None:
    """The procedure, the report, and the answer in a few lines."""
    from .search.procedure import conduct

    if executor is not None:
        opened.executor = executor
    try:
        with closing(opened.ledger):
            choice = conduct(opened, tell, shown=not VOICE.quiet)
            drawn = _try_report(opened)
    except (KeyboardInterrupt, Stopped) as stop:
        print(file=sys.stderr)
        complain(f"interrupted; continue with: autotransfer resume {opened.folder}")
        raise typer.Exit(getattr(stop, "exit_code", 130)) from None
    except (OSError, MemoryError) as error:
        reason = machine_trouble(error)
        complain(f"stopped: {reason}; continue with: autotransfer resume {opened.folder}")
        raise typer.Exit(1) from None
    _say_answer(choice)
    if drawn:
        say(f"report: {(opened.folder / 'report.html').resolve()}")


def _try_report(opened: Run) -> bool:
    """Whether there is a page: whatever is wrong with it, the run has all that it was to find out."""
    try:
        _write_report(opened)
    except (OSError, MemoryError):  # as anywhere in a run: make room, and go on
        raise
    except Exception as error:
        again = f"the run is finished; try again with: autotransfer report {opened.folder}"
        complain(f"the report could not be drawn ({one_line(error)}); {again}")
        return False
    return True


def _say_answer(choice: Choice) -> None:
    from .report.terminal import answer

    for line in answer(choice):
        say(line)


def _write_report(opened: Run) -> Path:
    from .report.collect import collect
    from .report.page import write
    from .search.budget import Budget
    from .search.procedure import write_results

    write_results(opened)
    path = opened.folder / "report.html"
    budget = Budget.of(opened)
    write(collect(opened, until=None if budget is None else budget.until), path)
    return path


@app.command()
def status(folder: Folder) -> None:
    """How far a run is: jobs done, running, failed, time left."""
    from .runs.progress import standing

    for line in standing(folder):
        say(line)


@app.command()
def report(
    folder: Folder,
    data: Moved = None,
    encoder: OwnEncoder = "eegnet",
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the live page of the run, to this machine alone, until Ctrl-C.")
    ] = False,
    tensorboard: ToTensorBoard = None,
    moabb: Annotated[
        Path | None, typer.Option("--moabb", metavar="FILE", help="CSV file for the scores in MOABB's columns.")
    ] = None,
) -> None:
    """Write RUN/report.html anew, also of a run that is not finished. The recordings need not be there. With --watch,
    --tensorboard or --moabb, write or serve that instead."""
    from .runs.run import Run, check_is_run

    if watch or tensorboard is not None or moabb is not None:
        check_is_run(folder)
        _report_elsewhere(folder, tensorboard, moabb)
        if watch:
            _watch(folder)
        return
    opened = Run.open(folder, _encoders(encoder), source=data, lazy=True)
    with closing(opened.ledger):
        say(f"report: {_write_report(opened).resolve()}")


def _report_elsewhere(folder: Path, tensorboard: Path | None, moabb: Path | None) -> None:
    if tensorboard is not None:
        from .report.tensorboard import EventFiles

        n = EventFiles(folder, tensorboard).update()
        say(f"{n} training{'s' * (n != 1)}; look at them with: tensorboard --logdir {tensorboard}")
    if moabb is not None:
        from .report.moabb_results import moabb_results
        from .runs.csv_tables import csv_of
        from .runs.files import write_atomically

        write_atomically(moabb, csv_of(moabb_results(folder)))
        say(f"scores in MOABB's columns: {moabb}")


def _watch(folder: Path) -> None:
    from time import sleep

    from .report.live import LivePage

    with LivePage(folder) as page:
        page.follower.look()  # whatever is wrong with the run is said here
        say(f"live page: {page.url} (until Ctrl-C)")
        try:
            while True:
                sleep(1)
        except (KeyboardInterrupt, Stopped):
            return


@app.command()
def predict(
    folder: Folder,
    data: Source,
    out: Annotated[Path | None, typer.Option(help="CSV file for the predictions; default: standard output.")] = None,
    metric: Annotated[
        str, typer.Option(help="Of windows with labels: balanced_accuracy, roc_auc, cohen_kappa, f1_macro or accuracy.")
    ] = "balanced_accuracy",
    scores: Annotated[
        Path | None, typer.Option(help="CSV file for every person's scores and confusions, where labels are known.")
    ] = None,
    model: Annotated[str, typer.Option(help="ensemble, or refit where the run made one.")] = "ensemble",
    window: Window = None,
    hop: Hop = None,
    offset: Offset = None,
    events: Events = None,
    pattern: Pattern = None,
    sfreq: Rate = None,
    encoder: OwnEncoder = "eegnet",
    quiet: Quiet = False,
) -> None:
    """Predict the class of new windows with a run's model. Where the data have labels, standard error gets scores by
    person and a confusion table."""
    from .recordings import Cutting, is_continuous, read
    from .report.person_scores import PersonScores, card_words
    from .runs.csv_tables import csv_of
    from .runs.files import write_atomically
    from .runs.predictions import predictions, probabilities
    from .runs.saved_model import load_model
    from .training.scoring import metric_of

    check_choice("model", model, ("ensemble", "refit"))
    metric_of(metric)
    home = folder / "model" if model == "ensemble" else folder / "model" / "refit"
    saved = load_model(home, _encoders(encoder))
    card = saved.card
    if window is None and card.sfreq is not None and is_continuous(data):
        window = card.n_times / card.sfreq  # what the model takes
    raw = read(data, Cutting.of(window=window, hop=hop, offset=offset, events=events, pattern=pattern, sfreq=sfreq))
    if scores is not None and raw.y is None:
        raise UserError(f"{data} has no labels y to score predictions with; leave --scores out")
    found = probabilities(saved, raw)
    told = [card_words(saved)]
    try:
        scored = PersonScores.of(saved, raw, found)
        told += [] if scored is None else scored.lines(metric)
    except UserError as error:  # predictions need no labels
        if scores is not None:
            raise
        scored, told = None, [*told, str(error)]
    table = predictions(saved, raw, found)
    if out is None:
        print(csv_of(table), end="", flush=True)
    else:
        write_atomically(out, csv_of(table))
        say(f"{len(table)} predictions: {out}")
    if scores is not None and scored is not None:
        write_atomically(scores, csv_of(scored.table()))
        told.append(f"scores of each person: {scores}")
    for line in told:
        if line is not None and not quiet:
            print(line, file=sys.stderr)


@app.command()
def calibrate(
    folder: Folder,
    data: Annotated[str, typer.Argument(metavar="PERSON", help="A few labelled windows of one person.")],
    out: Annotated[Path, typer.Option(help="Folder for the person's model, which predict, export and stream take.")],
    encoder: OwnEncoder = "eegnet",
) -> None:
    """Make a model for one person from a run's model and a few of their labelled windows."""
    from .person.calibration import calibrated_with
    from .recordings import read
    from .runs.files import refuse_links
    from .runs.saved_model import load_model, save_model

    if (out / "ledger.sqlite").exists():
        raise UserError(f"{out} is a run; choose another --out, its model would be replaced")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; choose another --out, a folder for the person's model")
    for known in (folder, out):
        refuse_links(known)
    own, raw = load_model(folder / "model", _encoders(encoder)), read(data)
    made, counts = calibrated_with(own, raw)
    save_model(out / "model", made)
    say(f"{'the model as it was' if made is own else 'calibrated'}: {out / 'model'}")
    say("labelled windows: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


@app.command()
def export(
    folder: Folder,
    format: Annotated[str, typer.Option(help="onnx, torch (a torch.export program, .pt2) or safetensors.")],
    out: Annotated[Path | None, typer.Option(help="The file; default: RUN/model with the format's ending.")] = None,
    model: Annotated[str, typer.Option(help="ensemble, or refit where the run made one.")] = "ensemble",
    encoder: OwnEncoder = "eegnet",
) -> None:
    """Write a run's model as one file that runs without this package, and check it."""
    from .export import export_model

    for line in export_model(folder, format, out, model=model, encoders=_encoders(encoder)).lines():
        say(line)


@app.command()
def stream(
    folder: Folder,
    source: Annotated[
        str, typer.Option(help="lsl:NAME, a .npz of one person, or an .xdf (?stream=NAME where it has several).")
    ],
    out: Annotated[str | None, typer.Option(help="lsl:NAME or a .csv file; default: standard output.")] = None,
    hop: Annotated[float | None, typer.Option(help="Seconds between windows; default: half a window.")] = None,
    smooth: Annotated[
        str, typer.Option(help="majority:N (decisions), posterior:SECONDS (half-life), or none.")
    ] = "none",
    filter: Annotated[
        str, typer.Option(help="Band in Hz, such as 5-45, 20- or -40; auto: as the model's recordings were; none.")
    ] = "auto",
    notch: Annotated[list[float] | None, typer.Option(help="Hz of the mains; may be given several times.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so many; default: when the source does.")] = None,
    session: Annotated[
        Path | None, typer.Option(help="What is known of the person: read if it is there, and written at the end.")
    ] = None,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Take channels in their order, whatever they are called.")
    ] = False,
    model: Annotated[str, typer.Option(help="ensemble, or refit where the run made one.")] = "ensemble",
    encoder: OwnEncoder = "eegnet",
) -> None:
    """Decode a person's signals as they come, until the source ends or Ctrl-C."""
    import torch

    from .person.session import Session
    from .person.stream.run import LiveLine, Stream, filter_from
    from .person.stream.sink import open_sink
    from .person.stream.source import open_source

    check_choice("model", model, ("ensemble", "refit"))
    if seconds is not None and not seconds > 0:
        raise UserError(f"seconds is {seconds:g}; it must be a positive number")
    home, encoders = folder if model == "ensemble" else folder / "model" / "refit", _encoders(encoder)
    torch.set_num_threads(1)  # a window is so little work that threads would wait for each other
    found = session is not None and session.exists()
    person = Session.load(session, home, encoders=encoders) if session and found else Session(home, encoders=encoders)
    line = LiveLine()

    def tell(text: str) -> None:
        line.clear()
        print(text, file=sys.stderr, flush=True)

    filtered = filter_from(filter, notch or [], person.model.parts[0].card.filter)
    with closing(open_source(source)) as samples:
        decoded = Stream(person, samples, hop=hop, smooth=smooth, filtered=filtered, by_position=by_position, tell=tell)
        with closing(open_sink(out, person.classes_.tolist(), str(folder))) as sink:
            for text in decoded.describe():
                tell(text)
            summary = decoded.run(sink, seconds, line)
    if session is not None:
        person.save(session)
    tell(str(summary))


@app.command()
def inspect(
    data: Source,
    html: Annotated[Path | None, typer.Option(help="File for a page with the pictures.")] = None,
    window: Window = None,
    hop: Hop = None,
    offset: Offset = None,
    events: Events = None,
    pattern: Pattern = None,
    sfreq: Rate = None,
) -> None:
    """What recordings hold: people, classes, counts, a window of each class, and what looks wrong."""
    from .recordings import Cutting, read
    from .recordings.overview import overview

    cutting = Cutting.of(window=window, hop=hop, offset=offset, events=events, pattern=pattern, sfreq=sfreq)
    found = overview(read(data, cutting))
    for line in found.lines():
        say(line)
    if html is not None:
        from .report.preview import write_preview

        write_preview(found, html)
        say(f"page: {html.resolve()}")


@app.command()
def datasets() -> None:
    """What can be loaded by name, and how."""
    from .recordings.catalogue import catalogue

    for line in catalogue():
        say(line)


@app.command()
def grids() -> None:
    """The grids of settings that a run can try: how many settings each has, and which."""
    from .grids import GRIDS, contents, grid

    for name in GRIDS:
        n = len(grid(name))
        say(f"{name:12}{n:5} setting{'s' if n != 1 else ' '}  {contents(name)}")


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN1", help="Folder of a finished run.")],
    second: Annotated[Path, typer.Argument(metavar="RUN2", help="Another, on the same recordings.")],
) -> None:
    """Compare two runs person by person: means, lower quartiles, the difference and how sure it is."""
    from .report.two_runs import compare as lines_of
    from .runs.run import check_is_run

    for folder in (first, second):
        check_is_run(folder)
    for line in lines_of(first, second):
        say(line)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("demo-run"),
    epochs: Annotated[int, typer.Option(help="Epochs of every training.")] = 14,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = None,
) -> None:
    """AutoTransfer end to end on real smartwatch recordings, in a few minutes; continues what was begun."""
    from .runs.run import is_run

    if is_run(out):
        resume(out)
        if (out / "choice.json").exists():
            from .runs.choice import read_choice

            _say_answer(read_choice(out))
        return
    # Few epochs, so a high rate.
    run(data="watch", out=out, epochs=epochs, lr=1e-2, seeds=1)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error and exit code 2."""
    warnings.formatwarning = lambda message, *_, **__: f"autotransfer: {message}\n"  # no source lines for users
    if isinstance(sys.stdout, TextIOWrapper):  # names that have no UTF-8 shall not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with signals_stop():
            app()
    except UserError as error:
        print(f"autotransfer: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (OSError, MemoryError) as error:
        print(f"autotransfer: {machine_trouble(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, Stopped) as stop:
        raise SystemExit(getattr(stop, "exit_code", 130)) from None


if __name__ == "__main__":
    main()
