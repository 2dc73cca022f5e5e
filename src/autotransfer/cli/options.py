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
        help="A .npz, .fif, .edf, .bdf, .gdf, .xdf, .csv or .hea file, a folder, or a data set's name.",
    ),
]
Folder = Annotated[Path, Argument(metavar="RUN", help="Folder of a run.")]
EncoderFactory = Annotated[
    str, Option("--encoder", show_default="as in the run", help="Python function MODULE:NAME that builds the encoder.")
]
AtLeast = Annotated[
    float | None, Option("--at-least", help="Required score; the result lists subjects with lower scores.")
]
MovedData = Annotated[
    str | None, Option("--data", metavar="FILE", help="New path of the recordings if they were moved.")
]
ToTensorBoard = Annotated[
    Path | None, Option("--tensorboard", metavar="DIR", help="Folder for TensorBoard event files.")
]
Text = str | None  # None: the option was not given
Number = float | None


def _cutting_option(help: str) -> Any:
    return Option(help=help, rich_help_panel="Continuous recordings")


# Options for CSV files, which docs/reference/files.md describes.
Sep = Annotated[Text, Option(help="Separator of columns: , ; or tab.", hidden=True)]
Decimal = Annotated[Text, Option(help="Decimal mark: . or ,", hidden=True)]
TimeColumn = Annotated[Text, Option(help="Name of the column with times.", hidden=True)]
CUTTING_OPTIONS: dict[str, Any] = {  # reading and cutting of continuous recordings
    "window": Annotated[Number, _cutting_option("Length of a window in seconds.")],
    "hop": Annotated[
        Number, _cutting_option("Seconds between starts of windows; default: no overlap, or one window per event.")
    ],
    "offset": Annotated[
        Number, _cutting_option("Seconds from an event, or from the start of a recording, to the first window.")
    ],
    "events": Annotated[
        Text, _cutting_option("Events and their classes, such as T1=left,T2=right,T0= (event without a class).")
    ],
    "pattern": Annotated[Text, _cutting_option("Pattern of file names, such as '{subject}/{session}_{class}_*.csv'.")],
    "sfreq": Annotated[Number, _cutting_option("Sampling rate in Hz, for files that do not contain it (.csv).")],
    "sep": Sep,
    "decimal": Decimal,
    "time_column": TimeColumn,
    "filter": Annotated[
        Text,
        _cutting_option("Filter to apply, in Hz: 5-45,notch:50. For data already cut: the filter that was applied."),
    ],
}


def add_cutting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add CUTTING_OPTIONS to a command, which receives them as the dict `cutting`."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def wrapper(**options: Any) -> None:
        cutting = {name: options.pop(name) for name in CUTTING_OPTIONS}
        command(**options, cutting=cutting)

    parameters = [parameter for name, parameter in signature.parameters.items() if name != "cutting"]
    for name, annotation in CUTTING_OPTIONS.items():
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def merge_options(command_line: dict[str, Any], constants: Sequence[str], config: Path | None) -> dict[str, Any]:
    """Return options and constants of the user by name. The command line overrides the file.

    command_line: options by name; None and False: the option was not given
    constants: values NAME=VALUE of --set
    config: file of --config
    """
    from ..runs.study import read_study

    options = {name: value for name, value in command_line.items() if value is not None and value is not False}
    for text in constants:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (sign and name):
            raise UserError(f"--set is {text!r}; give NAME=VALUE, such as lr=3e-4")
        if name in options:
            raise UserError(f"{name} is set twice; remove one of the two values")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options if config is None else read_study(config) | options


def read_recordings(data: str, cutting: dict[str, Any]) -> Raw:
    from ..recordings import Cutting, read

    return read(data, Cutting(**cutting))


def read_for_model(model: Model, data: str, cutting: dict[str, Any]) -> Raw:
    """Read data, by default with the window length and the filter of a model."""
    from ..recordings import Cutting, is_continuous, read

    card = model.card
    cutting = dict(cutting)
    if is_continuous(data):
        if cutting["window"] is None and card.signal.sfreq is not None:
            cutting["window"] = card.n_times / card.signal.sfreq
        if cutting["filter"] is None and card.signal.filter and card.signal.filter.is_causal:
            cutting["filter"] = card.signal.filter
    return read(data, Cutting(**cutting), card.signal.sfreq)


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
