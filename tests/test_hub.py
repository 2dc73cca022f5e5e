"""Models are shared on the hub and loaded unchanged; failures are one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import autotransfer as at


class FakeHub:
    """What we use of huggingface_hub, with a folder in place of the hub."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.private: list[bool] = []

    def HfApi(self, token: str | None) -> FakeHub:  # the hub's name
        return self

    def create_repo(self, repo_id: str, private: bool, exist_ok: bool) -> None:
        self.private.append(private)
        (self.home / repo_id).mkdir(parents=True, exist_ok=True)

    def upload_folder(self, repo_id: str, folder_path: str, commit_message: str, allow_patterns: list[str]) -> str:
        for path in Path(folder_path).iterdir():
            if path.name in allow_patterns:
                (self.home / repo_id / path.name).write_bytes(path.read_bytes())
        return f"https://hub/{repo_id}"

    def snapshot_download(
        self, repo_id: str, revision: str | None, token: str | None, allow_patterns: list[str]
    ) -> str:
        """In the layout of the hub's cache: links to files that are called by their digests."""
        if not (self.home / repo_id).exists():
            raise RuntimeError("404")
        blobs, snapshot = self.home / "blobs", self.home / "snapshots" / repo_id
        blobs.mkdir(exist_ok=True)
        snapshot.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(allow_patterns):
            if (self.home / repo_id / name).exists():
                blob = blobs / f"{repo_id.replace('/', '-')}-{number}"
                blob.write_bytes((self.home / repo_id / name).read_bytes())
                (snapshot / name).unlink(missing_ok=True)
                (snapshot / name).symlink_to(blob)
        return str(snapshot)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    made = FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)  # type: ignore[arg-type]
    return made


def test_a_model_goes_to_the_hub_and_back(hub: FakeHub, tmp_path: Path) -> None:
    target = at.synthetic(n_subjects=3, seed=5)
    setting = at.Setting(encoder="linear", standardize="none", represent="features")
    (outcome,) = at.train(target, [at.Job(setting, at.leave_one_subject_out(target)[0])], device="cpu", progress=False)
    model = outcome.model()
    assert model.push_to_hub("me/model") == "https://hub/me/model"
    assert hub.private == [True], "nothing is public by default"
    assert {path.name for path in (hub.home / "me/model").iterdir()} == {"model.json", "model.safetensors", "README.md"}
    at.save_model(model, tmp_path / "here")
    for source in ("me/model", "hf:me/model", tmp_path / "here"):
        found = at.from_pretrained(source)
        assert np.array_equal(found.predict_proba(target.X[:5]), model.predict_proba(target.X[:5]))  # type: ignore[union-attr]
    weights = hub.home / "me/model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    with pytest.raises(at.UserError, match="its weights changed"):
        at.from_pretrained("me/model")


def test_missing_repositories_are_one_line(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(at.UserError, match="neither a folder"):
        at.from_pretrained("no such folder")
    with pytest.raises(at.UserError, match="404"):
        at.from_pretrained("me/absent")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # type: ignore[arg-type]
    with pytest.raises(at.UserError, match=r"pip install huggingface_hub"):
        at.from_pretrained("me/model")
