"""Models made from tensors and from other models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.model.encoders import Encoders
from autotransfer.models.card import CandidateCard, ModelCard
from autotransfer.models.model import Model
from autotransfer.preprocessing.transform import select_prefix
from autotransfer.recordings.signal import Signal


def single(setting: at.Setting, tensors: dict[str, Tensor], encoders: Encoders | None = None, **card: Any) -> Model:
    """A model of one candidate. card: fields of its card."""
    parts = [CandidateCard(setting.to_dict(), len(tensors["classifier.bias"]))]
    named = {f"candidates.0.{name}": tensor for name, tensor in tensors.items()}
    if "signal" not in card:
        card["signal"] = Signal(channels=tuple(card.pop("channels")), sfreq=card.pop("sfreq"))
    made = ModelCard(weights=[1.0], candidates=parts, **{"scores": {}} | card)
    return Model.restore(made, named, encoders)


def changed(model: Model, tensors: dict[str, Tensor], **values: Any) -> Model:
    """The model of one candidate with further tensors and other values of its setting."""
    (part,) = model.card.candidates
    card = replace(model.card, candidates=[replace(part, setting=part.setting | values)])
    own = select_prefix("candidates.0.", model.tensors()) | tensors
    return Model.restore(card, {f"candidates.0.{name}": tensor for name, tensor in own.items()})


def weighted(models: Sequence[Model], weights: Sequence[float], scores: dict[str, Any] | None = None) -> Model:
    """The ensemble of the candidates of several models."""
    parts = [part for model in models for part in model.candidates]
    card = replace(
        models[0].card, candidates=[part.card for part in parts], weights=[float(e) for e in weights],
        scores=scores or {},
    )  # fmt: skip
    return Model(card, parts)


def alone(model: Model) -> list[Model]:
    """Each candidate as a model."""
    return [
        Model(
            replace(
                model.card,
                candidates=[part.card],
                weights=[1.0],
                online=None,
                session_method=None,
                transductive_method=None,
            ),
            [part],
        )
        for part in model.candidates
    ]


def with_known(model: Model, **known: Any) -> Model:
    """The model of one candidate with other effects, centering or correction."""
    return Model(model.card, [replace(part, **known) for part in model.candidates])


@torch.no_grad()
def by_layers(model: Model, X: Tensor) -> np.ndarray:
    """Probabilities (N, classes) of a model of one candidate by the network as it was trained, layer by layer."""
    (part,) = model.candidates
    x = part.preprocessing.start_subject().feed(X)
    z = part.members.net(x[0] if len(x) == 1 else x)
    return part.members.classifier(z).double().softmax(-1).mean(0).numpy()
