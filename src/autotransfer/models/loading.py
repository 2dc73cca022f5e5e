"""Save models, and load them from folders and files after a check."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from ..errors import UserError, shown
from ..files import read_plain
from ..model.encoders import Encoders
from ..recordings.optional import one_line_errors
from .card import read_card
from .hub import download
from .model import Model
from .saving import CARD, check_digest, check_shapes, read_folder, read_weights, split_file

DATABASE = "run.sqlite"  # file in the folder of a run
MARK = "autotransfer_version"  # text in every exported file, as a key of its metadata
SOURCES = "the folder of a run or a model, or an exported safetensors file"


def save_model(model: object, path: str | os.PathLike[str]) -> None:
    """Save a model to a folder, from which `load_model` loads it; a model in the folder is replaced.

    Parameters
    ----------
    model : Model or fitted estimator
        The result of `load_model` or `Outcome.model`, or a fitted classifier or regressor.
    path : str or path
        Folder to write.

    Examples
    --------
    >>> at.save_model(classifier, "model")
    """
    model = getattr(model, "model_", model)
    if not isinstance(model, Model):
        raise UserError(f"save_model needs a model or a fitted estimator, not {shown(model)}")
    folder = _check_path(path, "a folder")
    with one_line_errors(f"cannot write to {shown(str(path))}", "choose another folder"):
        if (folder / DATABASE).exists():
            raise UserError(f"{path} is the folder of a run, which has a model of its own; choose another folder")
        model.save(folder)


def load_model(path: str | os.PathLike[str], encoders: Encoders | None = None) -> Model:
    """Load a model from the folder of a run or a model, or from an exported safetensors file.

    Parameters
    ----------
    path : str or path
        The folder or file.
    encoders : dict of callable, optional
        Factory of each user-defined encoder by name, as in `Setting(encoder=name)`.

    Returns
    -------
    Model
        The model, which predicts raw windows.

    Examples
    --------
    >>> at.load_model("run").predict(X)  # raw windows (N, channels, times)
    """
    path = _check_path(path, SOURCES)

    def read(weights: Path) -> Model:
        values = json.loads(read_plain(weights.with_name(CARD)).decode())
        return _restore(values, read_weights(weights), encoders)

    with one_line_errors(f"the model in {shown(str(path))} cannot be read", "restore it from a copy, or make it again"):
        try:
            if path.suffix == ".safetensors" or (path.exists() and not path.is_dir()):
                return parse_file(read_weights(path), encoders)
            return read_folder(path / "model" if (path / "model").is_dir() else path, read)
        except FileNotFoundError as error:
            raise UserError(_explain_missing(path, Path(str(error.filename)))) from None


def from_pretrained(
    source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None,
    encoders: Encoders | None = None,
) -> Model:  # fmt: skip
    """Load a model from a folder or from Hugging Face's hub.

    Parameters
    ----------
    source : str or path
        A folder, or the name of a repository, USER/NAME or hf:USER/NAME.
    revision : str, optional
        Branch, tag or commit of the repository.
    token : str, optional
        Access token of a private repository; by default the one that huggingface_hub has stored.
    encoders : dict of callable, optional
        As in `load_model`.

    Returns
    -------
    Model
        The model, which predicts raw windows.
    """
    folder = _check_path(source, "a folder, or USER/NAME on Hugging Face's hub")
    if not folder.is_dir():
        folder = download(str(source), revision=revision, token=token)
    return load_model(folder, encoders)


def _check_path(path: object, choices: str) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"the path is {shown(path)}; give {choices}")
    return Path(path)


def load_classifier(path: str | os.PathLike[str], encoders: Encoders | None = None) -> Model:
    """Load a classification model; refuse a regression model."""
    model = load_model(path, encoders)
    if model.card.task.is_numeric:
        raise UserError(f"the model in {path} is a regression model; use autotransfer predict, or at.load_model")
    return model


def _explain_missing(path: Path, missing: Path) -> str:
    """Return why there is no model: the folder does not exist, is a run without a model, or is something else."""
    home = missing.parent
    run = home.parent if home.name == "model" else home
    if not run.exists():
        return f"there is no folder or file {path}; give {SOURCES}"
    if (run / DATABASE).exists():
        return (
            f"the run {run} has no model, because its first stage has not ended or the model was removed; wait, "
            f"continue with autotransfer resume {run}, or restore the model from a copy"
        )
    return f"there is no model in {path} ({missing.name} is missing); give {SOURCES}"


def parse_file(content: bytes, encoders: Encoders | None = None) -> Model:
    """Read the content of an exported safetensors file."""
    metadata = json.loads(split_file(content)[0]).get("__metadata__", {})
    if MARK not in metadata:
        raise ValueError("it was not written by export --format safetensors")
    values = {name: json.loads(text) for name, text in metadata.items() if name != MARK}
    model = _restore(values, content, encoders)
    if model.card.task.is_numeric:
        raise ValueError("regression models cannot be exported")
    return model


def _restore(values: Any, content: bytes, encoders: Encoders | None) -> Model:
    """Restore a model from a card's JSON values and the content of a safetensors file; raise if either is invalid."""
    card, tensors = read_card(values), load(content)
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, card)
    model = Model.restore(card, tensors, encoders)
    check_digest(values, content)
    window = torch.arange(len(card.signal.channels) * card.n_times).sin().view(1, -1, card.n_times)
    if encoders is None and not model.ensemble.predict(window).isfinite().all():
        raise ValueError("its predictions are not finite")
    return model
