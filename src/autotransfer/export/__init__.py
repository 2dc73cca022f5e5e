"""A finished run's model as one file that runs without AutoTransfer, checked against the model before it is written."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..errors import UserError, check_choice
from ..files import write_atomically
from ..model.encoders import Encoders
from ..models.loading import MARK, load_classifier
from ..models.model import Model
from ..recordings.optional import pip_install
from ..runs.lock import refuse_links
from .formats import FORMATS, attempt, need_onnx
from .proof import BATCHES, largest_difference, tolerance


@dataclass(frozen=True)
class Exported:
    """An exported file and its comparison with the model."""

    path: Path
    format: str
    members: int
    size: int  # bytes
    difference: float | None  # largest, from predict_proba; None: the runtime is not installed
    candidates: int

    def lines(self) -> list[str]:
        """Return a description of the file as lines of text."""
        model = "one model" if self.members == 1 else f"an ensemble of {self.members}"
        if self.candidates > 1:
            model = f"{model} models of {self.candidates} candidates"
        lines = [f"exported: {self.path} ({self.size / 1e3:,.0f} kB, {self.format}, {model})"]
        runtime = FORMATS[self.format].runtime
        if self.difference is None:
            return [*lines, f"not checked: {runtime} is not installed ({pip_install(runtime)})"]
        return [
            *lines,
            f"checked: on {sum(BATCHES):,} windows it differs from predict_proba by {self.difference:.1e} at most",
        ]


def export_model(
    source: Model | str | Path,
    format: str = "onnx",
    out: str | Path | None = None,
    *,
    encoders: Encoders | None = None,
    tell: Callable[[str], None] | None = None,
) -> Exported:
    """Write the model of a finished run, or one in memory, as one file.

    A model that aligns, or standardizes "online", or has such a part, is written as safetensors only: `load_model`
    adapts to each person.
    format: onnx, torch (a torch.export program, .pt2) or safetensors
    out: the file; by default `model` with the format's ending in the run's folder
    encoders: the factory of a user's own encoder, by name
    tell: receives a line before each step that may take a while
    """
    say = (lambda _: None) if tell is None else tell
    check_choice("format", format, FORMATS)
    form = FORMATS[format]
    if isinstance(source, Model):
        if out is None:
            raise UserError("a model in memory has no folder of its own; say where to write it with out=")
        target, saved = Path(out), source
    else:
        run = Path(source)
        if run.is_dir():
            refuse_links(run)
        target = run / f"model{form.suffix}" if out is None else Path(out)
        saved = load_classifier(run, encoders)
    if format != "safetensors":
        saved.graph()  # refused before any other work
    check_target(target, format)
    say(f"writing the {format} file")
    content = form.write(saved)
    difference = None
    if format != "onnx" or find_spec(form.runtime) is not None:
        say(f"checking it on {sum(BATCHES):,} windows against predict_proba")
        others = " or ".join(name for name in FORMATS if name != format)
        with attempt(saved, f"{form.runtime} cannot run the {format} file", others):
            predict = form.open(content, encoders)
            difference = largest_difference(saved, predict)
        if not difference <= tolerance(saved):
            raise UserError(
                f"the {format} file differs from predict_proba by {difference:.1e}, more than {tolerance(saved):g}; "
                f"{target} was not written"
            )
    try:
        write_atomically(target, content)
    except OSError as error:
        raise _unwritable(target, error) from None
    return Exported(target, format, saved.card.members, len(content), difference, len(saved.parts))


def check_target(target: Path, format: str) -> None:
    """Raise before any work is done if the file cannot be written. Only an earlier export is replaced."""
    others = {form.suffix: name for name, form in FORMATS.items() if name != format}
    if target.suffix in others:
        raise UserError(
            f"{target} is named like a file of format {others[target.suffix]}, not {format}; "
            f"name it {target.with_suffix(FORMATS[format].suffix).name}"
        )
    try:
        if target.is_dir():
            raise UserError(f"{target} is a folder; give the name of a file in it")
        if not target.parent.is_dir():
            raise UserError(f"there is no folder {target.parent}; make it first, or choose another file")
        if not os.access(target.parent, os.W_OK):
            raise UserError(f"cannot write to {target.parent}; choose another file")
        if target.exists() and not _exported_before(target):
            raise UserError(f"{target} exists and is not an earlier export; move it away, or choose another file")
    except OSError as error:
        raise _unwritable(target, error) from None
    if format == "onnx":
        need_onnx()


def _unwritable(target: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {target} ({error.strerror or error}); choose another file")


def _exported_before(path: Path) -> bool:
    """Tell whether a plain file is an export."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(MARK.encode()) >= 0
