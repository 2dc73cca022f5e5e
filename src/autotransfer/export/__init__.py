"""Export of a model to one file, with a comparison of the predictions of file and model."""

from __future__ import annotations

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
from ..runs.lock import refuse_links
from .formats import FORMATS, convert_errors, need_onnx
from .verification import BATCHES, largest_difference, tolerance


@dataclass(frozen=True)
class ExportedFile:
    """Exported file, and its largest difference from the model."""

    path: Path
    format: str
    members: int  # number of networks and linear models
    size: int  # in bytes
    difference: float | None  # largest difference from predict_proba; None if the runtime is not installed
    candidates: int

    def lines(self) -> list[str]:
        """Return a description of the file as lines of text."""
        model = "one model" if self.members == 1 else f"an ensemble of {self.members}"
        if self.candidates > 1:
            model = f"{model} models of {self.candidates} candidates"
        lines = [f"exported: {self.path} ({self.size / 1e3:,.0f} kB, {self.format}, {model})"]
        runtime = FORMATS[self.format].runtime
        if self.difference is None:
            return [*lines, f"not checked: {runtime} is not installed (pip install {runtime})"]
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
) -> ExportedFile:
    """Export a model to one file; `source` is the model, or the folder of a run or of a saved model.

    The file is compared with `predict_proba` on 1,000 random windows. Models that align or adapt online can only be
    exported as safetensors, because the graph of the other formats cannot store statistics of a subject.

    Parameters
    ----------
    format : str
        "onnx", "torch" (a torch.export program, .pt2) or "safetensors".
    out : str or path, optional
        File to write; by default a file `model`, with the format's ending, in the folder of the run.
    encoders : dict of callable, optional
        Factory of each user-defined encoder by name, as in `load_model`.
    tell : callable, optional
        Function that is called with a line of text before each slow step.

    Returns
    -------
    ExportedFile
        Path, format and size of the file, and its largest difference from `predict_proba`.

    Examples
    --------
    >>> at.export_model("run", "onnx")
    """
    print_step = (lambda _: None) if tell is None else tell
    check_choice("format", format, FORMATS)
    writer = FORMATS[format]
    model, target = _open_source(source, out, writer.suffix, encoders)
    if format != "safetensors":
        model.graph()  # raises UserError if the model cannot be a graph
    check_target(target, format)
    print_step(f"writing the {format} file")
    content = writer.write(model)
    difference = None
    if format != "onnx" or find_spec(writer.runtime) is not None:
        print_step(f"checking the file on {sum(BATCHES):,} windows against predict_proba")
        difference = _check_content(model, content, format, encoders)
    try:
        write_atomically(target, content)
    except OSError as error:
        raise _write_error(target, error) from None
    return ExportedFile(target, format, model.card.members, len(content), difference, len(model.candidates))


def _open_source(
    source: Model | str | Path, out: str | Path | None, suffix: str, encoders: Encoders | None
) -> tuple[Model, Path]:
    """Return the model and the file to write."""
    if isinstance(source, Model):
        if out is None:
            raise UserError("out is None, and a model in memory has no folder; give the file to write as out=")
        return source, Path(out)
    run = Path(source)
    if run.is_dir():
        refuse_links(run)
    return load_classifier(run, encoders), run / f"model{suffix}" if out is None else Path(out)


def _check_content(model: Model, content: bytes, format: str, encoders: Encoders | None) -> float:
    """Return the largest difference between the predictions of file and model; raise if it exceeds the tolerance."""
    other_formats = " or ".join(name for name in FORMATS if name != format)
    with convert_errors(model, f"{FORMATS[format].runtime} cannot run the {format} file", other_formats):
        difference = largest_difference(model, FORMATS[format].open(content, encoders))
    if not difference <= tolerance(model):
        raise UserError(
            f"the {format} file differs from predict_proba by {difference:.1e}, more than {tolerance(model):g}; the "
            f"file was not written; use the format {other_formats}"
        )
    return difference


def check_target(target: Path, format: str) -> None:
    """Raise UserError if the file cannot be written; only an earlier export may be replaced."""
    other_suffixes = {other.suffix: name for name, other in FORMATS.items() if name != format}
    if target.suffix in other_suffixes:
        raise UserError(
            f"{target} has the ending of the format {other_suffixes[target.suffix]}, not of {format}; "
            f"name it {target.with_suffix(FORMATS[format].suffix).name}"
        )
    try:
        if target.is_dir():
            raise UserError(f"{target} is a folder; give the name of a file in it")
        if not target.parent.is_dir():
            raise UserError(f"there is no folder {target.parent}; make it first, or choose another file")
        if not os.access(target.parent, os.W_OK):
            raise UserError(f"cannot write to {target.parent}; choose another file")
        if target.exists() and not (target.is_file() and MARK.encode() in target.read_bytes()):
            raise UserError(f"{target} exists and is not an earlier export; move it away, or choose another file")
    except OSError as error:
        raise _write_error(target, error) from None
    if format == "onnx":
        need_onnx()


def _write_error(target: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {target} ({error.strerror or error}); choose another file")
