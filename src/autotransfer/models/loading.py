"""Models written to folders, and read from folders and files, which are checked before anything is made of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import load

from ..errors import UserError, one_line, shown
from ..files import read_plain
from ..model.encoders import Encoders
from .binding import check_digest, check_shapes, read_weights, split_file
from .card import card_from
from .hub import download
from .model import Model
from .saving import CARD, UNREADABLE, read_folder

DATABASE = "run.sqlite"  # of a run
MARK = "autotransfer_version"  # in every exported file, as plain text


def save_model(model: object, path: str | os.PathLike[str]) -> None:
    """Write a model to a folder, from which `load_model` reads it.

    model: what `load_model` or `Outcome.model()` gave, or a fitted estimator
    path: the folder; a model that is there already is replaced
    """
    model = getattr(model, "model_", model)
    if not isinstance(model, Model):
        raise UserError(f"save_model needs a model or a fitted estimator, not {shown(model)}")
    try:
        if (Path(path) / DATABASE).exists():
            raise UserError(f"{path} is the folder of a run, which has a model of its own; choose another folder")
        model.save(path)
    except UserError:
        raise
    except (OSError, ValueError) as error:  # ValueError: the name holds a null character
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write to {shown(str(path))} ({reason}); choose another folder") from None


def load_model(path: str | os.PathLike[str], encoders: Encoders | None = None) -> Model:
    """Load the model of a run's folder, of a model's folder, or of one exported safetensors file; anything else is
    refused in one line.

    encoders: the factory of a user's own encoder, by name
    """
    path = Path(path)
    try:
        if path.suffix == ".safetensors" or (path.exists() and not path.is_dir()):
            return model_in(read_weights(path), encoders)
        folder = path / "model" if (path / "model").is_dir() else path

        def read(weights: Path) -> Model:
            values = json.loads(read_plain(weights.with_name(CARD)).decode())
            return _model(values, read_weights(weights), encoders)

        return read_folder(folder, read)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(_no_model(path, Path(str(error.filename)))) from None
    except UNREADABLE as error:
        raise UserError(
            f"the model in {shown(str(path))} cannot be read ({one_line(error)}); restore it from a copy, or make it "
            "again"
        ) from None


def from_pretrained(
    source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None,
    encoders: Encoders | None = None,
) -> Model:  # fmt: skip
    """Load a model that somebody has shared, as `load_model` does.

    source: a folder, or the name of a repository on Hugging Face's hub, USER/NAME or hf:USER/NAME
    revision: of the repository: a branch, a tag or a commit
    token: for a private repository; by default as huggingface_hub knows it
    encoders: the factory of a user's own encoder, by name
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = download(str(source), revision=revision, token=token)
    return load_model(folder, encoders)


def load_classifier(path: str | os.PathLike[str], encoders: Encoders | None = None) -> Model:
    """Load a model of classes; a model of a continuous target is refused."""
    model = load_model(path, encoders)
    if model.card.task.is_numeric:
        raise UserError(f"the model in {path} predicts a number, and no classes; use predict, or at.load_model")
    return model


def _no_model(asked: Path, missing: Path) -> str:
    """Say why there is no model: a run has not made it yet or has lost it, or it is no run at all."""
    home = missing.parent
    run = home.parent if home.name == "model" else home
    if not run.exists():
        return f"there is no folder or file {asked}"
    if (run / DATABASE).exists():
        return (
            f"{run} has no model: a run that is at work has one when its first stage has ended (autotransfer status "
            f"{run}), an interrupted one makes it with: autotransfer resume {run}; a lost one must be restored from a "
            "copy, or made by a new run"
        )
    return f"there is no model in {asked} ({missing.name} is missing)"


def model_in(content: bytes, encoders: Encoders | None = None) -> Model:
    """Read the content of an exported safetensors file."""
    metadata = json.loads(split_file(content)[0]).get("__metadata__", {})
    if MARK not in metadata:
        raise ValueError("it is no file that export --format safetensors wrote")
    model = _model(from_text(metadata), content, encoders)
    if model.card.task.is_numeric:
        raise ValueError("it predicts a number, and such models are not exported")
    return model


def from_text(metadata: dict[str, str]) -> dict[str, Any]:
    """Read the values of a card, each of which a file's header holds as JSON."""
    return {name: json.loads(text) for name, text in metadata.items() if name != MARK}


def _model(values: Any, content: bytes, encoders: Encoders | None) -> Model:
    """Make the model of a card as JSON holds it, and of the content of a safetensors file; whatever is wrong raises."""
    card, tensors = card_from(values), load(content)
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, card)
    model = Model.restore(card, tensors, encoders)
    check_digest(values, content)
    return model
