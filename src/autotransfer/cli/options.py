"""Options that several commands have. Each is described once, here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from typer import Argument, Option

from ..errors import UserError
from ..options import USUAL, AskedOptions

if TYPE_CHECKING:
    from ..models.mixture import Model
    from ..models.regression import RegressionModel
    from ..recordings import Raw

Source = Annotated[
    str,
    Argument(
        metavar="DATA",
        help="A file (.npz, MNE epochs .fif, .edf, .bdf, .gdf, .xdf, .csv, WFDB's .hea), a folder of such files or of "
        ".npy files, a BIDS folder, moabb:NAME, or what datasets lists.",
    ),
]
Folder = Annotated[Path, Argument(metavar="RUN", help="Folder of a run.")]
ASKED = get_type_hints(AskedOptions, include_extras=True)
OwnEncoder = Annotated[
    str, Option("--encoder", show_default="as the run", help="module:function, the factory of the run's own encoder.")
]
AtLeast = Annotated[float | None, Option("--at-least", help=ASKED["at_least"].__metadata__[0].help)]
Moved = Annotated[str | None, Option("--data", metavar="FILE", help="The recordings, if they have moved.")]
ToTensorBoard = Annotated[
    Path | None, Option("--tensorboard", metavar="DIR", help="Folder for TensorBoard's event files.")
]
Text = str | None
Number = float | None


def _cut(help: str) -> Any:
    return Option(help=help, rich_help_panel="Continuous recordings")


# How CSV files are written: accepted and documented in docs/formats.md, and not shown by --help.
Sep = Annotated[str | None, Option(help="What separates columns: , ; or tab.", hidden=True)]
Decimal = Annotated[str | None, Option(help="The decimal mark: . or ,", hidden=True)]
TimeColumn = Annotated[str | None, Option(help="The column of times.", hidden=True)]


@dataclass(frozen=True)
class Windowing:
    """How continuous recordings are cut into windows. A command with one has its fields as options (`flatten`)."""

    window: Annotated[Number, _cut("Seconds of a window.")] = None
    hop: Annotated[Number, _cut("Seconds from one window to the next; default: one after the other.")] = None
    offset: Annotated[Number, _cut("Seconds from an event, or from the start, to the first window.")] = None
    events: Annotated[Text, _cut("Events and their classes: T1=left,T2=right; T0= only ends what came before.")] = None
    pattern: Annotated[Text, _cut("What names of files mean: '{subject}/{session}_{class}_*.csv'.")] = None
    sfreq: Annotated[Number, _cut("Sampling rate in Hz of files that do not say it (.csv).")] = None
    sep: Sep = None
    decimal: Decimal = None
    time_column: TimeColumn = None
    filter: Annotated[Text, _cut("Filter before cutting: a band in Hz and the mains, 5-45,notch:50.")] = None

    def read(self, data: str) -> Raw:
        from ..recordings import Cutting, read

        return read(data, Cutting.of(**asdict(self)))

    def read_for(self, model: Model | RegressionModel, data: str) -> Raw:
        """Read data for a model: window length and filter are the model's unless the user gives them."""
        from ..models.regression import RegressionModel
        from ..recordings import Cutting, is_continuous, read

        card = model.card
        band = model.card.filter if isinstance(model, RegressionModel) else model.parts[0].card.filter
        cutting = asdict(self)
        if is_continuous(data):
            if self.window is None and card.sfreq is not None:
                cutting["window"] = card.n_times / card.sfreq
            if self.filter is None and band is not None and band.get("sections"):
                cutting["filter"] = band
        return read(data, Cutting.of(**cutting))


def _event(help: str) -> Any:
    return Option(help=help, rich_help_panel="Events")


@dataclass(frozen=True)
class Detection:
    """When probabilities of windows become an action, and recordings to try that on. A command that takes one has its
    fields as options (`flatten`)."""

    rest: Annotated[Text, _event("The class that is no action.")] = None
    threshold: Annotated[Number, _event("The least probability of a window that votes; default: 0.5.")] = None
    debounce: Annotated[str, _event("N/M: N of the last M windows must vote for a class; or seconds, 0.4s.")] = "1/1"
    refractory: Annotated[float, _event("Seconds after an activation without another class.")] = 0.0
    replay: Annotated[Text, _event("Recordings with events in place of --source.")] = None
    events: Annotated[Text, _event("With --replay: events and their classes, T1=left,T2=right.")] = None
    pattern: Annotated[Text, _event("With --replay: what names of files mean, '{subject}/*.csv'.")] = None
    sfreq: Annotated[Number, _event("Sampling rate in Hz of files that do not say it.")] = None
    sep: Sep = None
    decimal: Decimal = None
    time_column: TimeColumn = None

    def __post_init__(self) -> None:
        if self.replay is None:
            for name in ("events", "pattern"):
                if getattr(self, name) is not None:
                    raise UserError(f"--{name} is for --replay; leave it out, or replay recordings")

    @property
    def asked(self) -> bool:
        """Whether events of a stream are to be detected."""
        return replace(self, sep=None, decimal=None, time_column=None) != Detection(
            replay=self.replay, sfreq=self.sfreq
        )

    @property
    def rule(self) -> dict[str, Any]:
        """As `person.stream.replay` takes it."""
        threshold = 0.5 if self.threshold is None else self.threshold
        return {
            "rest": self.rest, "threshold": threshold, "debounce": self.debounce, "refractory": self.refractory,
        }  # fmt: skip


UNSAID, UNASKED, UNDETECTED = Windowing(), AskedOptions(), Detection()


def _option(name: str) -> Any:
    """An option of a run for typer: text or a number; other types that Python accepts are given by name."""
    about, kinds = ASKED[name].__metadata__[0], get_args(ASKED[name].__origin__) or (ASKED[name].__origin__,)
    kind: Any = str if str in kinds else next(other for other in kinds if other is not NoneType)
    flag = f"--{name.replace('_', '-')}"  # said: no --no-… beside it, and typer 0.27 would name it by its metavar
    panel = None if about.group == USUAL else about.group
    option = Option(flag, help=about.help, rich_help_panel=panel, metavar=about.metavar)
    return Annotated[kind | None if NoneType in kinds else kind, option]


def flatten(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer: a parameter `windowing`, `detection` or `asked` is replaced by the fields of its
    dataclass."""
    parameters = signature(command, eval_str=True).parameters
    groups: dict[str, tuple[type[Any], dict[str, Any]]] = {
        "windowing": (Windowing, get_type_hints(Windowing, include_extras=True)),
        "detection": (Detection, get_type_hints(Detection, include_extras=True)),
        "asked": (AskedOptions, {name: _option(name) for name in ASKED}),
    }
    groups = {name: group for name, group in groups.items() if name in parameters}
    if not groups:
        return command

    @wraps(command)
    def taking_options(**values: Any) -> None:
        for name, (kind, hints) in groups.items():
            values[name] = kind(**{option: values.pop(option) for option in hints})
        command(**values)

    flat: list[Parameter] = []
    for name, parameter in parameters.items():
        kind, hints = groups.get(name, (None, {}))
        flat += [
            Parameter(option, Parameter.POSITIONAL_OR_KEYWORD, default=getattr(kind, option), annotation=hint)
            for option, hint in hints.items()
        ] or [parameter]
    taking_options.__signature__ = Signature(flat)  # type: ignore[attr-defined]  # functions may have one
    taking_options.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return taking_options


def own_encoders(text: str) -> dict[str, Any] | None:
    """The user's own factory, which is imported only because the command line names it."""
    from ..model.encoders import ENCODERS

    if text in ENCODERS:
        return None
    from importlib import import_module
    from os import getcwd

    module, _, name = text.partition(":")
    if not module or not name:
        raise UserError(f"the encoder is {text!r}; give {', '.join(ENCODERS)} or module:function")
    if getcwd() not in sys.path:
        sys.path.insert(0, getcwd())  # as python itself does for a script beside the data
    try:
        return {text: getattr(import_module(module), name)}
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot import the encoder {text!r} ({error}); give module:function") from None
