"""A trained model on disk: weights as safetensors, everything else it needs to know as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..errors import UserError, check_types
from ..model.encoders import Encoders, make_encoder
from ..model.layers import Linear
from ..recordings.standardise import affine, apply
from ..settings import Setting
from .files import write_atomically

CHUNK = 256


@dataclass(frozen=True)
class ModelCard:
    """What a model was made for."""

    name: str  # of the data set
    kind: str  # ensemble, refit or single
    members: int
    setting: dict[str, Any]
    n_times: int
    channels: list[str]
    sfreq: float | None
    classes: list[Any]
    kernel: int
    subjects: int  # whom it was trained on
    scores: dict[str, Any]

    def __post_init__(self) -> None:
        check_types(self)
        if not all(isinstance(name, str) for name in self.channels):
            raise UserError("the channels of a model are not all names")
        sizes = {"members": self.members, "channels": len(self.channels), "classes": len(self.classes)}
        if self.setting.get("encoder", "eegnet") == "eegnet":  # other encoders have no temporal filters of ours
            sizes["kernel"] = self.kernel
        for name, size in sizes.items():
            if size < 1:
                raise UserError(f"{name} of a model is {size}, it must be at least 1; make the model again with resume")


class SavedModel:
    """An ensemble: the mean of its members' probabilities. Takes raw windows, standardises them itself."""

    def __init__(self, card: ModelCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> None:
        self.card, self.setting = card, Setting(**card.setting)
        self.shift, self.gain = tensors.get("standardise.shift"), tensors.get("standardise.gain")  # (members, C)
        self.net = make_encoder(
            self.setting, encoders, n_channels=len(card.channels), n_times=card.n_times,
            n_classes=len(card.classes), sfreq=card.sfreq, kernel=card.kernel, members=card.members,
            seeds=range(card.members),
        )  # fmt: skip
        self.classifier = Linear(card.members, self.net.latent_dim, len(card.classes), seeds=range(card.members))
        for prefix, module in (("encoder.", self.net), ("classifier.", self.classifier)):
            own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            constants = {k: v for k, v in module.state_dict().items() if not v.is_floating_point()}
            module.load_state_dict(constants | own)
            module.eval()

    def check(self, X: Tensor, channels: Sequence[str] | None, sfreq: float | None) -> None:
        """Refuse windows that the model was not made for, naming the difference."""
        card = self.card
        if X.shape[1] != len(card.channels):
            raise UserError(f"the model takes {len(card.channels)} channels, the data have {X.shape[1]}")
        if channels is not None and list(channels) != card.channels:
            place = next(i for i, (a, b) in enumerate(zip(channels, card.channels, strict=True)) if a != b)
            raise UserError(
                f"channel {place} of the data is {channels[place]!r}, the model expects {card.channels[place]!r}; "
                "bring the channels into the model's order"
            )
        if sfreq is not None and card.sfreq is not None and abs(sfreq - card.sfreq) > 1e-6 * card.sfreq:
            raise UserError(f"the data are sampled at {sfreq:g} Hz, the model expects {card.sfreq:g} Hz; resample them")
        if X.shape[2] != card.n_times:
            raise UserError(
                f"windows of the data have {X.shape[2]} samples, the model expects {card.n_times}; cut them anew"
            )

    @torch.no_grad()
    def predict_proba(self, X: Tensor, subject: Tensor | None = None) -> NDArray[np.float64]:
        """Raw windows (N, channels, times) -> (N, classes). `subject` (N,) matters to standardise="subject" alone."""
        probability: Tensor = self.classifier(self.latents(X, subject)).double().softmax(-1).mean(0)
        return probability.numpy()

    @torch.no_grad()
    def latents(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        """The same windows -> codes z (members, N, D)."""
        X = X.to(torch.float32)
        kind = self.setting.standardise
        if kind == "subject" and subject is None:
            subject = torch.zeros(len(X), dtype=torch.long)  # one person, whose own windows set the scale
        if kind != "channel":
            shift, gain, index = affine(X, subject, kind)
        parts = []
        for start in range(0, len(X), CHUNK):
            x = X[start : start + CHUNK]
            if kind == "channel":
                assert self.shift is not None
                assert self.gain is not None
                x = apply(x[None], self.shift[:, None], self.gain[:, None])  # every member has its own statistics
            else:
                rows = index[start : start + CHUNK]
                x = apply(x, shift[rows], gain[rows])
            parts.append(self.net(x))
        return torch.cat(parts, 1)


def save_model(folder: Path, card: ModelCard, tensors: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    body = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    write_atomically(folder / "model.safetensors", body)
    write_atomically(folder / "model.json", json.dumps(asdict(card), indent=1))


def load_model(folder: Path, encoders: Encoders | None = None) -> SavedModel:
    """The model in a folder; anything that is not one is refused in one line."""
    try:
        card = ModelCard(**json.loads((folder / "model.json").read_text()))
        return SavedModel(card, load((folder / "model.safetensors").read_bytes()), encoders)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"there is no model in {folder} ({Path(error.filename).name} is missing)") from None
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the model in {folder} cannot be read ({reason}); make it again with resume") from None
