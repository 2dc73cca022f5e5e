"""Foundation encoders: pretrained weights in the hub's layout, frozen, as candidates. braindecode's place is taken by a
package that a test writes, with its habits; real weights are not tried here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.models.base import bound_base
from autotransfer.models.foundation import FoundationEncoder, open_foundation
from autotransfer.preprocessing.represent import foundation
from autotransfer.recordings import save_npz
from autotransfer.runs.options import RunOptions
from autotransfer.search.kinds import closed_forms

MODELS = '''
import torch
from torch import nn

class Wave(nn.Module):
    """As braindecode writes them: sizes by keyword, features as a dictionary, a head with a name of its own."""

    def __init__(self, n_outputs=None, n_chans=None, chs_info=None, n_times=None, input_window_seconds=None, sfreq=None,
                 width=5, activation=nn.ELU):
        super().__init__()
        self.n_times = n_times or round(input_window_seconds * sfreq)
        self.first = nn.Conv1d(n_chans or len(chs_info), width, 9, padding=4)
        self.norm, self.act = nn.BatchNorm1d(width), activation()
        self.register_buffer("order", torch.arange(width))
        self.final_layer = nn.Linear(width, n_outputs)

    def forward(self, x, return_features=False):
        assert x.shape[-1] == self.n_times
        tokens = self.act(self.norm(self.first(x))).unfold(-1, 8, 8).square().mean(-1).transpose(1, 2)
        if return_features:
            return {"features": tokens[..., self.order]}
        return self.final_layer(tokens.mean(1))

class Plain(Wave):
    """Of an earlier version: nothing but what goes into the final layer."""

    def forward(self, x):
        return self.final_layer(Wave.forward(self, x, return_features=True)["features"].mean(1))

class Odd(Wave):
    def forward(self, x, return_features=False):
        return [x]
'''
OPTIONS = {
    "n_outputs": 3, "n_times": 64, "sfreq": 64.0, "width": 6, "activation": "torch.nn.modules.activation.Tanh",
    "braindecode_version": "1.4.0",
}  # fmt: skip


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package, imported."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "braindecode"]:
            monkeypatch.delitem(sys.modules, name)

    home = tmp_path / "packages" / "braindecode"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "models.py").write_text(MODELS)
    forget()
    monkeypatch.syspath_prepend(str(home.parent))
    import braindecode.models as found

    yield found
    forget()


def channels(names: Any) -> list[dict[str, str]]:
    return [{"ch_name": name} for name in names]


def write(folder: Path, module: nn.Module, model: str = "Wave", **changes: Any) -> Path:
    """A repository as the hub has it."""
    folder.mkdir(parents=True)
    options = OPTIONS | {"chs_info": channels(target().channels)} | changes
    (folder / "config.json").write_text(json.dumps(options))
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, folder / "model.safetensors")
    (folder / "README.md").write_text(f"---\ntags:\n- braindecode\n- {model}\n---\n\nShallow\n")
    return folder


def target(seed: int = 5) -> at.Recordings:
    return at.synthetic(n_subjects=4, seed=seed)


def made(models: Any, model: str = "Wave", **changes: Any) -> nn.Module:
    torch.manual_seed(3)
    kept = {name: value for name, value in OPTIONS.items() if name != "braindecode_version"}
    module: nn.Module = getattr(models, model)(
        **kept | {"activation": nn.Tanh, "chs_info": channels(range(8))} | changes
    )
    module.norm.running_mean += 0.1  # type: ignore[operator]
    return module.eval()


@pytest.fixture
def folder(models: Any, tmp_path: Path) -> Path:
    return write(tmp_path / "wave", made(models))


def numbers(name: str, recordings: at.Recordings, n: int = 6) -> torch.Tensor:
    """What `represent` gives for the first windows: (n, features + 1)."""
    setting = at.Setting(encoder="linear", standardise="none", represent=name)
    fitted = setting.preprocessing.fit(recordings.X, recordings.subject, [np.arange(9)])
    given: torch.Tensor = fitted(recordings.X[None, :n], recordings.subject[None, :n])
    return given[0, :, 0]


def pieces_of(recordings: at.Recordings, n: int = 6) -> torch.Tensor:
    """Windows as the encoder should see them, by SciPy: at 64 Hz, in halves of 64 samples (pieces, n, C, 64)."""
    from scipy.signal import resample_poly

    slow = resample_poly(recordings.X[:n].numpy(), 1, 2, axis=-1, padtype="line")
    times = slow.shape[-1]
    assert recordings.sfreq == 128
    starts = [0] if times <= 64 else np.linspace(0, times - 64, -(-times // 64)).round().astype(int)
    slow = np.concatenate([slow] * -(-64 // times), -1) if times < 64 else slow
    return torch.tensor(np.stack([slow[..., at : at + 64] for at in starts]), dtype=torch.float32)


@pytest.mark.parametrize("model", ["Wave", "Plain"])
def test_features_are_those_of_the_model(models: Any, tmp_path: Path, model: str) -> None:
    module, own = made(models, model), target()
    names = open_foundation(str(write(tmp_path / "hub", module, model))).bind(own)
    found, expected = numbers(names["foundation"], own), []
    for x in pieces_of(own):
        centred = x - x.mean(-1, keepdim=True)
        level = centred.flatten(1).square().mean(1).sqrt()
        with torch.no_grad():
            tokens = models.Wave.forward(module, centred / level[:, None, None], return_features=True)["features"]
        expected.append(torch.cat([tokens.mean(1), level.log()[:, None]], 1))
    assert torch.allclose(found, torch.stack(expected).mean(0), atol=1e-4)
    random = numbers(names["random_foundation"], own)
    assert random.shape == found.shape
    assert not torch.allclose(random[:, :-1], found[:, :-1], atol=0.1)
    assert torch.allclose(random[:, -1], found[:, -1]), "how strong a window is needs no training"


def test_channels_are_found_by_name(models: Any, tmp_path: Path) -> None:
    plain = target()
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    other = at.Recordings(
        X=plain.X[:, order], y=plain.y, subject=plain.subject, sfreq=plain.sfreq,
        channels=[plain.channels[c] for c in order],
    )  # fmt: skip
    opened = open_foundation(str(write(tmp_path / "hub", made(models))))
    alike = [numbers(opened.bind(one)["foundation"], one) for one in (plain, other)]
    assert torch.allclose(*alike, atol=1e-5)
    fewer = at.Recordings(X=plain.X[:, :7], y=plain.y, subject=plain.subject, sfreq=128.0, channels=plain.channels[:7])
    with pytest.warns(UserWarning, match="0 are interpolated and 1 are 0"):
        opened.bind(fewer)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"chs_info": channels("abcdefgh")}, "no channel of the foundation encoder"),
        ({"chs_info": None, "n_chans": 8}, None),
        ({"chs_info": "abcdefgh"}, "list of channels"),
        ({"n_times": None}, "cannot be made"),
        ({"sfreq": None}, "which rate and window"),
        ({"sfreq": -1}, "sfreq, n_times"),
        ({"width": 7}, "do not fit"),
        ({"width": 10**9}, "at most"),
        ({"activation": "os.system"}, "of torch.nn"),
    ],
)
def test_what_config_says_is_checked(models: Any, tmp_path: Path, changes: dict[str, Any], told: str | None) -> None:
    folder = write(tmp_path / "hub", made(models), **changes)
    if told is None:
        with pytest.warns(UserWarning, match="in their order"):
            open_foundation(str(folder)).bind(target())
        return
    with pytest.raises(at.UserError, match=told):
        open_foundation(str(folder)).bind(target())


def lose(folder: Path, name: str) -> None:
    left = {key: tensor for key, tensor in load_file(folder / "model.safetensors").items() if key != name}
    save_file(left, folder / "model.safetensors")


def pickle_alone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (pickle_alone, "pytorch_model.bin, which could run code"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"has no model\.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04nothing"), "cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[]"), "no JSON object"),
        (lambda folder: (folder / "README.md").unlink(), "names no model of braindecode"),
        (lambda folder: (folder / "README.md").write_text("---\ntags: [Wave, Odd]\n---"), "names Wave, Odd"),
        (lambda folder: (folder / "README.md").write_text("---\ntags: [Odd]\n---"), "its features are list"),
        (lambda folder: lose(folder, "first.weight"), "lack 1 tensors"),
    ],
)
def test_a_folder_that_is_no_encoder_is_one_line(folder: Path, damage: Any, told: str) -> None:
    damage(folder)
    with pytest.raises(at.UserError, match=told):
        open_foundation(str(folder)).bind(target())


def test_a_head_may_be_missing(folder: Path) -> None:
    lose(folder, "final_layer.weight")
    assert isinstance(open_foundation(str(folder)), FoundationEncoder)


def test_names_say_model_weights_and_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_foundation(f"braindecode:Wave,pretrained={folder},n_outputs=9").options["n_outputs"] == 9
    with pytest.raises(at.UserError, match="has no weights"):
        open_foundation("braindecode:Wave")
    with pytest.raises(at.UserError, match="no model 'Nothing'"):
        open_foundation(f"braindecode:Nothing,pretrained={folder}")
    asked: list[str] = []
    monkeypatch.setattr("autotransfer.models.foundation.download", lambda name: asked.append(name) or folder)
    open_foundation("braindecode:Wave,pretrained=me/wave")
    open_foundation("hf:me/wave")
    assert asked == ["hf:me/wave", "hf:me/wave"]


def test_an_encoder_with_pretrained_weights_is_a_base(folder: Path) -> None:
    name = f"braindecode:Wave,pretrained={folder}"
    options = RunOptions(source="", adaptation="online", encoder=name)
    assert (options.base, options.encoder) == (name, "eegnet")
    assert RunOptions(source="", adaptation="online", encoder="hf:me/wave").base == "hf:me/wave"
    with pytest.raises(at.UserError, match="place of a base"):
        RunOptions(source="", adaptation="online", encoder=name, base="other")
    own = target()
    with pytest.raises(at.UserError, match="as base="):
        at.CensoredClassifier(encoder=name, max_epochs=1).fit(own.X.numpy(), own.y.numpy(), subjects=own.subject)


def test_it_is_a_candidate_beside_untrained_weights(folder: Path) -> None:
    own = target()
    forms = closed_forms(RunOptions(source="", adaptation="online", base=str(folder)), own)
    assert {(one.kind, one.to_dict().get("centre", "none")) for one in forms if "foundation" in one.kind} == {
        (kind, centre) for kind in ("foundation", "random_foundation") for centre in ("none", "online")
    }


def test_a_model_holds_its_encoder_once_and_needs_no_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = target()
    name = bound_base(str(folder), own).kinds["foundation"]
    setting = at.Setting(encoder="linear", standardise="none", represent=name)
    outcomes = at.train(
        own, [at.Job(setting, fold) for fold in at.leave_one_subject_out(own)[:2]], device="cpu", progress=False
    )
    model = outcomes[0].model()
    expected = model.predict_proba(own.X[:5])
    at.save_model(model, tmp_path / "model")
    at.export_model(model, "safetensors", tmp_path / "model.safetensors")
    stored = [key for key in load_file(tmp_path / "model" / "model.safetensors") if key.startswith("foundation.")]
    assert len(stored) == 4
    monkeypatch.setattr(foundation, "_opened", {})
    with pytest.raises(at.UserError, match="not open here"):
        setting.preprocessing.fit(own.X, own.subject, [np.arange(9)])
    for place in ("model", "model.safetensors"):
        monkeypatch.setattr(foundation, "_opened", {})
        assert np.allclose(at.load_model(tmp_path / place).predict_proba(own.X[:5]), expected, atol=1e-6)  # type: ignore[union-attr]
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    (weights,) = (key for key in stored if key.endswith(".weights"))
    monkeypatch.setattr(foundation, "_opened", {})
    with pytest.raises(ValueError, match="not what the model was saved with"):
        foundation.take_stored(tensors | {weights: tensors[weights] + 1})


def test_a_graph_has_the_encoder_in_it(folder: Path, tmp_path: Path) -> None:
    own = target()
    name = bound_base(str(folder), own).kinds["foundation"]
    setting = at.Setting(encoder="linear", standardise="none", represent=name)
    (outcome,) = at.train(own, [at.Job(setting, at.leave_one_subject_out(own)[0])], device="cpu", progress=False)
    at.export_model(outcome.model(), "torch", tmp_path / "model.pt2")  # checks the file against the model
    assert (tmp_path / "model.pt2").stat().st_size > 0


@pytest.mark.slow
def test_a_run_with_a_foundation_encoder(folder: Path, tmp_path: Path) -> None:
    own = target()
    save_npz(tmp_path / "target.npz", own)
    out, cli = tmp_path / "run", CliRunner()
    asked = ["run", str(tmp_path / "target.npz"), "--out", str(out), "--networks", "none", "--quick", "--device", "cpu"]
    asked += ["--encoder", f"braindecode:Wave,pretrained={folder}", "--epochs", "1", "--seeds", "1", "--time", "none"]
    told = cli.invoke(app, asked)
    assert told.exit_code == 0, told.output
    choice = json.loads((out / "choice.json").read_text())
    kinds = {one["represent"].partition(":")[0] for one in choice["shortlist"]}
    assert {"foundation", "random_foundation"} <= kinds
    assert "foundation encoder has" in (out / "report.html").read_text()
    for path in folder.iterdir():  # the run has all that it needs
        path.unlink()
    assert open_foundation(str(out / "base")).model == "Wave"
    again = cli.invoke(app, ["resume", str(out)])
    assert again.exit_code == 0, again.output
