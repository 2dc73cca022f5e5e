"""Foundation encoders: pretrained weights in the hub's layout, frozen, as candidates. braindecode's place is taken by a
package that a test writes, with its habits; real weights are not tried here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.model.adapters import Adapted
from autotransfer.models.foundation import Bound, FoundationEncoder, open_foundation
from autotransfer.models.pretrained import open_base
from autotransfer.preprocessing.represent import base_layout, foundation
from autotransfer.preprocessing.represent.pretrained import at_one_scale
from autotransfer.recordings import save_npz
from autotransfer.runs.options import RunOptions
from autotransfer.search.kinds import closed_forms, networks

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
        ({"sfreq": True}, "sfreq, n_times"),
        ({"chs_info": channels(["C3"] * 8)}, "a ch_name of its own"),
        ({"chs_info": [{}] * 8}, "a ch_name of its own"),
        ({"width": 7}, "do not fit"),
        ({"width": 10**9}, "at most"),
        ({"n_outputs": 10**6, "width": 10**6}, r"first\.weight has the shape \(6, 8, 9\), not \(1000000, 8, 9\)"),
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


def change(folder: Path, name: str, how: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: how(tensors[name])}, folder / "model.safetensors")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


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
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), "nested too deeply"),
        (lambda folder: (folder / "config.json").write_text("[" * 500 + "]" * 500), "nested too deeply"),
        (lambda folder: as_folder(folder / "README.md"), "not a plain file"),
        (lambda folder: as_pipe(folder / "README.md"), "not a plain file"),
        (lambda folder: change(folder, "norm.bias", torch.Tensor.bool), r"norm\.bias .* holds torch\.bool"),
        (lambda folder: change(folder, "norm.bias", lambda bias: bias.to(torch.complex64)), r"holds torch\.complex64"),
        (lambda folder: change(folder, "norm.bias", lambda bias: bias.to(torch.float8_e4m3fn)), r"torch\.float8"),
        (lambda folder: change(folder, "norm.running_var", lambda var: -var), "nan or infinite features"),
    ],
)
def test_a_folder_that_is_no_encoder_is_one_line(folder: Path, damage: Any, told: str) -> None:
    damage(folder)
    with pytest.raises(at.UserError, match=told):
        open_foundation(str(folder)).bind(target())


def test_weights_may_have_half_precision(folder: Path) -> None:
    change(folder, "norm.bias", torch.Tensor.bfloat16)
    assert set(open_foundation(str(folder)).bind(target())) == {"foundation", "random_foundation"}


def test_no_network_is_made_that_weights_do_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes are compared before any weight is filled, which might take all memory."""
    digest = open_foundation(str(folder)).bind(target())["foundation"].split(":")[1]
    tensors = foundation._opened[digest].tensors()
    filled: list[str] = []
    original = nn.init.kaiming_uniform_

    def fill(tensor: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        filled.append(tensor.device.type)
        return original(tensor, *rest, **more)

    monkeypatch.setattr(nn.init, "kaiming_uniform_", fill)
    with pytest.raises(at.UserError, match="do not fit"):
        open_foundation(f"braindecode:Wave,pretrained={folder},width=1000000,n_outputs=1000000")
    monkeypatch.setattr(foundation, "MOST_UNUSED", 1000)
    with pytest.raises(at.UserError, match="makes a network of"):
        open_foundation(f"braindecode:Wave,pretrained={folder},n_outputs=1000")
    monkeypatch.setattr(foundation, "MOST_TENSORS", 3)
    with pytest.raises(at.UserError, match="more than 3 tensors"):
        open_foundation(f"braindecode:Wave,pretrained={folder}")
    monkeypatch.setattr(foundation, "MOST_TENSORS", 10_000)
    config = json.loads(bytes(tensors["config"].tolist()))
    config["options"]["width"] = 10**6
    edited = torch.tensor(list(json.dumps(config).encode()), dtype=torch.uint8)
    with pytest.raises(ValueError, match="its network has others"):
        foundation.Encoder.restore(tensors | {"config": edited})
    assert set(filled) == {"meta"}


def test_a_candidate_without_numbers_fails_alone(folder: Path) -> None:
    own = target()
    opened = open_foundation(str(folder))
    name = opened.bind(own)["foundation"]
    opened.module.norm.running_var.neg_()  # type: ignore[operator, union-attr]
    settings = [at.Setting(encoder="linear", represent=one) for one in (name, "features")]
    fold = at.leave_one_subject_out(own)[0]
    outcomes = at.train(own, [at.Job(setting, fold, 0) for setting in settings], "cpu")
    assert [outcome.failure is None for outcome in outcomes] == [False, True]


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
    monkeypatch.setattr("autotransfer.models.hub.download", lambda name: asked.append(name) or folder)
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


def bound_to(folder: Path, recordings: at.Recordings) -> Bound:
    return open_base(str(folder)).bound_to(recordings)


def test_it_is_a_candidate_beside_untrained_weights(folder: Path) -> None:
    own = target()
    forms = closed_forms("online", own, base=bound_to(folder, own))
    assert {(one.kind, one.to_dict().get("centre", "none")) for one in forms if "foundation" in one.kind} == {
        (kind, centre) for kind in ("foundation", "random_foundation") for centre in ("none", "online")
    }


def test_a_model_holds_its_encoder_once_and_needs_no_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = target()
    name = bound_to(folder, own).kinds["foundation"]
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


@pytest.mark.parametrize("tuned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_graph_has_the_encoder_in_it(folder: Path, tmp_path: Path, tuned: bool) -> None:
    own = target()
    bound = bound_to(folder, own)
    frozen = {"encoder": "linear", "standardise": "none", "represent": bound.kinds["foundation"]}
    setting = at.Setting(**bound.tuned[0] | {"max_epochs": 2} if tuned else frozen)
    (outcome,) = at.train(own, [at.Job(setting, at.leave_one_subject_out(own)[0])], device="cpu", progress=False)
    at.export_model(outcome.model(), "torch", tmp_path / "model.pt2")  # checks the file against the model
    assert (tmp_path / "model.pt2").stat().st_size > 0


# adapters


class Flat(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.out = nn.Linear(24, 5, bias=False)
        self.out.weight.data.copy_(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z: torch.Tensor = self.out(x.flatten(1))
        return z


@pytest.mark.parametrize("rank", [1, 2, 5, 99])
def test_adapters_reach_what_their_rank_allows(rank: int) -> None:
    """Of a linear encoder: with orthonormal windows the squared error is that of the best matrix of this rank, which
    the singular values tell (Eckart and Young); with full rank it is that of free fine-tuning, 0."""
    start, goal = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))
    frozen = Flat(start).requires_grad_(False)
    torch.manual_seed(1)
    net = Adapted(foundation.know(foundation.Encoder({}, frozen, torch.eye(8), (1.0, 1.0, 3))), rank)
    x = torch.eye(24).view(24, 8, 3)

    def error(values: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.tensor(values, dtype=torch.float32), net.parameters())
        loss = (net(x) - goal.T).square().sum()
        gradient = torch.autograd.grad(loss, list(net.parameters()))
        return loss.item(), parameters_to_vector(gradient).double().numpy()

    begun = parameters_to_vector(net.parameters()).detach().double().numpy()
    reached = minimize(error, begun, jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    beyond = torch.linalg.svdvals(goal - start)[rank:].square().sum()
    assert reached.fun == pytest.approx(float(beyond), rel=1e-3, abs=1e-4)


def test_adapters_start_at_the_frozen_encoder_and_alone_are_trained(folder: Path) -> None:
    own = target()
    digest = bound_to(folder, own).kinds["foundation"].split(":")[1]
    encoder = foundation._opened[digest]
    before = {name: tensor.clone() for name, tensor in encoder.module.state_dict().items()}
    net = Adapted(digest, 2).train()
    assert [tuple(p.shape) for p in net.parameters()] == [(2, 72), (6, 2)], "of one convolution (6, 8, 9)"
    x = at_one_scale(torch.randn(7, 8, 64))[0]
    z = net(x)
    assert torch.equal(z, foundation.features(encoder.module, x)), "bit for bit"
    z.square().sum().backward()
    assert net.up[0].grad.abs().sum() > 0, "B learns at once"
    assert net.down[0].grad.abs().sum() == 0, "A as soon as B is not 0"
    assert all(parameter.grad is None for parameter in encoder.module.parameters())
    nn.init.normal_(net.up[0])
    assert torch.equal(net.merged()(x), net(x))
    assert not torch.allclose(net(x), z, atol=0.1)
    tuned, _ = networks([at.Setting(max_epochs=2)], own, "zero-shot", "one", base=bound_to(folder, own))[-2:]
    fold = at.leave_one_subject_out(own)[0]
    _, stacked = at.train(own, [at.Job(tuned, fold, seed) for seed in (0, 1)], "cpu")
    (alone,) = at.train(own, [at.Job(tuned, fold, 1)], "cpu")
    trained = {name for name in alone.state if name.startswith("encoder.")}
    assert trained == {"encoder.module.down.0", "encoder.module.up.0"}
    assert alone.state["encoder.module.up.0"].abs().sum() > 0
    for name, tensor in alone.state.items():
        assert torch.allclose(tensor, stacked.state[name], atol=1e-5), name
    after = encoder.module.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items()), "frozen"


def test_layers_of_a_transformer_have_adapters() -> None:
    frozen = nn.TransformerEncoderLayer(24, 2, dim_feedforward=10, batch_first=True).eval().requires_grad_(False)
    frozen.head = nn.Linear(24, 3)
    net = Adapted(foundation.know(foundation.Encoder({}, frozen, torch.eye(8), (1.0, 1.0, 24))), 4)
    assert net.weights == [
        "self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"
    ]  # fmt: skip
    x = torch.randn(3, 8, 24)
    with torch.no_grad():
        assert torch.equal(net(x), frozen(x).mean(1))
        nn.init.normal_(net.up[0])
        assert not torch.allclose(net(x), frozen(x).mean(1), atol=0.01)


def test_adapters_see_pieces_of_long_windows_as_the_frozen_encoder_does(folder: Path) -> None:
    plain = target()
    X = torch.cat([plain.X, 3 * plain.X.flip(-1), plain.X], -1)
    long = at.Recordings(X=X, y=plain.y, subject=plain.subject, sfreq=plain.sfreq, channels=plain.channels)
    bound = bound_to(folder, long)
    fitted = at.Setting(**bound.tuned[0]).preprocessing.fit(long.X, long.subject, [np.arange(9)])
    z = Adapted(bound.tuned[0]["encoder"].split(":")[1], 3)(fitted(long.X[None, :6], long.subject[None, :6])[0])
    assert torch.allclose(z, numbers(bound.kinds["foundation"], long)[:, :-1], atol=1e-5)


def test_adapters_are_candidates_beside_untrained_weights(folder: Path) -> None:
    own, fold = target(), at.leave_one_subject_out(target())[0]
    plain, bound = at.Setting(max_epochs=2), bound_to(folder, own)
    made = [one for one in networks([plain], own, "zero-shot", base=bound) if "foundation" in one.kind]
    assert [one.kind for one in made] == ["tuned_foundation", "tuned_random_foundation"]
    assert made[0].replace(encoder=made[1].encoder) == made[1], "they differ in the frozen weights alone"
    assert [at.Setting.from_json(one.to_json()) for one in made] == made
    without = networks([plain], own, "zero-shot", "none", base=bound)
    assert not [one for one in without if "foundation" in one.kind]
    for name, told in (("tuned_foundation:x", "DIGEST:RANK"), (f"tuned_foundation:{'0' * 16}:8", "not open here")):
        with pytest.raises(at.UserError, match=told):
            at.train(own, [at.Job(at.Setting(encoder=name), fold)], "cpu")


def test_a_model_with_adapters_needs_no_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = target()
    setting = at.Setting(**bound_to(folder, own).tuned[0], max_epochs=2)
    (outcome,) = at.train(own, [at.Job(setting, at.leave_one_subject_out(own)[0])], "cpu")
    model = outcome.model()
    expected = model.predict_proba(own.X[:5])
    at.save_model(model, tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert len([key for key in tensors if key.startswith("foundation.")]) == 4, "the encoder once"
    at.export_model(model, "safetensors", tmp_path / "model.safetensors")
    for place in ("model", "model.safetensors"):
        monkeypatch.setattr(foundation, "_opened", {})
        monkeypatch.setattr(base_layout.BaseLayout, "opened", {})
        assert np.allclose(at.load_model(tmp_path / place).predict_proba(own.X[:5]), expected, atol=1e-6)  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_run_with_a_foundation_encoder(folder: Path, tmp_path: Path) -> None:
    own = target()
    save_npz(tmp_path / "target.npz", own)
    out, cli = tmp_path / "run", CliRunner()
    asked = ["run", str(tmp_path / "target.npz"), "--out", str(out), "--networks", "one", "--quick", "--device", "cpu"]
    asked += ["--encoder", f"braindecode:Wave,pretrained={folder}", "--epochs", "1", "--seeds", "1", "--time", "none"]
    told = cli.invoke(app, asked)
    assert told.exit_code == 0, told.output
    choice = json.loads((out / "choice.json").read_text())
    names = [one[part] for one in choice["shortlist"] for part in ("represent", "encoder")]
    kinds = {name.partition(":")[0] for name in names if "foundation" in name}
    assert kinds == {"foundation", "random_foundation", "tuned_foundation", "tuned_random_foundation"}
    report = (out / "report.html").read_text()
    assert "foundation encoder has" in report
    assert "the same adapters on untrained weights have" in report
    foundation._opened.clear()
    assert at.load_model(out / "model").predict_proba(own.X[:4]).shape == (4, 2)  # type: ignore[union-attr]
    for path in folder.iterdir():  # the run has all that it needs
        path.unlink()
    assert open_foundation(str(out / "base")).model == "Wave"
    again = cli.invoke(app, ["resume", str(out)])
    assert again.exit_code == 0, again.output
