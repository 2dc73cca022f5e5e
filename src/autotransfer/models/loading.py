"""Models back from their folders and files, checked before anything is made of them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load
from torch import Tensor

from ..errors import UserError, one_line, shown
from ..files import read_plain
from ..model.encoders import Encoders
from .binding import check_digest, check_file, check_shapes, read_weights, split_file
from .card import DIGEST, ModelCard, card_from
from .hub import download
from .interface import LEDGERS
from .mixture import Mixture, Model
from .regression import RegressionModel
from .regression_card import REGRESSION, regression_card
from .saved_model import SavedModel
from .saving import MODEL, UNREADABLE, read_folder

MARK = "autotransfer_version"  # in every exported file, as plain text


def load_model(path: str | os.PathLike[str], encoders: Encoders | None = None) -> Model | RegressionModel:
    """The model of a run's folder, of a model's folder, or of one exported safetensors file; anything else is refused
    in one line.

    encoders: the factory of a user's own encoder, by name
    """
    path = Path(path)
    try:
        with suppress(FileNotFoundError):  # what is missing is said below
            path.lstat()
    except (OSError, ValueError) as error:  # a name that is too long, or holds a null character
        raise UserError(f"cannot read {shown(str(path))} ({getattr(error, 'strerror', None) or error})") from None
    if path.suffix == ".safetensors" or (path.exists() and not path.is_dir()):
        return _load_file(path, encoders)
    return _load_folder(path / "model" if (path / "model").is_dir() else path, encoders)


def from_pretrained(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    encoders: Encoders | None = None,
) -> Model | RegressionModel:
    """Load a model that somebody has shared.

    Parameters
    ----------
    source : folder, or name of a repository on Hugging Face's hub, USER/NAME or hf:USER/NAME
    revision : of the repository: a branch, a tag or a commit
    token : for a private repository; default: as huggingface_hub knows it
    encoders : the factory of a user's own encoder, by name

    Returns
    -------
    a model, as of `load_model`
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = download(str(source), revision=revision, token=token)
    return load_model(folder, encoders)


def model_folder(folder: Path) -> Path:
    """Where the model of a run lies, or of a folder that is a model's itself, as people share it."""
    alone = (folder / MODEL.card).is_file() and not (folder / "model").exists()
    return folder if alone else folder / "model"


def load_classifier(path: str | os.PathLike[str], encoders: Encoders | None = None) -> Model:
    """The same, for what needs classes: a model of a continuous target is refused."""
    model = load_model(path, encoders)
    if isinstance(model, RegressionModel):
        raise UserError(f"the model in {path} predicts a number, and no classes; use predict, or at.load_model")
    return model


def _load_folder(folder: Path, encoders: Encoders | None) -> Model | RegressionModel:
    try:
        return read_folder(folder, MODEL, lambda path: _load(path, encoders))
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(_no_model(folder, Path(error.filename).name)) from None
    except UNREADABLE as error:
        raise UserError(
            f"the model in {folder} cannot be read ({one_line(error)}); restore it from a copy or start a new run"
        ) from None


def _load(path: Path, encoders: Encoders | None) -> Model | RegressionModel:
    """From the path of its weights."""
    values = json.loads(read_plain(path.with_name(MODEL.card)).decode())
    model: Model | RegressionModel
    if isinstance(values, dict) and values.get("kind") == REGRESSION:
        weights = read_weights(path)
        card = regression_card({name: value for name, value in values.items() if name != DIGEST})
        model = RegressionModel.restore(card, load(weights))
    else:
        check_file(path, card_from(values))
        weights = read_plain(path)
        model = model_of(values, load(weights), encoders)
    check_digest(values, weights, card=MODEL.card, file=path.name)
    return model


def _no_model(folder: Path, missing: str) -> str:
    """Why there is none: a run that has not made it yet or has lost it, another model of a run, or no run at all."""
    run = folder.parent
    if any((run / name).exists() for name in LEDGERS):
        return (
            f"{run} has no model: a run that is at work has one when its first stage has ended (autotransfer status "
            f"{run}), an interrupted one makes it with: autotransfer resume {run}; a lost one must be restored from a "
            "copy, or made by a new run"
        )
    if folder.name == "refit" and (folder.parent / MODEL.card).exists():
        return f"the run made no refit model; leave --model refit out, or start a run with --final refit ({folder})"
    if not run.exists():
        return f"there is no folder {run}"
    return f"there is no model in {folder} ({missing} is missing)"


def _load_file(path: Path, encoders: Encoders | None) -> Model:
    try:
        return model_in(read_weights(path), encoders)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from None
    except UNREADABLE as error:
        raise UserError(
            f"{path} is not a model that export --format safetensors wrote ({one_line(error)}); "
            "give such a file, or a run"
        ) from None


def model_in(content: bytes, encoders: Encoders | None = None) -> Model:
    """Of an exported safetensors file."""
    tensors = load(content)
    metadata = json.loads(split_file(content)[0]).get("__metadata__", {})
    if MARK not in metadata:
        raise ValueError("it holds tensors but no card")
    values = from_text(metadata)
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, card_from(values))
    model = model_of(values, tensors, encoders)
    check_digest(values, content, card="its card", file="what it holds")
    return model


def from_text(metadata: dict[str, str]) -> dict[str, Any]:
    """The values of a card, each of which a file's header holds as JSON."""
    return {name: json.loads(text) for name, text in metadata.items() if name != MARK}


def model_of(values: Any, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Model:
    """From a card as JSON holds it, and tensors; whatever is wrong raises."""
    card = card_from(values)
    if isinstance(card, ModelCard):
        return SavedModel(card, tensors, encoders)
    return Mixture.restore(card, tensors, encoders)
