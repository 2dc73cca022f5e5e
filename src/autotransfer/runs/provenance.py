"""Which data the outcomes of a run depend on."""

from __future__ import annotations

import hashlib

from ..recordings import Recordings
from ..settings import SUBJECT
from ..training.nuisance import columns_of, raw_values


def fingerprint(recordings: Recordings, nuisance: str = SUBJECT) -> str:
    """Tells whether the data are the ones that a run began with."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (recordings.X, recordings.y, recordings.subject):
        digest.update(str(tuple(tensor.shape)).encode())
        for start in range(0, len(tensor), 1024):
            digest.update(tensor[start : start + 1024].contiguous().numpy().tobytes())
    if recordings.targets is not None:
        digest.update(recordings.targets.numpy().tobytes())
    if recordings.ring is not None:
        digest.update(f"ring {recordings.ring}".encode())
    if nuisance != SUBJECT:
        for values in raw_values(recordings, nuisance):
            digest.update(values)
    return digest.hexdigest()


def column_digests(recordings: Recordings) -> dict[str, str]:
    """Of the sessions, '' where there are none, and of every column, by name. The fingerprint is that of windows,
    classes and people; reports, days and groups depend on these."""
    digests = {"session": ""}
    for name in columns_of(recordings)[1:]:
        digest = hashlib.blake2b(digest_size=8)
        for values in raw_values(recordings, name):
            digest.update(values)
        if name in recordings.columns:
            digest.update(repr([str(label) for label in recordings.columns[name].labels or ()]).encode())
        digests[name] = digest.hexdigest()
    return digests


def changed_column(known: dict[str, str], recordings: Recordings) -> str | None:
    """Return the first column that is not as it was by its `column_digests`, None if all are. Further columns do not
    matter."""
    digests = column_digests(recordings)
    return next((name for name, digest in known.items() if digests.get(name) != digest), None)
