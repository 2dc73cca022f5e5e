"""A checksum in every row of the ledger, because SQLite notices broken pages but not broken contents."""

from __future__ import annotations

import hashlib


def checksum(*values: object) -> str:
    """32 hexadecimal digits that change with any value: text, bytes, integers or None."""
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(b"%s %d " % (type(value).__name__.encode(), len(data)))
        digest.update(data)
    return digest.hexdigest()


# What each table's checksums cover. Counters and marks that change in place are left out: whether a job is finished
# follows from its record.
CHECKED = {
    "facts": ("name", "value"),
    "jobs": ("key", "number", "stage", "setting", "validation", "test", "seed", "record", "tensors"),
    "populations": ("keys", "prune_at"),
}
