"""Online session: one subject's windows are predicted in order, each from this and earlier windows."""

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
from ..models.adaptation import CENTERING, UNTRIED, Adaptation, may_adapt_class_means
from ..models.calibration import check_effects, encode_labels
from ..models.ensemble import check_candidates
from ..models.loading import load_classifier
from ..models.model import Model
from ..models.online import OnlineEnsemble, softmax
from ..preprocessing import check_online
from ..preprocessing.transform import select_prefix
from ..recordings.concerns import compare_with_training
from ..runs.lock import refuse_links
from ..training.centering import CenteringState
from ..training.conformal import decide_classes
from ..words import count
from .label_requests import MIN_GAIN, N_RECENT, EncodedWindow, RecentWindows, expected_gain
from .labels import Labels
from .session_file import check_state, model_digest, read_session, write_session

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

Array = NDArray[Any]

N_CHECKED = 10  # number of first windows that are compared with the training data, because a single one may be unusual


class Session:
    """Online session: a model predicts the windows of one subject in order, and may adapt to them.

    Pass every window once, to `predict_proba` or `predict`. Without adaptation and labels, probabilities equal those of
    `model.predict_proba` for all windows in this order. The model does not change, and a window that is refused does
    not change the session.

    Parameters
    ----------
    model : estimator, Model, str or Path
        A fitted estimator, the result of `load_model`, or the folder of a run or of a model.
    adapt : bool
        Whether to adapt to unlabeled windows, by the method with the best held-out scores. If no method raised them,
        the session warns and does not adapt.
    encoders : dict, optional
        Factories of your own encoders by name, if `model` is a folder.
    channels : sequence of str, optional
        Channel names of the windows, if they differ from the model's channels in number or order.

    Examples
    --------
    >>> session = at.Session("run", adapt=True)
    >>> session.predict(window)  # (channels, times)
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
            raise UserError(f"adapt is {shown(adapt)}; choose True or False")
        self.model, self.classes_ = _find_model_and_classes(model, encoders)
        check_candidates(self.model.candidates, lambda candidate: check_online(candidate.setting.preprocessing))
        self._ensemble = self.model.ensemble
        self._online: OnlineEnsemble | None = self.model.session_ensemble if adapt else None
        self.adapts = bool(adapt) and (self._online is not None or self._has_adaptation())
        # Signal of the windows; None: they are arrays with the model's channels.
        self.signal = None if channels is None else self.model.card.signal.with_channels(channels)
        self._warnings = set[str]()  # warnings about the signal that were shown
        self.reset()

    def __repr__(self) -> str:
        n_windows, n_labels = count(self.n_windows, "window"), count(self.n_labels, "label")
        return f"<Session: {n_windows}, {n_labels}, {'adapts' if self.adapts else 'does not adapt'}; {self.model!r}>"

    def _has_adaptation(self) -> bool:
        """Return whether the model should adapt, and warn if it should not or if adaptation was not evaluated."""
        check_effects(self.model.candidates)
        has_adaptation = may_adapt_class_means(self.model.card.session_method)
        if not has_adaptation:
            is_centered = self.model.card.session_method == CENTERING
            reason = "calibrated models are not centered" if is_centered else "adaptation did not raise held-out scores"
            warnings.warn(f"{reason}; the session does not adapt", stacklevel=3)
        elif self.model.card.session_method == UNTRIED:
            warnings.warn(
                "adaptation was not tried on held-out subjects, so its benefit is unknown; a run with more time tries "
                "it",
                stacklevel=3,
            )
        return has_adaptation

    def reset(self) -> None:
        """Forget the subject: the next window is the first one of a new subject."""
        self.n_windows = 0  # number of predicted windows
        self._unchecked: list[Tensor] | None = []  # first windows, until they are checked
        self._preprocessing = self._ensemble.start_subject()
        self._adaptation: Adaptation | None = None  # adaptation of the online ensemble, if the session uses it
        self._online_state: CenteringState = {}
        if self._online is not None:
            self._online_state = self._online.centered.initial_state()
            self._adaptation = self._online.start_class_means() if self._online.has_class_means else None
        elif self.adapts:
            self._adaptation = Adaptation(*self._ensemble.effects_and_weights)
        self._pending: list[Tensor] = []  # windows predicted by the online ensemble, not yet in `_recent`
        self._recent = RecentWindows(self._ensemble.project)
        self._labels: Labels | None = None  # created with the first label, because some models do not accept labels

    def predict_proba(self, window: object) -> NDArray[np.float64]:
        """Return class probabilities (classes,) of the subject's next raw window (channels, times).

        For the next n windows in order (n, channels, times), the probabilities are (n, classes).
        """
        windows, single = self._check(window)
        if self._unchecked is not None:
            self._check_first_windows(windows)
        if self._online is None or (self._labels is not None and self._labels.has_effect):
            probability = self._predict(windows)
        else:
            zero_shot = self._online.predict_zero_shot(windows)
            log_p, self._online_state = self._online.predict_next(zero_shot, self._online_state, self._adaptation)
            probability = softmax(log_p)
            copies = windows[-N_RECENT:].clone()  # the caller may reuse the memory
            self._pending = [*self._pending, *copies][-N_RECENT:]
        self.n_windows += len(windows)
        return probability[0] if single else probability

    @torch.inference_mode()
    def _predict(self, windows: Tensor) -> NDArray[np.float64]:
        """Predict the next windows (n, channels, times): (n, classes), each corrected with the state before it."""
        latents, log_p = self._encode(windows)
        if self._labels is not None and self._labels.has_effect:
            log_p = self._labels.correct(self._ensemble.project(latents), log_p)
        if self._adaptation is not None and self._online is None:
            log_p = self._adaptation.adapt(self._ensemble.project(latents), log_p)
        return softmax(log_p.numpy())

    def _encode(self, windows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return latents (P, n, D) of each stack and log-probabilities (n, classes), and store them as recent."""
        latents, log_p = self._ensemble.predict_with_latents(windows, self._preprocessing)
        self._recent.add(windows, latents, log_p)
        return latents, log_p

    def _check(self, window: object) -> tuple[Tensor, bool]:
        """Return windows (n, channels, times) that the model accepts, and whether a single window was given."""
        single = _count_axes(window) == 2
        if single:
            window = window[None] if isinstance(window, (np.ndarray, Tensor)) else [window]
        windows, lines = self.model.check_input(window, signal=self.signal)
        for line in lines:
            if line not in self._warnings:
                warnings.warn(line, stacklevel=4)
        self._warnings.update(lines)
        return windows, single

    def _check_first_windows(self, windows: Tensor) -> None:
        """Warn, once, if the first windows (n, channels, times) differ from the training data."""
        assert self._unchecked is not None, "checked by predict_proba"
        first = [*self._unchecked, windows]
        enough = sum(map(len, first)) >= N_CHECKED
        if enough:
            card = self.model.card
            for line in compare_with_training(torch.cat(first), card.signal.channels, card.scale):
                warnings.warn(line, stacklevel=3)
        self._unchecked = None if enough else [*self._unchecked, windows.clone()]  # the caller may reuse the memory

    def predict(self, window: object) -> Any:
        """Return the most probable class of the next window, or classes (n,) of the next windows."""
        return decide_classes(self.predict_proba(window), self.classes_, None)

    @property
    def n_labels(self) -> int:
        """Return the number of labeled windows."""
        return 0 if self._labels is None else self._labels.n_labels

    def label(self, window: object, y: object) -> None:
        """Take labels y of one or n raw windows. Later windows are predicted as after `calibrate`.

        If a window is among the last 48 predicted windows, its latents from that time are used. Any other window
        is processed as the next one. Labels take effect once every labeled class has a number of labels with
        which calibration raised held-out scores.
        """
        windows, single = self._check(window)
        self._encode_pending()
        classes = encode_labels(self.classes_.tolist(), [y] if single else y, len(windows))
        labels = self._get_labels()
        records = [self._recent.find(window) or self._append_window(window) for window in windows]
        labels.add(torch.stack([*map(self._recent.projected_latents, records)]), classes)
        self._adapt_from_posterior()

    def expected_gain(self, window: object) -> float:
        """Return how much a label of this window (channels, times) is expected to change predictions.

        The gain is the mean total-variation distance, from 0 to 1, between the class probabilities of recent windows
        before and after the label; 0 if labels did not improve held-out scores. The session does not change.
        """
        windows, single = self._check(window)
        if not single:
            raise UserError(f"{len(windows)} windows were given; pass one (channels, times) at a time")
        self._encode_pending()
        labels = self._get_labels()
        with torch.inference_mode():
            recent = self._recent.find(windows[0])
            record = recent or self._encode_without_storing(windows[0])
            recent_x, recent_log_p = self._recent.stack(None if recent else record)
            x = self._recent.projected_latents(record)
            return expected_gain(labels, x, record.log_p, recent_x, recent_log_p)

    def ask(self, window: object, at_least: float = MIN_GAIN) -> bool:
        """Return whether the `expected_gain` of a label of this window (channels, times) is at least `at_least`."""
        if isinstance(at_least, bool) or not isinstance(at_least, (int, float)) or not at_least >= 0:
            raise UserError(f"at_least is {shown(at_least)}; give a number of at least 0")
        return self.expected_gain(window) >= at_least

    def _get_labels(self) -> Labels:
        if self._labels is None:
            check_effects(self.model.candidates)
            self._labels = Labels(self.model.card, *self._ensemble.effects_and_weights)
        return self._labels

    def _adapt_from_posterior(self) -> None:
        """Use the posterior given the labels as the prior of adaptation; keep the state."""
        if self._labels is not None and self._adaptation is not None and self._online is None:
            state = self._adaptation.state
            self._adaptation = Adaptation(*self._labels.split_posterior())
            self._adaptation.restore(state)

    def _encode_pending(self) -> None:
        """Encode the windows that the online ensemble predicted, because labels need their latents."""
        if self._pending:
            self._encode(torch.stack(self._pending))
            self._pending = []

    def _append_window(self, window: Tensor) -> EncodedWindow:
        self._encode(window[None])
        self.n_windows += 1
        return self._recent.latest

    def _encode_without_storing(self, window: Tensor) -> EncodedWindow:
        """Encode a window (channels, times) as the next one, without changing the session."""
        copies = self._ensemble.start_subject()
        for copied, original in zip(copies, self._preprocessing, strict=True):
            copied.restore({name: tensor.clone() for name, tensor in original.state().items()})
        latents, log_p = self._ensemble.predict_with_latents(window[None], copies)
        return EncodedWindow(window, latents, log_p[0])

    def _state(self) -> dict[str, Tensor]:
        """Return the state as stacks.0.TRANSFORM.NAME, adaptation.NAME, labels.NAME and online.NAME."""
        state = {
            f"stacks.{k}.{name}": tensor
            for k, stack in enumerate(self._preprocessing)
            for name, tensor in stack.state().items()
        }
        if self._adaptation is not None:
            state |= {f"adaptation.{name}": tensor for name, tensor in self._adaptation.state.items()}
        if self.n_labels:
            state |= {f"labels.{name}": tensor for name, tensor in self._get_labels().state().items()}
        return state | {f"online.{name}": torch.from_numpy(array) for name, array in self._online_state.items()}

    def _restore(self, state: dict[str, Tensor]) -> None:
        """Restore the result of `_state`; ValueError if the result does not fit the model."""
        if select_prefix("labels.", state):
            labels = self._get_labels()
            labels.restore(check_state(state, labels.state(), "labels."))
        expected = self._state()
        if unknown := set(state) - set(expected):
            raise ValueError(f"the tensor {shown(min(unknown))} is not part of the model")
        if self._adaptation is not None:
            self._adapt_from_posterior()
            self._adaptation.restore(check_state(state, self._adaptation.state, "adaptation."))
        online = check_state(state, select_prefix("online.", expected), "online.")
        self._online_state = {name: tensor.numpy() for name, tensor in online.items()}
        for k, stack in enumerate(self._preprocessing):
            stack.restore(select_prefix(f"stacks.{k}.", state))

    def save(self, path: str | Path) -> None:
        """Save the session as a file, which `load` opens with the same model."""
        header = {"model": model_digest(self.model), "n_windows": self.n_windows, "adapts": self.adapts}
        self._encode_pending()
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
        """Load a session that `save` wrote; raise if it belongs to another model. Parameters: see `Session`."""
        try:
            header, state = read_session(Path(path))
            session = cls(model, adapt=header["adapts"], encoders=encoders, channels=channels)
            if header["model"] != model_digest(session.model):
                raise UserError(f"{path} belongs to another model; load it with that model")
            session._restore(state)
            session.n_windows = header["n_windows"]
        except UserError:
            raise
        except (ValueError, TypeError, KeyError, SafetensorError) as error:
            raise UserError(
                f"{path} is not a saved online session ({one_line(error)}); give a file that Session.save wrote"
            ) from None
        return session


def _count_axes(window: object) -> int | None:
    """Return the number of axes of an array, tensor or nested list; None for other objects, such as ragged lists."""
    if isinstance(window, (np.ndarray, Tensor)):
        return window.ndim
    try:
        return np.ndim(window)  # type: ignore[arg-type]  # any object
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None


def _find_model_and_classes(model: object, encoders: Encoders | None) -> tuple[Model, Array]:
    if hasattr(model, "get_params"):
        from sklearn.utils.validation import check_is_fitted  # slow to import, and only estimators need it

        check_is_fitted(model)
    if isinstance(model, (str, Path)):
        if not Path(model).is_dir():
            raise UserError(
                f"there is no folder {model}; give the folder of a run, or at.load_model of an exported file"
            )
        refuse_links(Path(model))
        model = load_classifier(Path(model), encoders)
    fitted = getattr(model, "model_", model)  # attribute of this package's estimators
    if isinstance(fitted, Model):
        if fitted.card.task.is_numeric:
            raise UserError("the model predicts numbers, and online sessions need classes; use its predict")
        return fitted, model.classes_  # type: ignore[attr-defined]  # models and estimators have it
    raise UserError(
        f"model is {shown(model)}; give a fitted estimator, the result of at.load_model or the folder of a run"
    )
