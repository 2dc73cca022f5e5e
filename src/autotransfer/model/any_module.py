"""Stack of copies of any torch.nn.Module. Members run batched by torch.func if possible, otherwise one by one.

The module maps windows (B, channels, times) to a tensor with B on axis 0, which is flattened to latents (B, D).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from ..errors import UserError, one_line
from ..randomness import fold_in, uniform
from .norm_pool import draw_keys
from .stack import Size, Stack

Factory = Callable[..., nn.Module]

# Names of the arguments of networks in braindecode, torcheeg and other libraries
ARGUMENT_NAMES = {
    "n_channels": ("n_channels", "n_chans", "in_chans", "num_electrodes"),
    "n_times": ("n_times", "n_samples", "input_window_samples", "chunk_size"),
    "n_outputs": ("n_outputs", "n_classes", "num_classes"),
    "sfreq": ("sfreq",),
}


def build(factory: Factory, size: Size) -> nn.Module:
    """Call a user's factory with arguments in ARGUMENT_NAMES that it has, otherwise as factory(n_channels, n_times).

    The `final_layer` of a module, which is the classifier in braindecode, is replaced by the identity.
    """
    try:
        names = [n for n, p in inspect.signature(factory).parameters.items() if p.kind is not p.VAR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    values = {"n_channels": size.channels, "n_times": size.times, "n_outputs": size.classes, "sfreq": size.sfreq}
    keywords = {name: values[key] for key, aliases in ARGUMENT_NAMES.items() for name in aliases if name in names}
    has_keywords = any(name in keywords for name in ARGUMENT_NAMES["n_channels"])
    try:
        module = factory(**keywords) if has_keywords else factory(size.channels, size.times)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # the error comes from inside the factory
        raise UserError(
            f"the encoder's factory cannot be called ({one_line(error)}); give a class or function (n_channels, "
            "n_times) -> nn.Module"
        ) from None
    if not isinstance(module, nn.Module):
        raise UserError(f"the encoder's factory returned {type(module).__name__}; it must return a torch.nn.Module")
    if isinstance(getattr(module, "final_layer", None), nn.Module):
        module = copy.deepcopy(module)
        module.final_layer = nn.Identity()
    return module


class AnyModule(Stack):
    """Stack of P modules from one factory.

    Integer buffers are constants that all members share. Dropout is drawn from keys, as in EEGNet. A module with other
    random operations, or with operations that torch.func cannot batch, runs member by member.
    """

    is_capturable = False  # a user's module may contain operations that a CUDA graph cannot capture

    def __init__(self, make: Callable[[], nn.Module], size: Size, members: int, *, seeds: Sequence[int]) -> None:
        super().__init__()
        self.members = members
        window = torch.zeros(2, size.channels, size.times)
        modules: list[nn.Module] = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                module = make()
                if any(module is other for other in modules):
                    module = copy.deepcopy(module)
                self.latent_dim = latent_dim(module, window)  # also initializes lazy modules
            modules.append(module)
        self.module = _stack(modules)
        self.is_stacked = self._can_stack(window)

    def forward(
        self, x: Tensor, *, group: Tensor | None = None, noise: Tensor | None = None, active: Tensor | None = None,
        **_: object,
    ) -> Tensor:  # fmt: skip
        """Return latents (P, B, D). See `EEGNet.forward` for keywords; `moments` and `drop` are ignored."""
        if x.dim() == 3:
            x = x.expand(self.members, *x.shape)
        elif group is not None:
            x = x[group]
        if noise is None:
            keys = draw_keys(self.members, x.device)
        else:
            keys = noise[group] if group is not None else noise
        z, new_buffers = self._run(self.is_stacked, x, keys)
        if self.training:
            with torch.no_grad():
                for name, new in new_buffers.items():
                    old = self.module.get_buffer(name)
                    is_new = None if active is None else active.view(-1, *[1] * (new.dim() - 1))
                    old.copy_(new if is_new is None else torch.where(is_new, new, old))
        return z

    def _run(self, is_stacked: bool, x: Tensor, keys: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return z (P, B, D) and copies of the updated floating buffers; autograd may need the old values."""
        parameters: dict[str, Tensor] = dict(self.module.named_parameters())
        buffers = {name: b for name, b in self.module.named_buffers() if b.is_floating_point()}
        if is_stacked:
            copies = {name: buffer.clone() for name, buffer in buffers.items()}
            z, new_buffers = vmap(self._run_member, randomness="error")(parameters, copies, x, keys)
            return z, new_buffers
        devices = [x.device] if x.device.type == "cuda" else []
        seeds = keys.tolist() if self.training else [0] * self.members
        outputs = []
        for member, seed in enumerate(seeds):
            weights = {name: tensor[member] for name, tensor in parameters.items()}
            stats = {name: tensor[member].clone() for name, tensor in buffers.items()}
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(seed)
                outputs.append(self._run_member(weights, stats, x[member], keys[member]))
        latents, states = zip(*outputs, strict=True)
        return torch.stack(latents), {name: torch.stack([state[name] for state in states]) for name in buffers}

    def _run_member(
        self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, key: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return one member's latents (B, D) of windows (B, channels, times), and the updated buffers."""
        constants = {n: b.clone() for n, b in self.module.named_buffers() if not b.is_floating_point()}
        with _KeyedDropout(key):
            z: Tensor = functional_call(self.module, (parameters, buffers, constants), (x,))
        return z.flatten(1), buffers

    def _can_stack(self, window: Tensor) -> bool:
        """Return whether torch.func can batch the module without changing outputs and gradients."""
        if self.members == 1:
            return False
        x = torch.linspace(-1, 1, window.numel()).view(window.shape).sin().expand(self.members, *window.shape)
        keys = torch.arange(self.members, dtype=torch.int32)
        outputs = []
        try:
            for is_stacked in (False, True):
                z, new_buffers = self._run(is_stacked, x, keys)
                gradients = torch.autograd.grad(
                    z.square().sum(), list(self.module.parameters()), materialize_grads=True
                )
                outputs.append([z, *gradients, *new_buffers.values()])
        except Exception:  # if a user's module raises any error under vmap, it cannot be batched
            return False
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(*outputs, strict=True))

    def graph(self) -> nn.Module:
        return AnyModuleGraph(self.module, self.members)


def saved_bytes(make: Callable[[], nn.Module], size: Size, batch: int) -> int:
    """Return the bytes of float32 tensors that autograd saves for `batch` windows, extrapolated from 2 and 4."""
    totals: list[int] = []

    def add_size(tensor: Tensor) -> Tensor:
        totals[-1] += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng(devices=[]):
        module, windows = make(), torch.zeros(4, size.channels, size.times)
        latent_dim(module, windows)
        for n in (2, 4):
            totals.append(0)
            with torch.autograd.graph.saved_tensors_hooks(add_size, lambda tensor: tensor):
                module.train()(windows[:n])
    bytes_of_two, bytes_of_four = totals
    return bytes_of_two + (batch - 2) * (bytes_of_four - bytes_of_two) // 2


def latent_dim(module: nn.Module, window: Tensor) -> int:
    """Return the number of latents per window; raise UserError if the module fails on windows (2, channels, times)."""
    training = module.training
    try:
        with torch.no_grad():
            z = module.eval()(window)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the encoder cannot take windows of shape {tuple(window.shape)}: {reason}") from error
    finally:
        module.train(training)
    if not isinstance(z, Tensor) or z.dim() < 2 or len(z) != len(window):
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise UserError(f"the encoder returned {shape} for {len(window)} windows; return one row per window")
    return math.prod(z.shape[1:])


def _stack(modules: Sequence[nn.Module]) -> nn.Module:
    """Return a copy of the first module with the parameters and floating buffers of all members (P, ...)."""
    skeleton = copy.deepcopy(modules[0]).train()
    for name, layer in skeleton.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is None and layer.track_running_stats:
            raise UserError(f"layer {name!r} of the encoder has momentum=None; give it a number such as 0.1")
        layers = [module.get_submodule(name) for module in modules]
        for key, parameter in list(layer._parameters.items()):
            if parameter is not None:
                stacked = torch.stack([_get_tensor(source._parameters, name, key, parameter) for source in layers])
                if parameter.requires_grad:
                    layer._parameters[key] = nn.Parameter(stacked)
                else:  # frozen weights become buffers, which no optimizer updates
                    del layer._parameters[key]
                    layer.register_buffer(key, stacked)
        for key, buffer in list(layer._buffers.items()):
            if buffer is None or key in layers[0]._parameters:
                continue
            buffers = [_get_tensor(source._buffers, name, key, buffer) for source in layers]
            if buffer.is_floating_point():
                layer._buffers[key] = torch.stack(buffers)
            elif any(not torch.equal(tensor, buffers[0]) for tensor in buffers[1:]):
                raise UserError(
                    f"the integer buffer {key!r} of the encoder's layer {name!r} differs between initializations; "
                    "make it constant or floating"
                )
    return skeleton


def _get_tensor(tensors: dict[str, Any], layer: str, key: str, like: Tensor) -> Tensor:
    tensor = tensors.get(key)
    if not isinstance(tensor, Tensor) or tensor.shape != like.shape:
        parameter = f"{layer}.{key}".strip(".")
        raise UserError(f"encoders of one factory have different shapes of {parameter!r}; return equal shapes")
    return tensor.detach()


# Number of trailing axes over which a dropout function shares a draw
_SHARED_AXES: dict[Callable[..., Tensor], int] = {F.dropout: 0, F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}


class _KeyedDropout(TorchFunctionMode):
    """Context in which dropout draws depend on `key` () and the number of the call, also under vmap."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key, self.calls = key, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _SHARED_AXES:
            return func(*args, **(kwargs or {}))
        return self._dropout(*args, shared_axes=_SHARED_AXES[func], **(kwargs or {}))

    def _dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, shared_axes: int
    ) -> Tensor:
        self.calls += 1
        if not training or p == 0:
            return input
        shape = (*input.shape[: input.dim() - shared_axes], *[1] * shared_axes)
        is_kept = (uniform(fold_in(self.key, self.calls), math.prod(shape)).view(shape) >= p).to(input.dtype)
        scale = is_kept / (1 - p) if p < 1 else is_kept
        return input.mul_(scale) if inplace else input * scale


class AnyModuleGraph(nn.Module):
    """Graph for export with one call of the module per member: windows (P or 1, N, C, T) -> latents (P, N, D)."""

    def __init__(self, stack: nn.Module, members: int) -> None:
        super().__init__()
        self.stack, self.members = copy.deepcopy(stack).requires_grad_(False), members

    def forward(self, x: Tensor) -> Tensor:
        tensors = dict([*self.stack.named_parameters(), *self.stack.named_buffers()])
        latents = []
        for member in range(self.members):
            own = {name: t[member] if t.is_floating_point() else t for name, t in tensors.items()}
            z: Tensor = functional_call(self.stack, own, (x[min(member, x.shape[0] - 1)],))
            latents.append(z.flatten(1))
        return torch.stack(latents)
