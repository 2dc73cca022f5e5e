"""Three file formats of a model: ONNX, a torch.export program, and safetensors.

Each format turns a model into the bytes of a file, and such bytes into a function that predicts: the check is of the
file, not of the module it was made from.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError, one_line
from ..model.encoders import ENCODERS, Encoders
from ..models.binding import model_digests
from ..models.card import DIGEST, ModelCard
from ..models.loading import MARK, from_text, model_in
from ..models.model import Model
from ..recordings.optional import need
from ..versions import versions

logger = logging.getLogger(__name__)
Predict = Callable[[Tensor], NDArray[Any]]  # raw windows (N, channels, times) -> (N, classes)
CARD_FILE = "card.json"
ONNX = ("the onnx format", "onnx", "onnxscript", "onnxruntime")  # what needs its packages, and what to install for them
SILENT = 4  # of onnxruntime: nothing but what ends the process
# Loggers. To torch.__trace whole graphs are written wherever a program listens to all loggers, which takes long.
NOISY = ("torch.onnx", "torch.export", "torch._dynamo", "torch.fx", "torch.__trace", "onnxscript", "onnx_ir")


def file_metadata(card: ModelCard) -> dict[str, Any]:
    """Return what a file says about its model: the card, and which version wrote it."""
    return {MARK: versions()["autotransfer"]} | asdict(card)


def as_text(card: ModelCard) -> dict[str, str]:
    """Return the metadata for formats that keep text only: every value is JSON."""
    return {name: json.dumps(value) for name, value in file_metadata(card).items()}


def _tensors(saved: Model) -> dict[str, Tensor]:
    """Return the tensors as RUN/model has them."""
    return {name: tensor.contiguous() for name, tensor in saved.tensors().items()}


def _digest(saved: Model) -> dict[str, str]:
    """Return the digest that model.json has beside the card; it tells of which model a file is."""
    return model_digests(from_text(as_text(saved.card)), save(_tensors(saved)))


def exported_program(saved: Model) -> torch.export.ExportedProgram:
    """Trace the model as a graph with any number of windows."""
    card = saved.card
    example = torch.zeros(2, len(card.channels), card.n_times)  # of one window, the number would become a constant
    any_number = {"windows": {0: torch.export.Dim("N", min=1)}}
    module = saved.graph()
    with torch.no_grad(), _quiet():
        module(example)  # fills cached tables: made while torch traces, they would hold no numbers
        program = torch.export.export(module, (example,), dynamic_shapes=any_number)
    for node in program.graph.nodes:  # stack traces quote source code and paths of this machine
        node.meta.pop("stack_trace", None)
    return program


@contextmanager
def attempt(saved: Model, failed: str, instead: str) -> Iterator[None]:
    """Turn any exception of an exporter or runtime into one line that says what failed and names users' encoders; the
    whole exception goes to the log. instead: formats to try."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        logger.info("%s", failed, exc_info=error)
        own = {part.setting.encoder for part in saved.parts} - set(ENCODERS)
        of = f" of the encoder {', '.join(map(repr, sorted(own)))}" if own else ""
        raise UserError(f"{failed}{of} ({one_line(error)}); use the format {instead}") from error


def to_torch(saved: Model) -> bytes:
    file = BytesIO()
    with attempt(saved, "torch cannot make a graph", "safetensors"):
        program = exported_program(saved)
    with attempt(saved, "torch cannot write a graph", "onnx or safetensors"), _quiet():
        program.example_inputs = None  # would be saved too, and nobody needs them
        about = file_metadata(saved.card) | {DIGEST: _digest(saved)}
        torch.export.save(program, file, extra_files={CARD_FILE: json.dumps(about)})
    return file.getvalue()


def from_torch(content: bytes, _: Encoders | None = None) -> Predict:
    with _quiet():
        model = torch.export.load(BytesIO(content)).module()

    def predict(windows: Tensor) -> NDArray[Any]:
        with torch.no_grad():
            probabilities: NDArray[Any] = model(windows).numpy()
        return probabilities

    return predict


def need_onnx() -> tuple[Any, Any]:
    """Import the packages that write ONNX files, or raise a UserError that says how to get them."""
    return need("onnx", *ONNX), need("onnxscript", *ONNX)


def to_onnx(saved: Model) -> bytes:
    onnx, _ = need_onnx()
    with attempt(saved, "torch cannot make a graph", "safetensors"):
        graph = exported_program(saved)
    with attempt(saved, "torch cannot make an ONNX graph", "torch or safetensors"), _quiet():
        names: dict[str, Any] = {"input_names": ["windows"], "output_names": ["probabilities"]}
        program = torch.onnx.export(graph, dynamo=True, verbose=False, **names)
        assert program is not None, "dynamo gives a program"
        proto = program.model_proto
        _tidy(proto)
        onnx.helper.set_model_props(proto, as_text(saved.card) | {DIGEST: json.dumps(_digest(saved))})
        proto.producer_name, proto.producer_version = "autotransfer", versions()["autotransfer"]
        onnx.checker.check_model(proto)
        content: bytes = proto.SerializeToString()
    return content


def _tidy(proto: Any) -> None:
    """Drop what the exporter noted about itself, and call the number of windows N."""
    graph = proto.graph
    graph.ClearField("value_info")
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
    for signal in (*graph.input, *graph.output):
        signal.type.tensor_type.shape.dim[0].dim_param = "N"


def from_onnx(content: bytes, _: Encoders | None = None) -> Predict:
    onnxruntime = need("onnxruntime", *ONNX)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT  # what goes wrong is raised
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def predict(windows: Tensor) -> NDArray[Any]:
        (probabilities,) = session.run(["probabilities"], {"windows": windows.numpy()})
        return np.asarray(probabilities)

    return predict


def to_safetensors(saved: Model) -> bytes:
    """Write the tensors of RUN/model as they are, with the card in the header."""
    content: bytes = save(_tensors(saved), as_text(saved.card) | {DIGEST: json.dumps(_digest(saved))})
    return content


class Format(NamedTuple):
    suffix: str
    runtime: str  # what runs it here
    write: Callable[[Model], bytes]
    open: Callable[[bytes, Encoders | None], Predict]  # weights alone need the factory of a user's encoder


FORMATS = {
    "onnx": Format(".onnx", "onnxruntime", to_onnx, from_onnx),
    "safetensors": Format(".safetensors", "autotransfer", to_safetensors, lambda *file: model_in(*file).predict_proba),
    "torch": Format(".pt2", "torch", to_torch, from_torch),
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Send the exporters' messages, of unused packages and of deprecations, to the log and not to users."""
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [noisy.level for noisy in loggers]
    for noisy in loggers:
        noisy.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for noisy, level in zip(loggers, levels, strict=True):
            noisy.setLevel(level)
    for warning in caught:
        logger.debug("%s", " ".join(str(warning.message).split()))
