"""study.toml: the options of `autotransfer run` as a file, which a user writes or a run leaves behind."""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line
from ..files import read_plain
from ..options import AskedOptions
from ..recordings import absolute
from .options import EVERYTHING, RunOptions

NAME = "study.toml"


def read_study(path: Path) -> dict[str, Any]:
    """Options by name, as the file has them: plain values, with underscores or dashes in their names."""
    try:
        values = tomllib.loads(read_plain(path).decode())
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; --config takes a .toml file such as RUN/{NAME}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({one_line(error)}); write lines such as: epochs = 30") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --config") from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def study_text(options: RunOptions) -> str:
    """The same options as a file: `autotransfer run --config` repeats the run."""
    asked = {field.name for field in fields(AskedOptions)}
    unread = set() if options.task.options is None else asked - set(options.task.options)
    names = [field.name for field in fields(options) if field.name not in unread]
    values = {name: getattr(options, name) for name in names}
    listed = {"data": absolute(values.pop("source"))} | values
    listed["time"] = options.time or EVERYTHING
    listed["adaptation"] = options.adaptation or "none"  # as it was settled
    lines = [f"{name} = {_toml(value)}" for name, value in listed.items() if value is not None]
    return "\n".join([f"# autotransfer run --config {NAME} --out FOLDER", *lines, ""])


def command_of(folder: Path) -> str:
    """Return the command line that repeats the run of a folder."""
    return shlex.join(["autotransfer", "run", "--config", str(folder / NAME), "--out", "FOLDER"])


def _toml(value: object) -> str:
    """A string as JSON has it is one of TOML, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
