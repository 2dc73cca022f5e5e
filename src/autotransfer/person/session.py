"""Session: one person uses a model. Their windows come in order, and each is predicted from it and those before it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from ..errors import UserError, one_line, shown
from ..model.encoders import Encoders
from ..models.calibration import check_effects, encode_labels
from ..models.card import UNTRIED
from ..models.ensemble import check_candidates
from ..models.loading import load_classifier
from ..models.model import Model
from ..models.online import OnlineEnsemble, softmax
from ..preprocessing import check_online
from ..preprocessing.transform import with_prefix
from ..runs.lock import refuse_links
from ..training.centering import CenteringState
from ..training.conformal import decide_classes
from ..words import count
from .adaptation import Adaptation
from .asking import RECENT, WORTH, Reading, Recent, expected_gain
from .calibration import delivered_adaptation
from .labels import Labels
from .session_file import check_state, model_digest, read_session, write_session

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

Array = NDArray[Any]

FIRST = 10  # windows after which they are compared with those of training: a single one may be a pause


class Session:
    """Use of a model by one person, window by window. The session adapts to the person; the model does not change.

    model: a fitted estimator, a model of `load_model`, or the folder of a run or of a model
    adapt: whether to adapt to unlabeled windows, by the method that was best on held-out people. If no method raised
        their scores, the session does not adapt, and warns
    encoders: factories of your own encoders, by name, if a folder is given
    channels: names of the windows' channels, if they are not the model's in its order; a missing channel is refused

    Pass every window once, to `predict_proba` or `predict`; if you need both class and probabilities, call
    `predict_proba`. Probabilities equal those of `model.predict_proba` for all windows in this order. A window that is
    refused does not change the session.

    `label` takes the label of a window. The session then predicts as a model that `calibrate` made from all labels so
    far, without the online ensemble. `ask` says whether a label of a window is worth recording.
    """

    def __init__(
        self,
        model: Model | BaseEstimator | str | Path,
        *,
        adapt: bool = False,
        encoders: Encoders | None = None,
        channels: object = None,
    ) -> None:
        if not isinstance(adapt, (bool, np.bool_)):
            raise UserError(f"adapt is {shown(adapt)}; a session takes True or False")
        self.model, self.classes_ = _model_and_classes(model, encoders)
        check_candidates(self.model.candidates, lambda part: check_online(part.setting.preprocessing))
        self._ensemble = self.model.ensemble
        self._online: OnlineEnsemble | None = None
        if adapt and self.model.card.online is not None and self.model.card.online.is_used_in_sessions:
            self._online = self.model.online
        self.adapts = bool(adapt) and (self._online is not None or self._may_adapt())
        self._channels = channels
        self.reset()

    def __repr__(self) -> str:
        windows = f"{count(self.n_windows, 'window')} so far" + f", {count(self.n_labels, 'label')}" * (
            self.n_labels > 0
        )
        return f"<Session: {windows}, {'adapts' if self.adapts else 'does not adapt'}; {self.model!r}>"

    def _may_adapt(self) -> bool:
        check_effects(self.model.candidates)
        method = delivered_adaptation(self.model.card)
        if method is None:
            warnings.warn("held-out people did not gain by adaptation: the session does not adapt", stacklevel=3)
        elif self.model.card.adaptation_method == UNTRIED:
            warnings.warn(
                f"adaptation was not tried on held-out people: the session follows its person by {method}, and nobody "
                "knows whether that helps; a run with more time tries it",
                stacklevel=3,
            )
        return method is not None

    def reset(self) -> None:
        """Remove all data of the person."""
        self.n_windows = 0  # predicted so far
        self._first: list[Tensor] | None = []  # windows until they are looked at
        self._people = self._ensemble.start_subject()
        method = delivered_adaptation(self.model.card) if self.adapts and self._online is None else None
        self._adaptation = None if method is None else Adaptation(*self._ensemble.effects, method)
        self._online_state: CenteringState = {} if self._online is None else self._online.centered.initial_state()
        self._unread: list[Tensor] = []  # windows predicted by the average for sessions, not yet in `_recent`
        self._recent = Recent(self._ensemble.project)
        self._labels: Labels | None = None  # made with the first label: not every model can take any

    def predict_proba(self, window: object) -> NDArray[np.float64]:
        """Map the person's next raw window (channels, times) to probabilities (classes,), or the next n windows in
        order (n, channels, times) to (n, classes)."""
        windows, single = self._check(window)
        if self._first is not None:
            self._look_at_first(windows)
        if self._online is None or (self._labels is not None and self._labels.counted):
            probability = self._read(windows)
        else:
            log_p, self._online_state = self._online.predict_next(
                self._online.predict_zero_shot(windows), self._online_state
            )
            probability = softmax(log_p)
            self._unread = [*self._unread, *windows[-RECENT:].clone()][-RECENT:]  # the caller may reuse its memory
        self.n_windows += len(windows)
        return probability[0] if single else probability

    @torch.inference_mode()
    def _read(self, windows: Tensor) -> NDArray[np.float64]:
        """Predict the person's next windows (n, channels, times): (n, classes). Each is corrected by what is known of
        the person before it."""
        latents, log_p = self._keep(windows)
        if self._labels is not None and self._labels.counted:
            log_p = self._labels.correct(self._ensemble.project(latents), log_p)
        if self._adaptation is not None:
            log_p = self._adaptation.follow(self._ensemble.project(latents), log_p)
        return softmax(log_p.numpy())

    def _keep(self, windows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Let the model read the person's next windows (n, channels, times), which can be labeled afterwards: latents
        (P, n, D) of each stack, and log-probabilities (n, classes)."""
        latents, log_p = self._ensemble.predict_with_latents(windows, self._people)
        self._recent.add(windows, latents, log_p)
        return latents, log_p

    def _check(self, window: object) -> tuple[Tensor, bool]:
        """Return windows (n, channels, times) that the model takes, and whether a single one was given."""
        single = _n_axes(window) == 2
        if single:
            window = window[None] if isinstance(window, (np.ndarray, Tensor)) else [window]
        return self.model.check(window, self._channels), single

    def _look_at_first(self, windows: Tensor) -> None:
        """Warn, once, where the person's first windows (n, channels, times) look unlike those of training."""
        assert self._first is not None, "asked before"
        first = [*self._first, windows]
        enough = sum(map(len, first)) >= FIRST
        if enough:
            self.model.warn_if_unlike_training(torch.cat(first))
        self._first = None if enough else [*self._first, windows.clone()]  # the caller may reuse its memory

    def predict(self, window: object) -> Any:
        """Return the likeliest class of the next window, one of `classes_`; of n windows an array (n,)."""
        return decide_classes(self.predict_proba(window), self.classes_, None)

    @property
    def n_labels(self) -> int:
        """Return the number of labeled windows so far."""
        return 0 if self._labels is None else self._labels.n_labels

    def label(self, window: object, y: object) -> None:
        """Take the label y, one of `classes_`, of a window (channels, times); or labels (n,) of n windows (n, channels,
        times).

        One of the last 48 predicted windows is used with its latent features at that time; any other counts as the
        person's next window. Later predictions are those of a model that `calibrate` made from all labels so far. They
        do not change until there are enough labels of each class to raise the scores of held-out people.
        """
        windows, single = self._check(window)
        self._catch_up()
        classes = encode_labels(self.classes_.tolist(), [y] if single else y, len(windows))
        labels = self._taking_labels()
        readings = [self._recent.find(window) or self._next_window(window) for window in windows]
        labels.add(torch.stack([*map(self._recent.projected_latents, readings)]), classes)
        self._follow_labels()

    def expected_gain(self, window: object) -> float:
        """Return how much a label of a window (channels, times) is expected to change: the share, from 0 to 1, of the
        probability of the person's last windows that would move to other classes. 0 if no number
        of labels raised the scores of held-out people. The window does not count as the person's next one."""
        windows, single = self._check(window)
        if not single:
            raise UserError(f"{len(windows)} windows were given; ask for one (channels, times) at a time")
        self._catch_up()
        labels = self._taking_labels()
        with torch.inference_mode():
            recent = self._recent.find(windows[0])
            reading = recent or self._look(windows[0])
            of_recent, log_p = self._recent.together(None if recent else reading)
            return expected_gain(labels, self._recent.projected_latents(reading), reading.log_p, of_recent, log_p)

    def ask(self, window: object, at_least: float = WORTH) -> bool:
        """Tell whether a label of this window (channels, times) is worth recording: whether its `expected_gain` is
        at least `at_least`."""
        if isinstance(at_least, bool) or not isinstance(at_least, (int, float)) or not at_least >= 0:
            raise UserError(f"at_least is {shown(at_least)}; it must be a number from 0 to 1")
        return self.expected_gain(window) >= at_least

    def _taking_labels(self) -> Labels:
        if self._labels is None:
            check_effects(self.model.candidates)
            self._labels = Labels(self.model.card, *self._ensemble.effects)
        return self._labels

    def _follow_labels(self) -> None:
        """Let adaptation start from what labels say of the person, as it does in a session of a calibrated model."""
        method = delivered_adaptation(self.model.card)
        if self._labels is not None and self._adaptation is not None and method is not None:
            known = self._adaptation.known
            self._adaptation = Adaptation(*self._labels.effects_and_weights(), method)
            self._adaptation.restore(known)

    def _catch_up(self) -> None:
        """Let the model as delivered read the windows that the average for sessions predicted: labels need that."""
        if self._unread:
            self._keep(torch.stack(self._unread))
            self._unread = []

    def _next_window(self, window: Tensor) -> Reading:
        self._keep(window[None])
        self.n_windows += 1
        return self._recent.latest

    def _look(self, window: Tensor) -> Reading:
        """Read a window (channels, times) as if it were the next one, without a trace."""
        copies = self._ensemble.start_subject()
        for copied, person in zip(copies, self._people, strict=True):
            copied.restore({name: tensor.clone() for name, tensor in person.state().items()})
        latents, log_p = self._ensemble.predict_with_latents(window[None], copies)
        return Reading(window, latents, log_p[0])

    def _state(self) -> dict[str, Tensor]:
        """Return tensors that windows have moved, as stacks.0.TRANSFORM.NAME, adaptation.NAME or online.NAME."""
        state = {
            f"stacks.{k}.{name}": tensor
            for k, person in enumerate(self._people)
            for name, tensor in person.state().items()
        }
        if self._adaptation is not None:
            state |= {f"adaptation.{name}": tensor for name, tensor in self._adaptation.known.items()}
        if self.n_labels:
            state |= {f"labels.{name}": tensor for name, tensor in self._taking_labels().state().items()}
        return state | {f"online.{name}": torch.from_numpy(array) for name, array in self._online_state.items()}

    def _restore(self, state: dict[str, Tensor]) -> None:
        """Restore what `_state` gave; ValueError if it does not fit."""
        if labels := with_prefix("labels.", state):
            self._taking_labels().restore(labels)
        expected = self._state()
        if unknown := set(state) - set(expected):
            raise ValueError(f"the tensor {shown(min(unknown))} belongs to nothing in the model")
        if self._adaptation is not None:
            self._follow_labels()
            self._adaptation.restore(check_state(state, self._adaptation.known, "adaptation."))
        online = check_state(state, with_prefix("online.", expected), "online.")
        self._online_state = {name: tensor.numpy() for name, tensor in online.items()}
        for k, person in enumerate(self._people):
            person.restore(with_prefix(f"stacks.{k}.", state))

    def save(self, path: str | Path) -> None:
        """Save the session as one file, which `load` opens with the same model."""
        header = {"model": model_digest(self.model), "n_windows": self.n_windows, "adapts": self.adapts}
        self._catch_up()
        write_session(Path(path), header, self._state())

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Model | BaseEstimator | str | Path,
        *,
        encoders: Encoders | None = None,
        channels: object = None,
    ) -> Self:
        """Load a session that `save` wrote, with the model that it was opened with; another model is refused.
        channels: names of the channels of the next windows, as when a session is opened"""
        try:
            header, state = read_session(Path(path))
            session = cls(model, adapt=header["adapts"], encoders=encoders, channels=channels)
            if header["model"] != model_digest(session.model):
                raise UserError(f"{path} belongs to another model; open it with the one that it was saved with")
            session._restore(state)
            session.n_windows = header["n_windows"]
        except UserError:
            raise
        except (ValueError, TypeError, KeyError, SafetensorError) as error:
            raise UserError(f"{path} is not a session that save wrote ({one_line(error)})") from None
        return session


def _n_axes(window: object) -> int | None:
    """Return the number of axes of an array, a tensor or nested lists; None for anything else, such as ragged lists."""
    if isinstance(window, (np.ndarray, Tensor)):
        return window.ndim
    try:
        return np.ndim(window)  # type: ignore[arg-type]  # whatever it is
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None


def _model_and_classes(model: object, encoders: Encoders | None) -> tuple[Model, Array]:
    if hasattr(model, "get_params"):
        from sklearn.utils.validation import check_is_fitted  # takes long, and only estimators need it

        check_is_fitted(model)
    if isinstance(model, (str, Path)):
        if not Path(model).is_dir():
            raise UserError(f"there is no folder {model}; give that of a run, or at.load_model of an exported file")
        refuse_links(Path(model))
        model = load_classifier(Path(model), encoders)
    fitted = getattr(model, "model_", model)  # of an estimator of ours
    if isinstance(fitted, Model):
        if fitted.card.task.is_numeric:
            raise UserError("the model predicts a number, and sessions are for classes; use its predict")
        return fitted, model.classes_  # type: ignore[attr-defined]  # of both
    raise UserError(
        f"a session takes a fitted estimator, a model of at.load_model or the folder of a run, and not {shown(model)}"
    )
