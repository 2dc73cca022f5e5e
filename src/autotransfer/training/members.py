"""Members: P stacked networks, each an encoder and a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.encoders import Encoders, encoder_options
from ..model.layers import Linear
from ..model.stack import Size
from ..preprocessing.transform import select_prefix
from ..recordings import Recordings
from ..settings import Setting
from ..tasks import task_of


def size_of(recordings: Recordings, setting: Setting) -> Size:
    """Return the size of the encoder's input for a setting and recordings."""
    channels, times = setting.preprocessing.shape(recordings.n_channels, recordings.n_times)
    return Size(channels, times, task_of(recordings.target).n_outputs(recordings.n_classes), recordings.sfreq)


class Members:
    """P members of equal shapes; the member is axis 0 of every parameter and floating-point buffer."""

    def __init__(
        self,
        setting: Setting,
        size: Size,
        seeds: Sequence[int],
        *,
        encoders: Encoders | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        options = encoder_options(setting.encoder, setting.network, encoders)
        self.net = options.stack(size, len(seeds), seeds).to(device=device, dtype=dtype)
        self.latent_dim = self.net.latent_dim
        self.classifier = Linear(len(seeds), self.latent_dim, size.classes, seeds=[seed + 1 for seed in seeds])
        self.classifier.to(device=device, dtype=dtype)

    def __len__(self) -> int:
        return self.classifier.weight.shape[0]

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Return the modules by the prefix of their tensors in states and files."""
        return {"encoder": self.net, "classifier": self.classifier}

    def load(self, states: Sequence[dict[str, Tensor]]) -> None:
        """Load each member's weights from the state of an outcome."""
        for prefix, module in self.modules.items():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                if tensor.is_floating_point():
                    for member, state in enumerate(states):
                        tensor.data[member] = state[f"{prefix}.{name}"].to(tensor)

    def load_stacked(self, tensors: dict[str, Tensor]) -> None:
        """Load the weights of all members from tensors (P, ...) by name."""
        for prefix, module in self.modules.items():
            constants = {k: v for k, v in module.state_dict().items() if not v.is_floating_point()}
            module.load_state_dict(constants | select_prefix(f"{prefix}.", tensors))

    def tensors(self) -> dict[str, Tensor]:
        """Return parameters and floating-point buffers (P, ...) by name."""
        return {
            f"{prefix}.{name}": tensor
            for prefix, module in self.modules.items()
            for name, tensor in module.state_dict().items()
            if tensor.is_floating_point()
        }
