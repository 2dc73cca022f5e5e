"""Reading and writing of study.toml, the options of a run. Runs store this file, and users can write it."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line
from ..files import read_plain
from ..recordings import make_absolute
from .options import RunOptions

STUDY_FILE = "study.toml"


def read_study(path: Path) -> dict[str, Any]:
    """Return options by name for `build_options`; names in the file may have dashes."""
    try:
        values = tomllib.loads(read_plain(path).decode())
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; --config takes a .toml file such as RUN/{STUDY_FILE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({one_line(error)}); write lines such as: max_epochs = 30") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --config") from None
    names = {name: name.replace("-", "_") for name in values} | {"data": "source"}
    return {names[name]: value for name, value in values.items()}


def study_text(options: RunOptions) -> str:
    """Return options as the text of a file that `autotransfer run --config` reads."""
    values = options.to_dict()
    items = ({"data": make_absolute(values.pop("source"))} | values).items()
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in items if value is not None]
    text = "\n".join([f"# autotransfer run --config {STUDY_FILE} --out FOLDER", *lines, ""])
    return text.replace("\x7f", "\\u007f")  # JSON strings may contain DEL, TOML strings may not


def repeat_command(folder: Path) -> str:
    """Return the command line that repeats the run of a folder."""
    return shlex.join(["autotransfer", "run", "--config", str(folder / STUDY_FILE), "--out", "FOLDER"])
