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
    array = np.asarray(log_probs)
    if array.dtype.kind not in "fiu":
        raise UserError(f"log_probs are of the type {array.dtype}; give real numbers")
    given = array.astype(np.float64)
    if given.ndim != 2 or given.shape[1] < 2 or not (given < np.inf).all():
        raise UserError(
            f"log_probs have the shape {given.shape}; give (windows, 2 classes or more), without NaN or inf"
        )
    stays = check_stay(stay)
    found = np.empty(given.shape)
    codes = (
        np.zeros(len(given), dtype=np.int64)
        if sequence is None
        else encode(sequence, len(given), "sequence")[0].numpy()
    )
    for one in np.unique(codes):
        rows = np.flatnonzero(codes == one)
        said = evidence(given[rows])
        posterior = forward(said, stays)[0]
        if not causal:
            posterior = posterior * _backward(said, stays)
        found[rows] = np.log(np.maximum(_normalised(posterior), LEAST))
    return found


def evidence(log_probs: Floats) -> Floats:
    """What windows (n, K) say, up to a factor for each, nothing quite ruled out."""
    if (log_probs.max(1) == -np.inf).any():
        raise UserError("log_probs hold a window without any likely class")
    said: Floats = np.maximum(np.exp(log_probs - log_probs.max(1, keepdims=True)), LEAST)
    return said


def forward(said: Floats, stay: float, before: Floats | None = None) -> tuple[Floats, Floats]:
    """Posteriors of windows (n, K), each given it and those before it, and the last of them. before: the posterior
    (K,) of the window before the first; None: there was none, and all classes are alike."""
    belief = np.full(said.shape[1], 1 / said.shape[1]) if before is None else _step(before, stay)
    found = np.empty(said.shape)
    for n, own in enumerate(said):
        found[n] = _normalised(belief * own)
        belief = _step(found[n], stay)
    return found, found[-1]


def _backward(said: Floats, stay: float) -> Floats:
    """(n, K): what the windows after each say of it, up to a factor."""
    found = np.ones(said.shape)
    for n in range(len(said) - 2, -1, -1):
        found[n] = _normalised(_step(said[n + 1] * found[n + 1], stay))
    return found


def _step(belief: Floats, stay: float) -> Floats:
    """From one window to the next, or back: the same, because all changes are alike."""
    moved: Floats = stay * belief + (1 - stay) / (len(belief) - 1) * (belief.sum() - belief)
    return moved


def _normalised(values: Floats) -> Floats:
    found: Floats = values / values.sum(-1, keepdims=True)
    return found


def check_stay(stay: object) -> float:
    value = plain_value(stay)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise UserError(f"stay is {shown(stay)}; it must lie between 0 and 1, such as 0.9")
    return float(value)


def usable_stay(stay: float | None, n_classes: int) -> float:
    """That of a model's card; refused where training windows were in no order that tells anything."""
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
    """How often a window has the class of the one before it, of the same person and session, in the order of the rows;
    with one pair of each kind added, so that it is neither 0 nor 1. None where there are no such pairs."""
    session = np.zeros(recordings.n_trials) if recordings.session is None else recordings.session.numpy()
    order = np.lexsort((session, recordings.subject.numpy()))  # stable: rows keep their order within
    y, who, day = recordings.y.numpy()[order], recordings.subject.numpy()[order], session[order]
    next_one = (who[1:] == who[:-1]) & (day[1:] == day[:-1])
    if not next_one.any():
        return None
    same = int((y[1:] == y[:-1])[next_one].sum())
    return (same + 1) / (int(next_one.sum()) + 2)


def check_card_stay(stay: float | None) -> None:
    """Of a card that a file held."""
    if stay is not None and not (math.isfinite(stay) and 0 < stay < 1):
        raise UserError(f"stay of a model is {shown(stay)}; it must lie between 0 and 1")


def sequences(subject: object, session: object, n_windows: int) -> list[tuple[object, ...]] | None:
    """Which recording each window is of (N,), by person and session; None where neither is known."""
    known = [
        encode(values, n_windows, name)[0].tolist()
        for name, values in (("subject", subject), ("session", session))
        if values is not None
    ]
    return list(zip(*known, strict=True)) if known else None
