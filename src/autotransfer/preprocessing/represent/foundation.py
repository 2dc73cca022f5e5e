"""foundation: what an encoder that others have pretrained on many recordings makes of a window, and how strong the
window is.

The encoder is a class of braindecode with the weights of a repository (models/foundation.py). It stays frozen: a linear
classifier on its features, and nothing else, is fitted to the recordings at hand. random_foundation is the same class
with weights that nobody has trained: what the encoder gains beyond it is owed to the pretraining.

A setting names an encoder by a digest of all that it is and the number of its features,
"foundation:0123456789abcdef:200". The encoder itself is opened in this process, or comes with a saved model, which
holds each encoder once.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import register_module_parameter_registration_hook

from ...errors import UserError, one_line, shown
from ...recordings.layout import starts
from ...recordings.optional import need
from ...schema import parse_json
from ..transform import Fitted, Rows, Stage, with_prefix
from .base import InGraph, Representation, in_pieces
from .pretrained import at_one_scale, in_layout, rates_fit

KIND_NAMES = {  # as a label, and inside a sentence
    "foundation": ("Foundation encoder", "the foundation encoder"),
    "random_foundation": ("Untrained foundation encoder", "the foundation encoder with untrained weights"),
}
KINDS = tuple(KIND_NAMES)  # trained, untrained
NAME = re.compile(r"(foundation|random_foundation):([0-9a-f]{16}):([1-9][0-9]{0,4})")
PARTS = {"channels": 2, "rates": 1, "config": 1, "weights": 1}  # tensors of an encoder, with their dimensions
Shapes = Mapping[str, tuple[int, ...]]  # of tensors by name
STORED = "foundation."  # before digest and part, where a model's file has them
HEADS = ("final_layer.", "head.", "classifier.")  # tensors that features do not need
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # types that weights may have
MOST_TENSORS = 10_000  # of a network
MOST_UNUSED = 10**8  # numbers of a network beyond its weights: a head may be missing
ROOM = 64  # numbers that an encoder needs for each sample of a window, about
MOST = 10**6  # of an option: larger ones are typos or malice


def is_foundation(name: object) -> bool:
    """Whether a representation has this name because it is of a foundation encoder."""
    return isinstance(name, str) and name.partition(":")[0] in KINDS


# ---- the network -----------------------------------------------------------------------------------------------------


def braindecode_models(purpose: str) -> dict[str, type[nn.Module]]:
    """braindecode's models by name."""
    models = need("braindecode.models", purpose, "braindecode")
    known = {name: getattr(models, name) for name in dir(models)}
    return {name: kind for name, kind in known.items() if isinstance(kind, type) and issubclass(kind, nn.Module)}


def build_encoder(model: str, options: Mapping[str, Any], seed: int = 0) -> nn.Module:
    """A model of braindecode as these options make it, untrained, without the layer that classifies."""
    kind = braindecode_models(f"the foundation encoder {shown(model)}").get(model)
    if kind is None:
        raise UserError(f"braindecode has no model {shown(model)}; give the name of one of its classes")
    parameters = inspect.signature(kind).parameters
    taken = {name: _value(parameters[name], value) for name, value in options.items() if name in parameters}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = kind(**taken)
        except Exception as error:  # whatever it may raise, its options do not fit
            raise UserError(
                f"braindecode's {model} cannot be made as its config.json says ({one_line(error)})"
            ) from None
    if isinstance(getattr(module, "final_layer", None), nn.Module):
        module.final_layer = nn.Identity()
    return module.eval().requires_grad_(False)


def build_fitting(model: str, options: Mapping[str, Any], stored: int, fits: Callable[[Shapes], None]) -> nn.Module:
    """The same for weights of that many numbers, where `fits` does not raise: it is given the shapes of the network's
    floating tensors, before memory is taken for them unless the class needs their values while it is made."""
    for device in ("meta", "cpu"):  # some classes look at values that are no weights while they are made
        sizes: list[int] = []
        try:
            with torch.device(device), _without_memory(sizes):
                shapes = _shapes(build_encoder(model, options))
        except UserError:
            if len(sizes) > MOST_TENSORS:
                raise
            continue
        fits(shapes)
        if (size := sum(sizes)) > stored + MOST_UNUSED:
            raise UserError(f"config.json of {model} makes a network of {size} numbers, and there are {stored}")
        break
    module = build_encoder(model, options)
    fits(_shapes(module))
    return module


def build_pretrained(model: str, options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Module:
    """The network with these weights, all of them but those of a head."""

    def fits(shapes: Shapes) -> None:
        lacking = [name for name in shapes if name not in weights and not name.startswith(HEADS)]
        if lacking:
            raise UserError(
                f"the weights of {model} lack {len(lacking)} tensors ({lacking[0]} …); they are of another model"
            )
        for name, shape in shapes.items():
            tensor = weights.get(name)
            if tensor is not None and tensor.dtype not in FLOATS:
                raise UserError(f"{name} of the weights of {model} holds {tensor.dtype}; store it as float32")
            if tensor is not None and tuple(tensor.shape) != shape:
                raise UserError(
                    f"the weights of {model} do not fit what config.json says ({name} has the shape "
                    f"{tuple(tensor.shape)}, not {shape})"
                )

    module = build_fitting(model, options, sum(tensor.numel() for tensor in weights.values()), fits)
    try:
        module.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # of another shape: a tensor that is no number of the network
        raise UserError(f"the weights of {model} do not fit what config.json says ({one_line(error)})") from None
    return module


def _shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in floating(module).items()}


@contextmanager
def _without_memory(sizes: list[int]) -> Iterator[None]:
    """Parameters of modules that this thread makes are on the device meta; their sizes are appended."""
    thread = get_ident()

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> Any:
        if parameter is None or get_ident() != thread:
            return parameter
        sizes.append(parameter.numel())
        if len(sizes) > MOST_TENSORS:
            raise ValueError(f"it has more than {MOST_TENSORS} tensors")
        return nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)

    handle = register_module_parameter_registration_hook(on_meta)
    try:
        yield
    finally:
        handle.remove()


def _value(parameter: inspect.Parameter, value: Any) -> Any:
    """An option as config.json holds it; classes are layers of torch.nn by name, and nothing else is imported."""
    if isinstance(value, (int, float)) and not abs(value) <= MOST:
        raise UserError(f"{parameter.name} of a foundation encoder is {shown(value)}; it must be at most {MOST}")
    if isinstance(parameter.default, type) and isinstance(value, str):
        layer = getattr(nn, value.rpartition(".")[2], None)
        if not (isinstance(layer, type) and issubclass(layer, nn.Module)):
            raise UserError(f"{parameter.name} of a foundation encoder is {shown(value)}; it must be of torch.nn")
        return layer
    return value


def floating(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and floating buffers by name: the rest is made with the module."""
    return {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


def features(module: nn.Module, x: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
    """Windows (n, C, T) -> (n, D): `features` of what the model returns with return_features, where it knows that word,
    else what would go into its final layer. Of several tokens (n, ..., D) it is the mean. weights: by name, in place of
    the module's."""
    known = {"return_features": True} if "return_features" in inspect.signature(module.forward).parameters else {}
    given: Any = module(x, **known) if weights is None else functional_call(module, dict(weights), (x,), known)
    if isinstance(given, Mapping):
        given = given.get("features")
    if not isinstance(given, Tensor) or given.dim() < 2 or given.shape[0] != x.shape[0]:
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"its features are {shape}, and not a tensor with a row for each of {x.shape[0]} windows")
    return given.flatten(1, -2).mean(1) if given.dim() > 2 else given


# ---- an encoder for one layout of windows ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoder:
    """A network, and how windows are made what it knows.

    config: name of its class ("model") and what that is made with ("options")
    channels: (channels of the encoder, channels of the recordings)
    rates: Hz of the recordings and of the encoder, samples of the encoder's windows
    """

    config: dict[str, Any]
    module: nn.Module
    channels: Tensor
    rates: tuple[float, float, int]

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor]) -> Encoder:
        """From what `tensors` gave; ValueError where they are no encoder."""
        for part, dimensions in PARTS.items():
            if part not in tensors or tensors[part].dim() != dimensions:
                raise ValueError(f"the tensor {part} of a foundation encoder is missing or has another shape")
        config = parse_json(bytes(tensors["config"].tolist()))
        if not (isinstance(config, dict) and isinstance(config.get("options"), dict)):
            raise ValueError("the config of a foundation encoder is no JSON object")
        model, options, flat = str(config.get("model")), config["options"], tensors["weights"]

        def fits(shapes: Shapes) -> None:
            if sum(map(math.prod, shapes.values())) != flat.numel() or flat.dtype not in FLOATS:
                raise ValueError(f"a foundation encoder has {flat.numel()} weights, and its network has others")

        module = build_fitting(model, options, flat.numel(), fits)
        wanted = floating(module)
        pieces = torch.split(flat, [tensor.numel() for tensor in wanted.values()])
        module.load_state_dict(
            {name: piece.view_as(wanted[name]) for name, piece in zip(wanted, pieces, strict=True)}, strict=False
        )
        if tensors["rates"].shape != (3,):
            raise ValueError(f"a foundation encoder has {len(tensors['rates'])} rates")
        rate, encoder_rate, times = tensors["rates"].tolist()
        rates = (rate, encoder_rate, int(times) if 0 < times <= MOST else 0)
        encoder = cls(config, module, tensors["channels"], rates)
        encoder.check()
        return encoder

    def check(self) -> None:
        """Raise a ValueError where it can take no windows."""
        rate, wanted, times = self.rates
        if not (rates_fit(rate, wanted) and 1 <= times <= MOST):
            raise ValueError(f"rates and window of a foundation encoder are {self.rates}")
        weights = [self.channels, *floating(self.module).values()]
        if not all(bool(tensor.isfinite().all()) for tensor in weights):
            raise ValueError("weights of a foundation encoder are not finite")

    def tensors(self) -> dict[str, Tensor]:
        """All that it is."""
        weights = [tensor.detach().float().cpu().flatten() for tensor in floating(self.module).values()]
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":")).encode()
        return {
            "channels": self.channels.clone(),  # a file cannot hold what two encoders share
            "rates": torch.tensor(self.rates, dtype=torch.float64),
            "config": torch.tensor(list(text), dtype=torch.uint8),
            "weights": torch.cat(weights) if weights else torch.zeros(0),
        }

    def on(self, device: torch.device) -> Encoder:
        """Itself, with its network on a device."""
        if device.type == "meta":
            raise RuntimeError("a foundation encoder has values, and windows on the device meta have none")
        if any(tensor.device != device for tensor in floating(self.module).values()):
            self.module.to(device)
        return self

    @torch.no_grad()
    def numbers(self, x: Tensor) -> Tensor:
        """Windows (n, C, T) -> features and log level (n, 1, D + 1), the mean over pieces."""
        x, times = in_layout(x.to(torch.float32), self.channels, *self.rates), self.rates[2]
        self.on(x.device)
        pieces = []
        for at in starts(int(x.shape[-1]), times):
            scaled, level = at_one_scale(x[..., at : at + times])
            pieces.append(torch.cat([features(self.module, scaled), level.log()], 1))
        return torch.stack(pieces).mean(0)[:, None]


_opened: dict[str, Encoder] = {}  # by the digest that settings have


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    from safetensors.torch import save  # where nobody asks for such an encoder, nobody needs it

    body = save({name: tensor.contiguous() for name, tensor in sorted(tensors.items())})
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def seed_of(text: str) -> int:
    """Of networks that nobody has trained."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def know(encoder: Encoder) -> str:
    """Register an encoder, so that settings of this process can name it; returns its digest."""
    digest = digest_of(encoder.tensors())
    _opened[digest] = encoder
    return digest


def stored_encoders(card: object) -> dict[str, Tensor]:
    """Tensors of all encoders that a model's card names, frozen or learning on (model/adapters.py), which belong into
    its file."""
    digests = {digest for _, digest, _ in NAME.findall(json.dumps(card))}
    return {
        f"{STORED}{digest}.{part}": tensor
        for digest in sorted(digests)
        for part, tensor in opened(digest).tensors().items()
    }


def take_stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model's file without its encoders, which are opened."""
    digests = {name.split(".")[1] for name in tensors if name.startswith(STORED)}
    for digest in digests - set(_opened):
        parts = with_prefix(f"{STORED}{digest}.", tensors)
        if set(parts) != set(PARTS) or digest_of(parts) != digest:
            raise ValueError(f"the foundation encoder {shown(digest)} is not what the model was saved with")
        _opened[digest] = Encoder.restore(parts)
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(STORED)}


def opened(digest: str) -> Encoder:
    """The encoder of this digest, of those that this process knows."""
    if digest not in _opened:
        raise UserError(f"the foundation encoder {digest} is not open here; give it again: --base, or base=")
    return _opened[digest]


# ---- the representation ----------------------------------------------------------------------------------------------


@cache
def foundation_class(name: str) -> type[Foundation]:
    """The representation of that name."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise UserError(f"represent is {shown(name)}; a foundation encoder is written as foundation:DIGEST:FEATURES")
    return type("Foundation", (Foundation,), {"digest": parts[2], "n_features": int(parts[3])})


@dataclass(frozen=True)
class Foundation(Representation):
    digest: ClassVar[str] = ""
    n_features: ClassVar[int] = 0

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, self.n_features + 1

    def numbers(self, x: Tensor) -> Tensor:
        return opened(self.digest).numbers(x)

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return FittedFoundation(opened(self.digest))

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        return FittedFoundation(opened(self.digest))


class FittedFoundation(Fitted):
    """Without statistics of its own."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        samples = len(self.encoder.channels) * max(self.encoder.rates[2], int(x.shape[-1]))
        return in_pieces(x, self.encoder.numbers, ROOM * samples)

    def graph(self) -> nn.Module:
        return InGraph(self.encoder.numbers, self.encoder.module)
