"""File formats of exported models: ONNX, a torch.export program, and safetensors."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError, one_line
from ..model.encoders import ENCODERS, Encoders
from ..models.loading import MARK, parse_file
from ..models.model import Model
from ..models.saving import serialize
from ..recordings.optional import need
from ..versions import versions

logger = logging.getLogger(__name__)
Predict = Callable[[Tensor], NDArray[Any]]  # raw windows (N, channels, times) -> (N, classes)
CARD_FILE = "card.json"
ONNX = ("the onnx format", "onnx", "onnxscript", "onnxruntime")  # arguments of `need`: purpose and packages
FATAL = 4  # log level of onnxruntime
# Loggers of the exporters. torch.__trace formats whole graphs if any handler is set, which takes long.
EXPORT_LOGGERS = ("torch.onnx", "torch.export", "torch._dynamo", "torch.fx", "torch.__trace", "onnxscript", "onnx_ir")


def file_metadata(model: Model) -> dict[str, str]:
    """Return the metadata of an exported file: the version of autotransfer and the card, each value as JSON text."""
    card, _ = serialize(model.card, model.tensors())
    return {name: json.dumps(value) for name, value in {MARK: versions()["autotransfer"], **card}.items()}


def trace_program(model: Model) -> torch.export.ExportedProgram:
    """Trace a model as a graph for any number of windows."""
    card = model.card
    # Two windows, because tracing would make the number 1 a constant.
    example = torch.zeros(2, len(card.signal.channels), card.n_times)
    shapes = {"windows": {0: torch.export.Dim("N", min=1)}}
    module = model.graph()
    with torch.no_grad(), _redirect_warnings():
        module(example)  # fills caches before tracing, because tensors that are created during tracing have no values
        program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    for node in program.graph.nodes:  # stack traces contain source code and local paths
        node.meta.pop("stack_trace", None)
    return program


@contextmanager
def convert_errors(model: Model, message: str, other_formats: str) -> Iterator[None]:
    """Log an exception of an exporter or runtime, and raise a UserError that names other formats."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        logger.info("%s", message, exc_info=error)
        custom_encoders = {part.setting.encoder for part in model.candidates} - set(ENCODERS)
        if custom_encoders:
            message += f" of the encoder {', '.join(map(repr, sorted(custom_encoders)))}"
        raise UserError(f"{message} ({one_line(error)}); use the format {other_formats}") from error


def to_torch(model: Model) -> bytes:
    file = BytesIO()
    with convert_errors(model, "torch cannot make a graph", "safetensors"):
        program = trace_program(model)
    with convert_errors(model, "torch cannot write a graph", "onnx or safetensors"), _redirect_warnings():
        program.example_inputs = None  # not stored in the file
        metadata = {name: json.loads(text) for name, text in file_metadata(model).items()}
        torch.export.save(program, file, extra_files={CARD_FILE: json.dumps(metadata)})
    return file.getvalue()


def from_torch(content: bytes, _: Encoders | None = None) -> Predict:
    with _redirect_warnings():
        model = torch.export.load(BytesIO(content)).module()

    def predict(windows: Tensor) -> NDArray[Any]:
        with torch.no_grad():
            probabilities: NDArray[Any] = model(windows).numpy()
        return probabilities

    return predict


def need_onnx() -> tuple[Any, Any]:
    """Import the packages that write ONNX files; raise a UserError with the installation command if one is missing."""
    return need("onnx", *ONNX), need("onnxscript", *ONNX)


def to_onnx(model: Model) -> bytes:
    onnx, _ = need_onnx()
    with convert_errors(model, "torch cannot make a graph", "safetensors"):
        graph = trace_program(model)
    with convert_errors(model, "torch cannot make an ONNX graph", "torch or safetensors"), _redirect_warnings():
        names: dict[str, Any] = {"input_names": ["windows"], "output_names": ["probabilities"]}
        program = torch.onnx.export(graph, dynamo=True, verbose=False, **names)
        assert program is not None, "dynamo returns a program"
        proto = program.model_proto
        _clean_metadata(proto)
        onnx.helper.set_model_props(proto, file_metadata(model))
        proto.producer_name, proto.producer_version = "autotransfer", versions()["autotransfer"]
        onnx.checker.check_model(proto)
        content: bytes = proto.SerializeToString()
    return content


def _clean_metadata(proto: Any) -> None:
    """Remove the metadata of the exporter, and name the axis of windows N."""
    graph = proto.graph
    graph.ClearField("value_info")
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
    for signal in (*graph.input, *graph.output):
        signal.type.tensor_type.shape.dim[0].dim_param = "N"


def from_onnx(content: bytes, _: Encoders | None = None) -> Predict:
    onnxruntime = need("onnxruntime", *ONNX)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL  # less severe errors are raised as exceptions
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def predict(windows: Tensor) -> NDArray[Any]:
        (probabilities,) = session.run(["probabilities"], {"windows": windows.numpy()})
        return np.asarray(probabilities)

    return predict


def to_safetensors(model: Model) -> bytes:
    """Return a safetensors file with the tensors of a saved model, and the card in the header."""
    content: bytes = save({name: tensor.contiguous() for name, tensor in model.tensors().items()}, file_metadata(model))
    return content


class Format(NamedTuple):
    suffix: str
    runtime: str  # package that opens the file
    write: Callable[[Model], bytes]
    open: Callable[[bytes, Encoders | None], Predict]  # only safetensors needs the factories of users' encoders


FORMATS = {
    "onnx": Format(".onnx", "onnxruntime", to_onnx, from_onnx),
    "safetensors": Format(".safetensors", "autotransfer", to_safetensors, lambda *x: parse_file(*x).predict_proba),
    "torch": Format(".pt2", "torch", to_torch, from_torch),
}


@contextmanager
def _redirect_warnings() -> Iterator[None]:
    """Write warnings of the exporters to the log."""
    loggers = [logging.getLogger(name) for name in EXPORT_LOGGERS]
    levels = [export_logger.level for export_logger in loggers]
    for export_logger in loggers:
        export_logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            yield
    finally:
        for export_logger, level in zip(loggers, levels, strict=True):
            export_logger.setLevel(level)
    for warning in recorded:
        logger.debug("%s", " ".join(str(warning.message).split()))
