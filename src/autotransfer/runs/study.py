"""study.toml: the options of `autotransfer run` as a file, which a user writes or a run leaves behind."""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line
from ..files import read_plain
from ..options import AskedOptions
from ..recordings import absolute
from ..recordings.targets import CLASSES
from .options import CONTINUOUS_READS, EVERYTHING, RunOptions

NAME = "study.toml"
UNWRITTEN = ("shuffle_subjects",)  # a control that no command offers


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
    unread = set() if options.target == CLASSES else asked - set(CONTINUOUS_READS)
    names = [field.name for field in fields(options) if field.name not in {*UNWRITTEN, *unread}]
    values = {name: getattr(options, name) for name in names}
    listed = {"data": absolute(values.pop("source"))} | values
    listed["time"] = options.time or EVERYTHING
    listed["adaptation"] = options.adaptation or "none"  # as it was settled
    lines = [f"{name} = {_toml(value)}" for name, value in listed.items() if value is not None]
    return "\n".join([f"# autotransfer run --config {NAME} --out FOLDER", *lines, ""])


def command_of(options: RunOptions, folder: Path) -> str:
    """Return a command line with every option that is not the default, quoted for a shell. Listed settings are too
    long for it; it then names the file in `folder`."""
    if options.lists_settings:
        return shlex.join(["autotransfer", "run", "--config", str(folder / NAME), "--out", "FOLDER"])
    parts = ["autotransfer", "run", options.source, "--out", str(folder)]
    given: dict[str, Any] = {}
    while True:  # one option may set others, as the paper's grid sets the rule
        made = asdict(RunOptions.of("recommended", source=options.source, **asdict(AskedOptions()) | given))
        unlike = {name: value for name, value in asdict(options).items() if value != made[name]}
        unlike = {name: value for name, value in unlike.items() if name not in (*UNWRITTEN, *given)}
        if not unlike:
            break
        given |= {name: "none" if value is None else value for name, value in unlike.items()}
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        parts += [flag] if value is True else [flag, str(value)]
    return shlex.join(parts)


def _toml(value: object) -> str:
    """A string as JSON has it is one of TOML, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
