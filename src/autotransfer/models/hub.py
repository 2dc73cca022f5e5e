"""Models that are shared: folders of a card, safetensors and a page, here or on Hugging Face's hub.

Nothing but these files goes up or comes down, and what comes down is opened like any stranger's file: sizes, shapes and
digests are checked, nothing is unpickled, no code of the repository is run.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line, shown
from ..recordings.optional import need
from .saving import CARD, PAGE, WEIGHTS

HUB = "hf:"  # before the name of a repository
FILES = [CARD, WEIGHTS, PAGE]
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
PACKAGE = "huggingface_hub"


def download(repository: str, *, revision: str | None = None, token: str | None = None) -> Path:
    """Download our files of a repository on the hub, and return their folder on this machine."""
    name = _repository(repository)
    hub = need(PACKAGE, f"the model {name!r} of Hugging Face's hub", PACKAGE)
    try:
        return Path(hub.snapshot_download(repo_id=name, revision=revision, token=token, allow_patterns=FILES))
    except Exception as error:  # no connection, no such repository, no permission: the hub has a class for each
        raise UserError(
            f"cannot get {name!r} from the hub ({one_line(error)}); check its name and your login"
        ) from None


def _repository(text: str) -> str:
    """Return USER/NAME; raise if the text is none."""
    name = text.removeprefix(HUB)
    if REPOSITORY.fullmatch(name) is None:
        raise UserError(f"there is no folder {shown(text)}, and it is no repository; give a folder, or USER/NAME")
    return name


def push_to_hub(model: Any, repository: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload a model, its card and a page with its score on people left out; return the address.

    private: of a repository that is made for it; one that exists stays as it is
    """
    name = _repository(repository)
    hub = need(PACKAGE, "push_to_hub", PACKAGE)
    with tempfile.TemporaryDirectory(prefix="autotransfer-") as folder:
        model.save(folder)
        try:
            api = hub.HfApi(token=token)
            api.create_repo(repo_id=name, private=private, exist_ok=True)
            done: Any = api.upload_folder(
                repo_id=name, folder_path=folder, commit_message="Upload a model", allow_patterns=FILES
            )
        except Exception as error:  # as above
            raise UserError(f"cannot upload to {name!r} ({one_line(error)}); check its name and your login") from None
    return str(getattr(done, "commit_url", done))
