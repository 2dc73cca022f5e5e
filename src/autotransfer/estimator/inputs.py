"""Conversion and checks of the inputs of fit and predict."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from ..errors import UserError, shown
from ..folds import check_subjects
from ..jobs import check_seed
from ..model.encoders import ENCODERS, Encoders
from ..recordings import Raw, Recordings
from ..recordings.labels import as_list
from ..recordings.signal import agree_on_rate
from ..recordings.windows import as_window_array, is_epochs
from ..runs.options import DEFAULT_ENCODER


def read_windows(X: object) -> Raw:
    """Return windows (N, channels, times), with channels, sampling rate and subjects if X are MNE epochs."""
    if is_epochs(X):
        from ..recordings.epochs import raw_from_epochs

        return raw_from_epochs(X)
    return Raw(X=as_window_array(X))


def training_recordings(
    X: object, y: object, *, subjects: object, groups: object, sfreq: float | None, columns: object = None
) -> tuple[Recordings, NDArray[Any], bool]:
    """Return recordings, the classes in the dtype of y, and whether X has channel names."""
    raw, labels = read_training_windows(X, subjects, groups, sfreq), label_column(y)
    all_columns = _merge_columns(columns, raw)
    session = all_columns.pop("session", None)
    recordings = Recordings.from_raw(replace(raw, y=labels, session=session, columns=all_columns, name="recordings"))
    if len({isinstance(label, str) for label in recordings.classes}) > 1:
        raise UserError(f"y holds {shown(list(recordings.classes))}; give numbers or text, not both")
    check_classification_targets(labels)
    check_subjects(recordings)
    return recordings, np.array(recordings.classes, dtype=labels.dtype), raw.channels is not None


def label_column(y: object) -> NDArray[Any]:
    """Return y as an array (N,), with None for masked values."""
    if y is None:
        raise UserError("fit requires y to be passed, but the target y is None; give one value per window")
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
        y = np.where(y.mask, np.array(None), y.data)
    column: NDArray[Any] = column_or_1d(y, warn=True)
    return column


def _merge_columns(user_columns: object, raw: Raw) -> dict[Any, Any]:
    """Return all columns, of which one is the session; columns of the user replace the metadata of epochs."""
    columns: dict[Any, Any] = dict(raw.columns or {})
    columns |= {} if raw.session is None else {"session": raw.session}
    if user_columns is not None:
        items = getattr(user_columns, "items", None)
        if not callable(items):
            raise UserError(f"columns are {shown(user_columns)}; give a dict or a DataFrame with one value per window")
        columns |= dict(items())
    return columns


def read_training_windows(X: object, subjects: object, groups: object, sfreq: float | None) -> Raw:
    """Return windows as `read_windows` does, with their subjects from one of the arguments or from X."""
    raw = read_windows(X)
    if subjects is not None and groups is not None:
        raise UserError("subjects and groups are both given, and both name the subjects; pass one of them")
    sources = {"subjects": subjects, "groups": groups, "the column 'subject' of the epochs' metadata": raw.subject}
    name = next((name for name, ids in sources.items() if ids is not None), None)
    if name is None:
        raise UserError(
            "subject ids are missing; pass fit(X, y, subjects=ids) with one id per window (in cross_val_score: "
            "params={'subjects': ids}, in a pipeline: STEP__subjects=ids)"
        )
    ids = as_list(sources[name], name, raw.X.shape[0])
    if len(ids) == 1:
        raise UserError("X holds 1 sample, a single window; training needs windows of at least two subjects")
    return replace(raw, subject=ids, sfreq=agree_on_rate(raw.sfreq, sfreq, "X"))


def resolve_encoder(encoder: object) -> tuple[str, Encoders | None]:
    """Return the name of an encoder in a setting, and the factory by this name if the encoder is user-defined."""
    encoder = DEFAULT_ENCODER if encoder is None else encoder
    if isinstance(encoder, str) and encoder in ENCODERS:
        return encoder, None
    if isinstance(encoder, nn.Module) or not callable(encoder):
        raise UserError(
            f"encoder is {shown(encoder)}; give {', '.join(map(repr, ENCODERS))}, or a class or function "
            "(n_channels, n_times) -> nn.Module"
        )
    # The option --encoder has this form, too.
    name = f"{getattr(encoder, '__module__', '')}:{getattr(encoder, '__qualname__', type(encoder).__qualname__)}"
    return name, {name: encoder}


def resolve_seed(random_state: object) -> int:
    """Return an integer seed: random_state itself, or a number drawn from a generator."""
    if isinstance(random_state, Integral):
        return check_seed(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
