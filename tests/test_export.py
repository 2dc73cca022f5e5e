"""Exported files compute what the model computes, run without this package, and are written whole or not at all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export import export_model
from autotransfer.export.formats import FORMATS
from autotransfer.export.verification import sample_windows
from autotransfer.model.stack import Size
from autotransfer.models.loading import load_model, parse_file
from autotransfer.models.model import Model
from autotransfer.models.saving import split_file
from autotransfer.schema import to_json
from autotransfer.search.procedure import perform_plan
from autotransfer.training.members import Members
from ensembles import single
from faults import assert_one_line, call
from tiny import create_run, described, tiny_file

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "export.md"


def random_model(
    kind: str, channels: int = 3, times: int = 32, kernel: int = 16, members: int = 3, **more: object
) -> Model:
    """With statistics and scales of its own everywhere: defaults of 0 and 1 hide mistakes."""
    generator = torch.Generator().manual_seed(channels * times)
    sizes = {"temporal_filters": 4, "spatial_depth": 3, "latent_filters": 6, "temporal_kernel": kernel}
    setting = at.Setting(standardize=kind, **sizes, **more)
    size = Size(*setting.preprocessing.shape(channels, times), 3, None)
    tensors = {
        name: torch.rand(tensor.shape, generator=generator) + 0.5 if "norm" in name else tensor.detach()
        for name, tensor in Members(setting, size, range(members)).tensors().items()
    }
    for name in ("encoder.spatial", "encoder.depthwise", "encoder.pointwise", "classifier.weight"):
        tensors[name] = 3 * tensors[name]  # fresh weights hardly tell windows apart
    tensors |= statistics(kind, members, channels, generator)
    return single(
        setting, tensors, name="noise", n_times=times, channels=[f"é{c}" for c in range(channels)], sfreq=None,
        classes=["rest", 7, "fist"], subjects=5, scores={"nested_test_mean": 0.5},
    )  # fmt: skip


def statistics(kind: str, members: int, channels: int, generator: torch.Generator) -> dict[str, Tensor]:
    """What a model stores of its standardization."""
    if kind not in ("train", "online"):
        return {}
    shift = 5 + torch.rand(members, channels, generator=generator)
    inv_std = 0.1 + torch.rand(members, channels, generator=generator)
    inv_std[:, -1] *= channels == 1  # a channel that was flat in training
    return {"preprocessing.standardize.shift": shift, "preprocessing.standardize.inv_std": inv_std}


def raw_windows(saved: Model, n: int = 1000) -> Tensor:
    x = sample_windows(saved, n, torch.Generator().manual_seed(7))
    x[0, 0] = 0.1  # flat, at a value whose mean in float32 is another
    x[n // 2, -1, 1:] = x[n // 2, -1, 0]
    return x


@cache
def written(format: str) -> bytes:
    """The file of a random model: exporting takes seconds, so each is made once."""
    return FORMATS[format].write(random_model("train", channels=5, times=64, kernel=9))


def difference(saved: Model, got: np.ndarray, windows: Tensor) -> float:
    want = saved.predict_proba(windows)
    assert got.shape == want.shape
    return float(np.abs(got - want).max())


# a user's own encoder


class Own(nn.Module):
    """Normalization, dropout, a frozen parameter and an output that is not flat."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(n_channels, 4, 5, padding=2), nn.BatchNorm1d(4)
        self.drop, self.pool = nn.Dropout(0.5), nn.AvgPool1d(n_times // 3)
        self.scale = nn.Parameter(torch.rand(4, 1) + 0.5, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.drop(torch.relu(self.scale * self.norm(self.conv(x)))))


class Branching(Own):
    """Looks at values, which no graph can hold."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.mean() > 0 else 2 * x)


def own_model(kind: str, factory: type[nn.Module]) -> Model:
    members, channels, times = 2, 3, 20
    setting = at.Setting(standardize=kind, encoder="own")
    own = Members(setting, Size(channels, times, 3, None), range(members), encoders={"own": factory}).tensors()
    tensors = {k: 5 * t if "classifier" in k else t + torch.rand(t.shape) * ("norm" in k) for k, t in own.items()}
    return single(
        setting, tensors | statistics(kind, members, channels, torch.Generator()), {"own": factory}, name="noise",
        n_times=times, channels=["a", "b", "c"], sfreq=None, classes=["rest", 7, "fist"], subjects=5,
    )  # fmt: skip


def test_own_encoders_run_in_turn() -> None:
    saved = own_model("train", Own)
    module, windows = saved.graph(), raw_windows(saved, 250)
    for n in (1, 250):
        assert difference(saved, module(windows[:n]).numpy(), windows[:n]) < 1e-6
    assert saved.predict_proba(windows).std(0).max() > 0.02
    assert np.abs(saved.predict_proba(windows) - own_model("train", Own).predict_proba(windows)).max() > 1e-3


def test_an_encoder_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a graph of the encoder 'own' \(.* use the format safetensors"):
        export_model(own_model("trial", Branching), "torch", tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())
    export_model(own_model("trial", Branching), "safetensors", tmp_path / "m.st", encoders={"own": Branching})


# a finished run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("export")
    options = described(
        source=str(tiny_file(folder)), max_epochs=2, batch_size=8, device="cpu", lr=0.05, rule="published"
    )
    opened = create_run(folder / "run", options)
    perform_plan(opened, lambda _: None, progress=False)
    yield folder / "run"
    opened.database.close()


def blocks() -> dict[str, str]:
    """The programs of the page, by the file they read."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {re.search(r'"model(\.\w+)"', program)[1]: program for program in programs}


@pytest.mark.parametrize(
    "format", [pytest.param(name, marks=[pytest.mark.slow] * (name != "safetensors")) for name in FORMATS]
)
def test_the_pages_program_runs_what_the_command_wrote(
    run: Path, tmp_path: Path, format: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="needs the onnx extra")
        pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    path = tmp_path / f"model{FORMATS[format].suffix}"
    done = call("export", run, "--format", format, "--out", path)
    assert (done.code, done.err, capfd.readouterr().err) == (0, "", "")
    assert f"exported: {path} " in done.out
    windows = np.random.default_rng(0).normal(size=(9, 2, 16))
    np.save(tmp_path / "windows.npy", windows)
    monkeypatch.chdir(tmp_path)
    program = blocks()[path.suffix] + "np.save('probabilities.npy', np.asarray(probabilities))\n"
    if format == "safetensors":
        exec(program, {})
        printed = capfd.readouterr().out
    else:
        blocked = "import sys; sys.modules['autotransfer'] = None\n"
        result = subprocess.run([sys.executable, "-c", blocked + program], capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        printed = result.stdout
    want = load_model(run).predict_proba(torch.from_numpy(windows))
    np.testing.assert_allclose(np.load(tmp_path / "probabilities.npy"), want, atol=1e-6)
    assert printed.strip() == str([["left", "right"][k] for k in want.argmax(1)])


@pytest.mark.slow
def test_every_file_carries_the_card() -> None:
    card = random_model("train", channels=5, times=64, kernel=9).card
    want = json.loads(to_json(card)) | {"autotransfer_version": at.__version__}
    extra = {"card.json": ""}
    torch.export.load(BytesIO(written("torch")), extra_files=extra)
    told = json.loads(extra["card.json"])
    want["digest"] = json.loads(split_file(written("safetensors"))[0])["__metadata__"]["digest"]
    want["digest"] = json.loads(want["digest"])
    assert told == want
    assert parse_file(written("safetensors")).card == card
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    proto = onnx.load_from_string(written("onnx"))
    assert {p.key: json.loads(p.value) for p in proto.metadata_props} == want
    assert [i.name for i in proto.graph.input] == ["windows"]
    assert [o.name for o in proto.graph.output] == ["probabilities"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert not any(node.metadata_props for node in proto.graph.node), "notes of the exporter, with paths of its machine"
    assert all(t.data_location == onnx.TensorProto.DEFAULT for t in proto.graph.initializer), "one file, nothing beside"


def test_a_file_that_differs_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved, other = random_model("trial"), random_model("trial", members=2)
    form = FORMATS["safetensors"]
    monkeypatch.setitem(FORMATS, "safetensors", form._replace(write=lambda _: form.write(other)))
    with pytest.raises(UserError, match=r"differs from predict_proba by .* not written"):
        export_model(saved, "safetensors", tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


# mistakes


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    for folder, *words in ((run, "tflite"), (run, "torch", "--out", tmp_path), (tmp_path / "nowhere", "torch")):
        done = call("export", folder, "--format", *words)
        assert_one_line(done, 2)
        assert done.out == ""


def test_only_an_earlier_export_is_replaced(run: Path, tmp_path: Path) -> None:
    saved = random_model("trial")
    precious = tmp_path / "m.safetensors"
    for content in (b"", b"precious"):
        precious.write_bytes(content)
        with pytest.raises(UserError, match=r"exists and is not an earlier export"):
            export_model(saved, "safetensors", precious)
        assert precious.read_bytes() == content
    with pytest.raises(UserError, match=r"exists and is not an earlier export"):
        export_model(run, "safetensors", run / "model" / "model.safetensors")
    precious.unlink()
    export_model(saved, "safetensors", precious)
    second = Model(replace(saved.card, name="second"), saved.candidates)
    export_model(second, "safetensors", precious)
    assert load_model(precious).card.name == "second"
