"""Which data the outcomes of a run depend on."""

from __future__ import annotations

import hashlib

import numpy as np

from ..recordings import Recordings


def fingerprint(recordings: Recordings) -> str:
    """Tells whether the data are the ones that a run began with."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (recordings.X, recordings.y, recordings.subject):
        digest.update(str(tuple(tensor.shape)).encode())
        for start in range(0, len(tensor), 1024):
            digest.update(tensor[start : start + 1024].contiguous().numpy().tobytes())
    if recordings.targets is not None:
        digest.update(recordings.targets.numpy().tobytes())
    return digest.hexdigest()


def column_digests(recordings: Recordings) -> dict[str, str]:
    """Return digests of the sessions, '' if there are none, and of every column, by name.

    `fingerprint` covers windows, classes and subjects; reports and groups depend on the columns.
    """
    digests = {"session": ""}
    if recordings.session is not None:
        order = np.unique(recordings.session.numpy(), return_inverse=True)[1].astype(np.int64)
        digests["session"] = hashlib.blake2b(order.tobytes(), digest_size=8).hexdigest()
    for name, column in recordings.columns.items():
        digest = hashlib.blake2b(column.values.tobytes(), digest_size=8)
        digest.update(repr([str(label) for label in column.labels or ()]).encode())
        digests[name] = digest.hexdigest()
    return digests


def changed_column(known: dict[str, str], recordings: Recordings) -> str | None:
    """Return the first column that is not as it was by its `column_digests`, None if all are. Further columns do not
    matter."""
    digests = column_digests(recordings)
    return next((name for name, digest in known.items() if digests.get(name) != digest), None)
