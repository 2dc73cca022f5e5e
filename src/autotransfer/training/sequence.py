"""Windows in the order of their recording: a state that mostly stays tells more of each than the window alone.

A hidden Markov model over classes. From one window to the next the class stays with probability `stay` and otherwise
changes to any other one alike; what a model says of a window is the evidence of that window. Forward, the posterior of
a window rests on it and those before it, as a session needs it; forward and backward, on the whole recording.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, plain_value, shown
from ..recordings import Recordings
from ..recordings.labels import encode

Floats = NDArray[np.float64]

LEAST = 1e-12  # of a probability: a window that rules a class out may be wrong


def smooth(log_probs: object, stay: float, *, sequence: object = None, causal: bool = False) -> Floats:
    """Log-probabilities of the classes of windows in order, given the windows around them.

    Parameters
    ----------
    log_probs : (N, classes), logarithms of what a model says of each window, in the order of recording
    stay : probability that the next window has the same class, such as `model.card.stay`
    sequence : (N,), which recording each window is of; None: all are of one. Nothing is carried from one to another
    causal : whether only windows before it, and it, count for a window; default: all of its recording

    Returns
    -------
    (N, classes), normalised
    """
    try:
        array = np.asarray(log_probs)
    except ValueError:  # lists of several lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiu":
        raise UserError(f"log_probs are of the type {array.dtype}; give real numbers")
    given = array.astype(np.float64)
    if given.ndim != 2 or given.shape[1] < 2 or not (given < np.inf).all():
        raise UserError(
            f"log_probs have the shape {given.shape}; give (windows, 2 classes or more), without NaN or inf"
        )
    stays = check_stay(stay)
    smoothed = np.empty(given.shape)
    codes = (
        np.zeros(len(given), dtype=np.int64)
        if sequence is None
        else encode(sequence, len(given), "sequence")[0].numpy()
    )
    for recording in np.unique(codes):
        rows = np.flatnonzero(codes == recording)
        likelihood = evidence(given[rows])
        posterior = forward(likelihood, stays)[0]
        if not causal:
            posterior = posterior * _backward(likelihood, stays)
        smoothed[rows] = np.log(np.maximum(_normalised(posterior), LEAST))
    return smoothed


def evidence(log_probs: Floats) -> Floats:
    """Likelihoods of the classes of windows (n, K), up to a factor for each window; none is quite 0."""
    if (log_probs.max(1) == -np.inf).any():
        raise UserError("log_probs hold a window without any likely class")
    return np.asarray(np.maximum(np.exp(log_probs - log_probs.max(1, keepdims=True)), LEAST))


def forward(likelihood: Floats, stay: float, before: Floats | None = None) -> tuple[Floats, Floats]:
    """Posteriors (n, K), each given its window and those before it, and the last of them. before: the posterior (K,) of
    the window before the first; None: there was none, and all classes are equally likely."""
    n_classes = likelihood.shape[1]
    belief = np.full(n_classes, 1 / n_classes) if before is None else _step(before, stay)
    posterior = np.empty(likelihood.shape)
    for n, of_window in enumerate(likelihood):
        posterior[n] = _normalised(belief * of_window)
        belief = _step(posterior[n], stay)
    return posterior, posterior[-1]


def _backward(likelihood: Floats, stay: float) -> Floats:
    """(n, K): likelihoods of the windows after each, up to a factor."""
    later = np.ones(likelihood.shape)
    for n in range(len(likelihood) - 2, -1, -1):
        later[n] = _normalised(_step(likelihood[n + 1] * later[n + 1], stay))
    return later


def _step(belief: Floats, stay: float) -> Floats:
    """From one window to the next, or back: the same, because all changes are equally likely."""
    return np.asarray(stay * belief + (1 - stay) / (len(belief) - 1) * (belief.sum() - belief))


def _normalised(values: Floats) -> Floats:
    return np.asarray(values / values.sum(-1, keepdims=True))


def check_stay(stay: object) -> float:
    value = plain_value(stay)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise UserError(f"stay is {shown(stay)}; it must lie between 0 and 1, such as 0.9")
    return float(value)


def usable_stay(stay: float | None, n_classes: int) -> float:
    """Return the probability of a model's card; refuse it if training windows were in no order that tells anything."""
    if stay is None:
        raise UserError(
            "the model does not know how long classes last: it was made by an earlier version, or of single windows; "
            "make it again"
        )
    if stay <= 1 / n_classes:
        raise UserError(
            f"the windows that the model was trained on keep their class with probability {stay:.2f}, no more than by "
            f"chance (1 in {n_classes}): they were in no order, and there is nothing to smooth by"
        )
    return stay


def stay_of(recordings: Recordings) -> float | None:
    """Return how often a window has the class of the one before it, of the same person and session, in the order of the
    rows; with one pair of each kind added, so that it is neither 0 nor 1. None where there are no such pairs."""
    session = np.zeros(recordings.n_trials) if recordings.session is None else recordings.session.numpy()
    order = np.lexsort((session, recordings.subject.numpy()))  # stable: rows keep their order within
    y, who, day = recordings.y.numpy()[order], recordings.subject.numpy()[order], session[order]
    pairs = (who[1:] == who[:-1]) & (day[1:] == day[:-1])
    if not pairs.any():
        return None
    same = int((y[1:] == y[:-1])[pairs].sum())
    return (same + 1) / (int(pairs.sum()) + 2)


def check_card_stay(stay: float | None) -> None:
    """Raise if a card from a file has an impossible value."""
    if stay is not None and not (math.isfinite(stay) and 0 < stay < 1):
        raise UserError(f"stay of a model is {shown(stay)}; it must lie between 0 and 1")


def sequences(subject: object, session: object, n_windows: int) -> list[tuple[object, ...]] | None:
    """Return the recording that each window is of (N,), by person and session; None where neither is known."""
    known = [
        encode(values, n_windows, name)[0].tolist()
        for name, values in (("subject", subject), ("session", session))
        if values is not None
    ]
    return list(zip(*known, strict=True)) if known else None
