"""Options that several commands share."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..errors import UserError

if TYPE_CHECKING:
    from ..models.model import Model
    from ..recordings import Raw

Source = Annotated[
    str,
    Argument(
        metavar="DATA",
        help="A file (.npz, .fif, .edf, .bdf, .gdf, .xdf, .csv, .hea), a folder, or a dataset's name.",
    ),
]
Folder = Annotated[Path, Argument(metavar="RUN", help="Folder of a run.")]
EncoderFactory = Annotated[
    str, Option("--encoder", show_default="as in the run", help="module:function that builds your own encoder.")
]
AtLeast = Annotated[
    float | None, Option("--at-least", help="Required score of every subject; subjects below it are listed.")
]
MovedData = Annotated[
    str | None, Option("--data", metavar="FILE", help="New path of the recordings if they were moved.")
]
ToTensorBoard = Annotated[
    Path | None, Option("--tensorboard", metavar="DIR", help="Folder for TensorBoard event files.")
]
Text = str | None
Number = float | None


def _cutting_option(help: str) -> Any:
    return Option(help=help, rich_help_panel="Continuous recordings")


def event(help: str) -> Any:
    return Option(help=help, rich_help_panel="Events")


# Format of CSV files: documented in docs/formats.md and hidden from --help.
Sep = Annotated[Text, Option(help="Separator of columns: , ; or tab.", hidden=True)]
Decimal = Annotated[Text, Option(help="The decimal mark: . or ,", hidden=True)]
TimeColumn = Annotated[Text, Option(help="The column of times.", hidden=True)]
CUTTING_OPTIONS: dict[str, Any] = {  # reading and cutting of continuous recordings
    "window": Annotated[Number, _cutting_option("Length of a window in seconds.")],
    "hop": Annotated[
        Number, _cutting_option("Seconds between starts of windows; default: no overlap, or one window per event.")
    ],
    "offset": Annotated[Number, _cutting_option("Seconds from an event, or from the start, to the first window.")],
    "events": Annotated[
        Text,
        _cutting_option("Events and their classes, such as T1=left,T2=right; T0=, without a class, ends an event."),
    ],
    "pattern": Annotated[Text, _cutting_option("Pattern of file names, such as '{subject}/{session}_{class}_*.csv'.")],
    "sfreq": Annotated[Number, _cutting_option("Sampling rate in Hz of files without one (.csv).")],
    "sep": Sep,
    "decimal": Decimal,
    "time_column": TimeColumn,
    "filter": Annotated[
        Text, _cutting_option("Filter before cutting: band and power-line frequency in Hz, such as 5-45,notch:50.")
    ],
}


def add_cutting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add CUTTING_OPTIONS to a command, which receives them as the dict `cutting`."""
    own = inspect.signature(command, eval_str=True)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        cutting = {name: given.pop(name) for name in CUTTING_OPTIONS}
        command(**given, cutting=cutting)

    parameters = [parameter for name, parameter in own.parameters.items() if name != "cutting"]
    for name, kind in CUTTING_OPTIONS.items():
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind))
    wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # mypy does not know it
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def merge_options(command_line: dict[str, Any], constants: Sequence[str], config: Path | None) -> dict[str, Any]:
    """Return the options and constants that the user gave, by name. The command line overrides the file.

    command_line: options of the command line, where None and False stand for options that were not given
    constants: texts NAME=VALUE of --set
    config: file of --config
    """
    from ..runs.study import read_study

    given = {name: value for name, value in command_line.items() if value is not None and value is not False}
    for text in constants:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (sign and name):
            raise UserError(f"--set is {text!r}; give NAME=VALUE, such as lr=3e-4")
        if name in given:
            raise UserError(f"{name} is given twice; leave one of them out")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given if config is None else read_study(config) | given


def read_recordings(data: str, cutting: dict[str, Any]) -> Raw:
    from ..recordings import Cutting, read

    return read(data, Cutting.from_options(**cutting))


def read_for_model(model: Model, data: str, cutting: dict[str, Any]) -> Raw:
    """Read data with the window length and the filter of a model unless the user gives others."""
    from ..recordings import Cutting, is_continuous, read

    card = model.card
    cutting = dict(cutting)
    if is_continuous(data):
        if cutting["window"] is None and card.sfreq is not None:
            cutting["window"] = card.n_times / card.sfreq
        if cutting["filter"] is None and card.filter is not None and card.filter.get("causal"):
            cutting["filter"] = card.filter
    return read(data, Cutting.from_options(**cutting))


def import_encoder(text: str) -> dict[str, Any] | None:
    """Import the encoder factory module:function; return None for a built-in encoder."""
    from ..model.encoders import ENCODERS

    if text in ENCODERS:
        return None
    from importlib import import_module
    from os import getcwd

    module, _, name = text.partition(":")
    if not module or not name:
        raise UserError(f"the encoder is {text!r}; give {', '.join(ENCODERS)} or module:function")
    if getcwd() not in sys.path:
        sys.path.insert(0, getcwd())  # as Python does for scripts
    try:
        return {text: getattr(import_module(module), name)}
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot import the encoder {text!r} ({error}); give module:function") from None
