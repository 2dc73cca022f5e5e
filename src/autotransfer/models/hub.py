"""Models on Hugging Face's hub: a card, safetensors and a page.

Only these files are uploaded and downloaded. A downloaded file is not trusted: sizes, shapes and digests are checked,
nothing is unpickled, and no code of the repository runs.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from ..errors import UserError, shown
from ..recordings.optional import need, one_line_errors
from .saving import CARD, PAGE, WEIGHTS

HUB = "hf:"  # optional prefix of the name of a repository
FILES = [CARD, WEIGHTS, PAGE]
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
PACKAGE = "huggingface_hub"
CHECK = "check its name and your login"


def download(repository: str, *, revision: str | None = None, token: str | None = None) -> Path:
    """Download the files of a model from the hub and return their local folder."""
    name = _check_repository(repository)
    hub = need(PACKAGE, f"the model {name!r} of Hugging Face's hub", PACKAGE)
    with one_line_errors(f"cannot get {name!r} from the hub", CHECK):
        return Path(hub.snapshot_download(repo_id=name, revision=revision, token=token, allow_patterns=FILES))


def _check_repository(text: str) -> str:
    """Return the name USER/NAME of a repository; refuse any other text."""
    name = text.removeprefix(HUB)
    if REPOSITORY.fullmatch(name) is None:
        raise UserError(f"{shown(text)} is neither a folder nor the name of a repository; give a folder or USER/NAME")
    return name


def push_to_hub(model: Any, repository: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload a model and a page with its scores to Hugging Face's hub, and return the address of the upload.

    repository: USER/NAME; it is created if it does not exist. token: access token, by default the one that
    huggingface_hub has stored.
    """
    name = _check_repository(repository)
    hub = need(PACKAGE, "push_to_hub", PACKAGE)
    with tempfile.TemporaryDirectory(prefix="autotransfer-") as folder:
        model.save(folder)
        with one_line_errors(f"cannot upload to {name!r}", CHECK):
            api = hub.HfApi(token=token)
            api.create_repo(repo_id=name, private=private, exist_ok=True)
            done: Any = api.upload_folder(
                repo_id=name, folder_path=folder, commit_message="Upload a model", allow_patterns=FILES
            )
    return str(getattr(done, "commit_url", done))
