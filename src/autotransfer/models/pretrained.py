"""A model or a base that somebody has shared, opened by whichever card it has."""

from __future__ import annotations

import os
from pathlib import Path

from ..model.braindecode_models import PREFIX
from ..model.encoders import Encoders
from .base import Base, load_base
from .foundation import FoundationEncoder, open_foundation
from .hub import CONFIG, download, local_folder
from .loading import load_model
from .mixture import Model
from .regression import RegressionModel
from .saving import BASE


def from_pretrained(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    encoders: Encoders | None = None,
) -> Model | RegressionModel | Base:
    """A model or a base that somebody has shared.

    Parameters
    ----------
    source : folder, or name of a repository on Hugging Face's hub, USER/NAME or hf:USER/NAME
    revision : of the repository: a branch, a tag or a commit
    token : for a private repository; default: as huggingface_hub knows it
    encoders : the factory of a user's own encoder, by name

    Returns
    -------
    a model, as of `load_model`, or a `Base`, as of `load_base`
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = download(str(source), revision=revision, token=token)
    if (folder / BASE.card).exists():
        return load_base(folder)
    return load_model(folder, encoders)


def open_base(text: str) -> Base | FoundationEncoder:
    """What --base names: a base, or a foundation encoder, which is braindecode:MODEL,pretrained=…, or a folder or
    repository in the hub's layout."""
    if not text.startswith(PREFIX):
        place = local_folder(text)
        if os.path.exists(place / BASE.card) or not os.path.exists(place / CONFIG):
            return load_base(place)
        text = str(place)
    return open_foundation(text)
