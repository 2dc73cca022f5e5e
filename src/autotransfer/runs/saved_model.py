"""A trained model on disk: weights as safetensors, everything else it needs to know as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..errors import UserError, check_choice, check_positive, check_types, one_line
from ..model.encoder import Size
from ..model.encoders import Encoders
from ..preprocessing import Person
from ..recordings.filters import filter_of
from ..recordings.windows import people_of_windows, windows_for_model
from ..settings import Setting
from ..training.centring import Centring, check_centring
from ..training.effects import Effects
from ..training.members import Members
from .binding import DIGEST, check_digest, check_file, digest_of
from .files import read_plain, sync_folder, write_atomically
from .model_page import model_page

if TYPE_CHECKING:
    from .mixture import MixtureCard, Model

WEIGHTS, NEXT = "model.safetensors", "model.next.safetensors"  # the second until the card of the same model is there
CHUNK = 256
TINY = 1e-300  # probabilities below count as this: 0 has no logarithm


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
    subjects: int  # whom it was trained on
    scores: dict[str, Any]
    # How a person is followed without labels, "none" where held-out people did not gain; None: nobody has looked.
    follows: str | None = None
    calibrates: list[int] | None = None  # labelled windows of each class that they gained by
    filter: dict[str, Any] | None = None  # how its recordings were filtered, where that is known
    scale: float | None = None  # how much their windows vary, in their unit (see recordings.concerns)
    seen: dict[str, Any] = field(default_factory=dict)  # digests of what it was made from (see seen.py)

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "sfreq", "n_times", "scale")
        filter_of(self.filter, self.sfreq)
        if not all(isinstance(name, str) for name in self.channels):
            raise UserError("the channels of a model are not all names")
        sizes = {"members": self.members, "channels": len(self.channels), "classes": len(self.classes)}
        for name, size in sizes.items():
            if size < 1:
                raise UserError(f"{name} of a model is {size}, it must be at least 1; make the model again with resume")


class Correction(NamedTuple):
    """What is known of one person, as something to add to the log-probabilities of an ensemble."""

    weight: Tensor  # (P, D, C)
    bias: Tensor  # (P, C)

    def __call__(self, z: Tensor) -> Tensor:
        """Codes (P, n, D) -> (n, C), the mean over members, float64."""
        return (torch.matmul(z, self.weight) + self.bias[:, None]).double().mean(0)


class SavedModel:
    """An ensemble: the mean of its members' probabilities. Takes raw windows and prepares them itself.

    effects: how people differ in the members' codes; None where nobody has looked
    centring: where the logits of training people lie; of parts that are centred by person in a session
    correction: weights (P, D, C) and bias (P, C) of what is added to the log-probabilities, the mean over members,
        because of what is known of one person; None: the model is everybody's
    """

    def __init__(self, card: ModelCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> None:
        self.card, self.setting = card, Setting.from_dict(card.setting)
        self.preprocessing = self.setting.preprocessing.restore(_named("preprocessing", tensors))
        _check_statistics(self.preprocessing.state_dict(), card)
        channels, times = self.setting.preprocessing.shape(len(card.channels), card.n_times)
        self.size = Size(channels, times, len(card.classes), card.sfreq)
        self.members = Members(self.setting, self.size, range(card.members), encoders=encoders)
        self.members.load_stacked(tensors)
        self.net, self.classifier = self.members.net.eval(), self.members.classifier.eval()
        self.effects: Effects | None = _some(Effects, _named("effects", tensors))
        self.correction: Correction | None = _some(Correction, _named("correction", tensors))
        self.centring: Centring | None = _some(Centring, _named("centring", tensors))
        self._check_people()

    def tensors(self) -> dict[str, Tensor]:
        """What `save_model` writes."""
        found = self.members.tensors()
        own = {
            "preprocessing": self.preprocessing.state_dict(), "effects": self.effects, "correction": self.correction,
            "centring": self.centring,
        }  # fmt: skip
        for prefix, some in own.items():
            some = some._asdict() if isinstance(some, tuple) else some or {}
            found |= {f"{prefix}.{name}": tensor for name, tensor in some.items()}
        return found

    def _check_people(self) -> None:
        """Raise where what is known of people does not fit the members."""
        dim, classes = self.members.latent_dim, len(self.card.classes)
        if self.effects is not None:
            rank = self.effects.projection.shape[-1]
            _check_shapes("effects", self.effects, [(dim, rank), (classes, rank), (rank,), (rank,)])
            if not (self.effects.shift > 0).all() or not (self.effects.interaction > 0).all():
                raise ValueError("a variance of effects is not above 0")
        if self.correction is not None:
            _check_shapes("correction", self.correction, [(dim, classes), (classes,)])
        if self.centring is not None:
            check_centring(self.centring, self.card.members, classes)

    @property
    def parts(self) -> list[SavedModel]:
        """Itself: a mixture has several."""
        return [self]

    @property
    def adaptation(self) -> str:
        """What a new person's own unlabelled windows are used for: see `Preprocessing.adaptation`."""
        return self.setting.adaptation

    def check(self, X: object, channels: object = None, sfreq: float | None = None) -> Tensor:
        """Windows (N, channels, times) float32 that the model takes; any others are refused, naming the difference."""
        return windows_for_model(X, self.card, channels, sfreq)

    @property
    def classes_(self) -> NDArray[Any]:
        """(classes,): what the columns of `predict_proba` stand for."""
        return as_array(self.card.classes)

    def predict(self, X: object, subject: object = None, *, adapt: str | None = None) -> NDArray[Any]:
        """The likeliest class of each window (N,), one of `classes_`; the rest as of `predict_proba`."""
        predicted: NDArray[Any] = self.classes_[self.predict_proba(X, subject, adapt=adapt).argmax(1)]
        return predicted

    def predict_proba(self, X: object, subject: object = None, *, adapt: str | None = None) -> NDArray[np.float64]:
        """Raw windows (N, channels, times), an array or a tensor -> (N, classes).

        subject (N,): the subject of each window, which matters to settings that adapt to people: everybody by
        themselves, in the order of the rows. Without it all windows are one person's.
        adapt: "all" uses all windows of each person, without labels, where the model is an average that can
        """
        windows = self.check(X)
        return self.predict_checked(windows, people_of_windows(subject, len(windows)), adapt)

    def predict_checked(
        self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None
    ) -> NDArray[np.float64]:
        """The same for windows that `check` gave, and people as numbers (N,)."""
        if adapt is not None:
            check_choice("adapt", adapt, (None, "all"))
            raise UserError(
                "the model is no average that could use all windows of a person; leave adapt='all' out, or take the "
                "model of a run with the usual --preprocessing"
            )
        return self.probabilities(self.latents(X, subject))

    @torch.no_grad()
    def probabilities(self, z: Tensor) -> NDArray[np.float64]:
        """Codes (members, N, D) -> (N, classes)."""
        probability: Tensor = self.classifier(z).double().softmax(-1).mean(0)
        if self.correction is not None:
            probability = (probability.clamp(min=TINY).log() + self.correction(z)).softmax(-1)
        return probability.numpy()

    @torch.no_grad()
    def latents(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        """Windows that `check` gave, people (N,) as numbers -> codes z (members, N, D)."""
        if subject is None or self.setting.adaptation == "none":
            return self.codes(X, self.preprocessing.follow())
        z = torch.empty(self.card.members, len(X), self.members.latent_dim)
        for person in subject.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (subject == person).nonzero()[:, 0]
            z[:, rows] = self.codes(X[rows], self.preprocessing.follow())
        return z

    @torch.no_grad()
    def codes(self, X: Tensor, person: Person) -> Tensor:
        """The next raw windows (N, channels, times) of a person -> (members, N, D)."""
        X = X.to(torch.float32)
        at_once = person.feed(X) if person.at_once else None
        parts = []
        for start in range(0, len(X), CHUNK):
            rows = slice(start, start + CHUNK)
            x = person.feed(X[rows]) if at_once is None else at_once[:, rows]
            parts.append(self.net(x[0] if len(x) == 1 else x))
        return torch.cat(parts, 1)

    def features(self, X: object, subject: object = None) -> Tensor:
        """X and subject as of `predict_proba` -> the codes of all members side by side (N, n_features)."""
        windows = self.check(X)
        return self.latents(windows, people_of_windows(subject, len(windows))).transpose(0, 1).flatten(1)

    @property
    def n_features(self) -> int:
        return self.card.members * self.members.latent_dim


def as_array(classes: list[Any]) -> NDArray[Any]:
    """(classes,), each as it is: NumPy would make text of numbers beside text."""
    if len({type(value) for value in classes}) == 1:
        return np.array(classes)
    found = np.empty(len(classes), dtype=object)
    found[:] = classes
    return found


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with it, without it."""
    return {k.removeprefix(f"{prefix}."): t for k, t in tensors.items() if k.startswith(f"{prefix}.")}


def _some(kind: type[Any], tensors: dict[str, Tensor]) -> Any:
    """A named tuple of these tensors; None where there are none."""
    if tensors and set(tensors) != set(kind._fields):
        raise ValueError(f"{kind.__name__.lower()} has the tensors {sorted(tensors)}, not {sorted(kind._fields)}")
    return kind(**tensors) if tensors else None


def _check_shapes(name: str, found: tuple[Tensor, ...], shapes: Sequence[tuple[int, ...]]) -> None:
    for part, tensor, shape in zip(type(found)._fields, found, shapes, strict=True):  # type: ignore[attr-defined]  # a NamedTuple
        if tuple(tensor.shape[1:]) != shape or not torch.isfinite(tensor).all():
            raise ValueError(f"the tensor {name}.{part} is not finite of the shape (…, *{shape})")


def _check_statistics(statistics: dict[str, Tensor], card: ModelCard) -> None:
    """Every member has its own: broadcasting would hide a loss."""
    for name, tensor in statistics.items():
        if len(tensor) != card.members:
            shape = tuple(tensor.shape)
            raise ValueError(f"the tensor preprocessing.{name} has the shape {shape} for {card.members} members")


def save_model(folder: Path, model: Model | ModelCard | MixtureCard, tensors: dict[str, Tensor] | None = None) -> None:
    """A model of either kind, or its card and tensors; beside them a page for people."""
    card: Any = getattr(model, "card", model)
    found: dict[str, Tensor] = model.tensors() if tensors is None else tensors  # type: ignore[union-attr]  # no card
    folder.mkdir(parents=True, exist_ok=True)
    body = save({name: tensor.contiguous() for name, tensor in found.items()})
    values = json.loads(json.dumps(asdict(card)))
    # Whoever loads it meanwhile, or after a kill, finds the weights of whichever card is there (see `load_model`).
    write_atomically(folder / NEXT, body)
    write_atomically(folder / "model.json", json.dumps(values | {DIGEST: digest_of(values, body)}, indent=1))
    os.replace(folder / NEXT, folder / WEIGHTS)
    sync_folder(folder)
    write_atomically(folder / "README.md", model_page(card))


def load_model(folder: Path, encoders: Encoders | None = None) -> Model:
    """The model in a folder, a mixture or not; anything that is no model is refused in one line."""
    try:
        try:
            return _load(folder, WEIGHTS, encoders)
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError):
            # A run that is at work, or was killed, may be between the card and the weights of a new model.
            return _load(folder, NEXT if (folder / NEXT).exists() else WEIGHTS, encoders)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(_no_model(folder, Path(error.filename).name)) from None
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"the model in {folder} cannot be read ({one_line(error)}); make it again with resume"
        ) from None


def _load(folder: Path, file: str, encoders: Encoders | None) -> Model:
    path = folder / file
    values = json.loads(read_plain(folder / "model.json").decode())
    check_file(path, card_of(values))
    weights = read_plain(path)
    model = model_of(values, load(weights), encoders)
    check_digest(values, weights, card="model.json", file=path.name)
    return model


def _no_model(folder: Path, missing: str) -> str:
    """Why there is none: a run that has not made it yet, another model of a run, or no run at all."""
    run = folder.parent
    if (run / "ledger.sqlite").exists():
        return (
            f"{run} is an unfinished run and has no model yet: the first is there when its first stage has ended "
            f"(autotransfer status {run}); if it was interrupted, go on with: autotransfer resume {run}"
        )
    if folder.name == "refit" and (folder.parent / "model.json").exists():
        return f"the run made no refit model; leave --model refit out, or start a run with --final refit ({folder})"
    if not run.exists():
        return f"there is no folder {run}"
    return f"there is no model in {folder} ({missing} is missing)"


def model_of(values: Any, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Model:
    """From a card as JSON holds it, and tensors; whatever is wrong raises."""
    from .mixture import Mixture  # made of what is above

    card = card_of(values)
    if isinstance(card, ModelCard):
        return SavedModel(card, tensors, encoders)
    return Mixture.restore(card, tensors, encoders)


def card_of(values: Any) -> ModelCard | MixtureCard:
    """The card in what JSON held, which has its digest beside it."""
    from .mixture import card_from  # made of what is above

    return card_from({k: v for k, v in values.items() if k != DIGEST} if isinstance(values, dict) else values)
