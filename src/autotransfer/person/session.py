"""Session: one person uses a model. Their windows come in order, and each is predicted from it and those before it."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..errors import UserError, one_line, shown
from ..files import read_plain, write_atomically
from ..model.encoders import Encoders
from ..models.binding import digest_of
from ..models.ensemble import refuse_parts
from ..models.loading import load_classifier
from ..models.mixture import Mixture, Model, normalised
from ..models.montage import Arrangement
from ..models.saved_model import SavedModel
from ..preprocessing import check_online
from ..recordings.labels import as_list
from ..recordings.windows import LARGEST, channel_places, missing_words, window_array
from ..runs.lock import refuse_links
from ..training.centring import Known
from ..training.conformal import decisions, least_confidence, least_probability, sets_at, unanswered_value
from ..training.sequence import LEAST, evidence, forward, usable_stay
from .adaptation import Adaptation
from .asking import RECENT, WORTH, Read, Recent, expected_gain
from .calibration import check_effects, following, labels_of
from .decoder import Decoder
from .labels import Labels
from .online import Follow

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

Array = NDArray[Any]
NEVER_NEGATIVE = ("counts", "count", "squares", "classes")  # of what adaptation remembers
MARK = "autotransfer_session"  # what the header of a session's file has
# What cards have said since 0.2. Where it is empty, the digest is that of a card without it: sessions that 0.1 saved
# still belong to their models.
ADDED = ("seen", "thresholds", "online", "stay")


class Session:
    """One person and a model: what a model that adapts learns of the person stays here, and the model as it is.

    model: a fitted estimator, a model that `load_model` gave, or the folder of a run or of a model
    adapt: learn from the person's windows, without labels, in the way that held-out people gained most by: with an
        average of its own (person/online.py), or by following where their codes lie (person/adaptation.py). It is not
        done, with a warning, where held-out people lost by it
    smooth: probabilities of a window rest on those before it, too: its class is mostly that of the window before, as
        often as in the recordings that the model was trained on (training/sequence.py). Prediction sets and abstention
        are not calibrated for that, and refused
    encoders: the factory of a user's own encoder, by name, where a folder is given
    channels: names of the channels of the windows that will come, where these are not the model's in its order. Missing
        ones are estimated from the others, with a warning, where training people's tell how

    Every call of `predict_proba` or `predict` takes the person's next windows, once: for class and probabilities of a
    window ask for the probabilities. They are those that `model.predict_proba` gives for all windows in this order. A
    window that is refused leaves no trace.

    `label` takes the label of a window, and the session then predicts as `calibrate` with all labels so far would, no
    longer with an average of its own;
    `ask` says whether a label of a window is worth asking for.
    """

    def __init__(
        self,
        model: Model | BaseEstimator | str | Path,
        *,
        adapt: bool = False,
        smooth: bool = False,
        encoders: Encoders | None = None,
        channels: object = None,
    ) -> None:
        self.model, self.classes_ = _model_and_classes(model, encoders)
        self._stay = usable_stay(self.model.card.stay, len(self.classes_)) if smooth else None
        refuse_parts(self.model.parts, lambda part: check_online(part.setting.preprocessing))
        self._uses_online = adapt and has_online(self.model)
        self.adapts = adapt and (self._uses_online or self._may_adapt())
        self._decoder = Decoder(self.model)
        self._online_decoder = Decoder(self.model, online=True) if self._uses_online else self._decoder
        self._shape = (len(self.model.card.channels), self.model.card.n_times)
        self._arrangement = None if channels is None else self._arrange(channels)
        self.reset()

    def _arrange(self, channels: object) -> Arrangement:
        found = self.model.arrange(channels)
        if found is None:
            names = [str(name) for name in as_list(channels, "channels")]
            _, missing = channel_places(names, self.model.card.channels)
            raise UserError(missing_words(missing[0], names))
        for line in found.told:
            warnings.warn(line, stacklevel=3)
        return found

    def _may_adapt(self) -> bool:
        check_effects(self.model)
        way = following(self.model)
        if way is None:
            warnings.warn("held-out people did not gain by adaptation: the session does not adapt", stacklevel=3)
        elif self.model.card.follows is None and len(self.model.parts) > 1 and self.model.card.scores:  # of a run
            warnings.warn(
                f"adaptation was not tried on held-out people: the session follows its person by {way}, and nobody "
                "knows whether that helps; a run with more time tries it",
                stacklevel=3,
            )
        return way is not None

    def reset(self) -> None:
        """As if the person had not come yet."""
        self.n_windows = 0  # fed so far
        self._people = self._decoder.follow()
        method = following(self.model) if self.adapts and not self._uses_online else None
        self._adaptation = None if method is None else self._decoder.adaptation(method)
        self._follow = online_of(self.model, self._online_decoder) if self._uses_online else None
        self._known: Known = {} if self._follow is None else self._follow.centred.begin()
        self._unread: list[Tensor] = []  # windows that were answered online, and not yet kept for questions
        self._recent = Recent()
        self._belief: NDArray[np.float64] | None = None  # (classes,) where windows are smoothed: that of the last one
        self._labels: Labels | None = None  # made with the first: not every model can take any

    def predict_proba(self, window: object) -> NDArray[np.float64]:
        """The person's next raw window (channels, times) -> (classes,), or the next n windows in order (n, channels,
        times) -> (n, classes)."""
        windows, single = self._check(window)
        if self._follow is None or (self._labels is not None and self._labels.counted):
            probability = self._decoder.next(windows, self._people, self._adaptation, self._labels, self._recent)
        else:
            log_p, self._known = self._follow.next(self._online_decoder.say(windows), self._known)
            probability = normalised(log_p)
            self._unread = [*self._unread, *windows][-RECENT:]
        if self._stay is not None:
            said = evidence(np.log(np.maximum(probability, LEAST)))
            probability, self._belief = forward(said, self._stay, self._belief)
        self.n_windows += len(windows)
        return probability[0] if single else probability

    def predict(self, window: object, abstain: float | None = None) -> Any:
        """The likeliest class of the next window, one of `classes_`; of n windows an array (n,).

        abstain: the share of a person's windows to leave unanswered, as of a model's `predict`; `unanswered_` stands
        in their place.
        """
        least = least_confidence(self.model.card.thresholds, abstain)
        if least is not None:
            self._check_calibrated("abstain")
        return decisions(self.predict_proba(window), self.classes_, least)

    def predict_set(self, window: object, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Whether each class is in the prediction set of the next window (classes,), or of n windows (n, classes)."""
        least = least_probability(self.model.card.thresholds, coverage)
        self._check_calibrated("predict_set")
        return sets_at(self.predict_proba(window), least)

    def _check_calibrated(self, what: str) -> None:
        if self._stay is not None:
            raise UserError(f"{what} is calibrated for windows by themselves; open the session without smooth=True")

    @property
    def unanswered_(self) -> Any:
        """What `predict` gives in place of a class that it does not answer with."""
        return unanswered_value(self.classes_.tolist())

    # ---- labels ----------------------------------------------------------------------------------------------------

    @property
    def n_labels(self) -> int:
        """Labelled windows so far."""
        return 0 if self._labels is None else self._labels.n_labels

    def label(self, window: object, y: object) -> None:
        """The person's window (channels, times) is of class y, one of `classes_`; or n of them (n, channels, times) of
        classes (n,).

        One of the last 48 windows that were predicted is taken as it was then; any other counts as the person's next
        window. Predictions afterwards are those of a model that `calibrate` made from all labels so far: where
        held-out people did not gain by so few labels of each class, they stay as they were until there are more.
        """
        windows, single = self._check(window)
        self._catch_up()
        given = [y] if single else y
        codes = labels_of(self.classes_.tolist(), given, len(windows))
        labels = self._taking_labels()
        x = torch.cat([self._projected(self._recent.find(one) or self._next_window(one)) for one in windows])
        labels.add(x, codes)
        self._follow_labels()

    def new_day(self) -> None:
        """The person comes again, on another day: what was learned without labels is forgotten, because electrodes lie
        elsewhere; of labels so far, what people keep from day to day counts (training/days.py). Where the model does
        not know that, labels of all days count alike."""
        labels = self._labels
        self.reset()
        if labels is not None:
            labels.new_day()
            self._labels = labels
            self._follow_labels()

    def expected_gain(self, window: object) -> float:
        """How much a label of a window (channels, times) is expected to change: the share, from 0 to 1, of the
        probability of the person's last windows that would move to other classes. 0 where held-out people gained by no
        number of labels. The window may have been predicted or not; it is not counted as the next one."""
        windows, single = self._check(window)
        if not single:
            raise UserError(f"{len(windows)} windows were given; ask for one (channels, times) at a time")
        self._catch_up()
        labels = self._taking_labels()
        with torch.inference_mode():
            known = self._recent.find(windows[0])
            own = self._look(windows[0]) if known is None else known
            codes, log_p = self._recent.together(own if known is None else None)
            return expected_gain(labels, self._projected(own)[0], own.log_p, self._decoder.project(codes), log_p)

    def ask(self, window: object, at_least: float = WORTH) -> bool:
        """Whether a label of this window (channels, times) is worth asking for: its `expected_gain` is at least so
        much."""
        if isinstance(at_least, bool) or not isinstance(at_least, (int, float)) or not at_least >= 0:
            raise UserError(f"at_least is {shown(at_least)}; it must be a number from 0 to 1")
        return self.expected_gain(window) >= at_least

    def _taking_labels(self) -> Labels:
        if self._labels is None:
            check_effects(self.model)
            self._labels = self._decoder.labels(self.model)
        return self._labels

    def _follow_labels(self) -> None:
        """Adaptation goes on from what labels say of the person, as it does in a session of a calibrated model."""
        method = following(self.model)
        if self._labels is not None and self._adaptation is not None and method is not None:
            known = self._adaptation.known
            self._adaptation = Adaptation(*self._labels.known(), method)
            self._adaptation.restore(known)

    def _catch_up(self) -> None:
        """Keep for questions what was answered online: the model as delivered reads those windows only when asked."""
        if self._unread:
            self._decoder.next(torch.stack(self._unread), self._people, None, None, self._recent)
            self._unread = []

    def _projected(self, own: Read) -> Tensor:
        """(1, P, R)"""
        return self._decoder.project(own.codes)

    def _next_window(self, window: Tensor) -> Read:
        self._decoder.next(window[None], self._people, None, None, self._recent)
        self.n_windows += 1
        found = self._recent.find(window)
        assert found is not None, "just added"
        return found

    def _look(self, window: Tensor) -> Read:
        """As if it were the next one, which leaves no trace."""
        people = self._decoder.follow()
        for own, person in zip(people, self._people, strict=True):
            own.restore({name: tensor.clone() for name, tensor in person.state().items()})
        codes, log_p = self._decoder.read(window[None], people)
        return Read(window, codes, log_p[0])

    def _check(self, window: object) -> tuple[Tensor, bool]:
        """Windows (n, channels, times) that the model takes, and whether a single one was given."""
        if self._arrangement is not None:
            window = self._arranged(window, self._arrangement)
        # An array of what is nearly always given needs no further look, and the rest takes longer. A subclass does:
        # the data of a masked array hold what is to be left out.
        if (
            type(window) is np.ndarray
            and window.dtype == np.float32
            and window.shape == self._shape
            and window.min() >= -LARGEST
            and window.max() <= LARGEST
        ):
            return torch.from_numpy(window.copy())[None], True
        single = _axes(window) == 2
        return self.model.check(_alone(window) if single else window), single

    def _arranged(self, window: object, own: Arrangement) -> object:
        """The model's channels of windows with others."""
        given = window_array(_alone(window) if _axes(window) == 2 else window)
        n_channels = len(own.names)
        if given.shape[1] != n_channels:
            raise UserError(
                f"a window has {given.shape[1]} channels, and the session was opened with {n_channels} names"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused afterwards
            found = own.apply(np.asarray(given))
        return found[0] if _axes(window) == 2 else found

    # ---- what is known of the person -----------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        """Tensors that windows have moved, as stacks.0.TRANSFORM.NAME, and adaptation.NAME or online.NAME."""
        found = {
            f"stacks.{k}.{name}": tensor
            for k, person in enumerate(self._people)
            for name, tensor in person.state().items()
        }
        if self._adaptation is not None:
            found |= {f"adaptation.{name}": tensor for name, tensor in self._adaptation.known.items()}
        if self.n_labels:
            found |= {f"labels.{name}": tensor for name, tensor in self._taking_labels().state().items()}
        if self._belief is not None:
            found["smooth.belief"] = torch.from_numpy(self._belief)
        return found | {f"online.{name}": torch.from_numpy(own) for name, own in self._known.items()}

    def _restore(self, state: dict[str, Tensor]) -> None:
        """ValueError where it does not fit."""
        if given := _below(state, "labels."):
            self._taking_labels().restore(given)
        if (belief := state.get("smooth.belief")) is not None and self._stay is not None:
            self._belief = _belief(belief, len(self.classes_))
        if unknown := set(state) - set(self._state()):
            raise ValueError(f"the tensor {shown(min(unknown))} belongs to nothing in the model")
        if self._adaptation is not None:
            self._follow_labels()
            self._adaptation.restore(_known(_below(state, "adaptation."), self._adaptation.known))
        online = {name: torch.from_numpy(own) for name, own in self._known.items()}
        self._known = {name: own.numpy() for name, own in _known(_below(state, "online."), online, "online").items()}
        for k, person in enumerate(self._people):
            person.restore(_below(state, f"stacks.{k}."))

    def save(self, path: str | Path) -> None:
        """What is known of the person, as one file, which `load` opens again with the same model."""
        told = {"model": _digest(self.model), "n_windows": self.n_windows, "adapts": self.adapts}
        told |= {} if self._stay is None else {"smooths": True}
        tensors = {name: tensor.clone().contiguous() for name, tensor in self._state().items()}
        try:
            write_atomically(Path(path), save(tensors, {MARK: json.dumps(told)}))
        except OSError as error:
            raise UserError(f"cannot write {path} ({error.strerror or error}); choose another file") from None

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Model | BaseEstimator | str | Path,
        *,
        encoders: Encoders | None = None,
        channels: object = None,
    ) -> Self:
        """The session that `save` wrote, with the model that it was opened with; another one is refused. channels: of
        the windows that will come now, as when a session is opened."""
        try:
            content = read_plain(Path(path))
        except OSError as error:
            raise UserError(f"cannot read {path} ({error.strerror or error})") from None
        try:
            told, tensors = _read(content)
            smooths = told.get("smooths") is True
            session = cls(model, adapt=told["adapts"], smooth=smooths, encoders=encoders, channels=channels)
            if told["model"] != _digest(session.model):
                raise UserError(f"{path} belongs to another model; open it with the one that it was saved with")
            session._restore(tensors)
            session.n_windows = told["n_windows"]
        except UserError:
            raise
        except (ValueError, TypeError, KeyError, SafetensorError) as error:
            raise UserError(f"{path} is not a session that save wrote ({one_line(error)})") from None
        return session


def _model_and_classes(model: object, encoders: Encoders | None) -> tuple[Model, Array]:
    if hasattr(model, "get_params"):
        from sklearn.utils.validation import check_is_fitted  # takes long, and only estimators need it

        check_is_fitted(model)
        own = getattr(model, "model_", None)
        if isinstance(own, (SavedModel, Mixture)):
            return own, model.classes_  # type: ignore[attr-defined]  # an estimator of ours
    if isinstance(model, (str, Path)):
        model = _from_folder(Path(model), encoders)
    if isinstance(model, (SavedModel, Mixture)):
        return model, model.classes_
    raise UserError(
        f"a session takes a fitted estimator, a model of at.load_model or the folder of a run, and not {shown(model)}"
    )


def _from_folder(folder: Path, encoders: Encoders | None) -> Model:
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give that of a run, or at.load_model of an exported file")
    refuse_links(folder)
    return load_classifier(folder / "model" if (folder / "model").is_dir() else folder, encoders)


def _axes(window: object) -> int | None:
    """Of an array, a tensor or nested lists; None where it has none to speak of, such as a ragged list."""
    if isinstance(window, (np.ndarray, Tensor)):
        return window.ndim
    try:
        return np.ndim(window)  # type: ignore[arg-type]  # whatever it is
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None


def _alone(window: object) -> object:
    """A single window (channels, times) as (1, channels, times)."""
    return window[None] if isinstance(window, (np.ndarray, Tensor)) else [window]


def _belief(tensor: Tensor, n_classes: int) -> NDArray[np.float64]:
    """What a file holds of the last window; ValueError where these are no probabilities."""
    if (
        tensor.shape != (n_classes,)
        or tensor.dtype != torch.float64
        or (tensor < 0).any()
        or abs(tensor.sum() - 1) > 1e-6
    ):
        raise ValueError("smooth.belief holds no probabilities")
    return tensor.numpy().copy()


def _below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}


def _known(state: dict[str, Tensor], like: dict[str, Tensor], whose: str = "adaptation") -> dict[str, Tensor]:
    """What is known of a person; ValueError where it does not fit."""
    for name, wanted in like.items():
        own = state.get(name, torch.empty(0))
        if own.shape != wanted.shape or own.dtype != wanted.dtype:
            raise ValueError(f"{whose}.{name} has the shape {tuple(own.shape)}, not {tuple(wanted.shape)}")
        if name in NEVER_NEGATIVE and (own < 0).any():
            raise ValueError(f"{whose}.{name} is below 0")
    return state


def has_online(model: Model) -> bool:
    """Whether a session learns with the model's online average: held-out people gained by it in every order, and the
    model is not one person's already."""
    return (
        isinstance(model, Mixture)
        and model.online is not None
        and model.online.card.session
        and all(part.correction is None for part in model.parts)
    )


def online_of(model: Model, decoder: Decoder) -> Follow:
    assert isinstance(model, Mixture), "nothing else has one"
    assert model.online is not None, "asked for where there is one"
    return decoder.online(model.online.card.centring_rule)


def _read(content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is told in the header of a session's file, and the tensors; whatever is wrong raises."""
    tensors = load(content)
    length = int.from_bytes(content[:8], "little")
    told = json.loads(json.loads(content[8 : 8 + length]).get("__metadata__", {})[MARK])
    if (
        not isinstance(told, dict)
        or type(told["n_windows"]) is not int
        or told["n_windows"] < 0
        or type(told["adapts"]) is not bool
    ):
        raise ValueError("its header is damaged")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} is not finite")
    return told, tensors


def _digest(model: Model) -> str:
    """Changes with any number of a model and anything that its card says."""
    card = json.loads(json.dumps(asdict(model.card), default=str))
    for own in (card, *card.get("parts", ())):
        for name in ADDED:
            if not own.get(name):
                own.pop(name, None)
    weights = save({name: tensor.clone().contiguous() for name, tensor in model.tensors().items()})
    return digest_of(card, weights)["card"]
