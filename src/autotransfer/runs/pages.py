"""Rows read straight from the pages of a SQLite file: what is left of a database that SQLite refuses to open.

Every leaf page of a table holds whole rows, or their beginnings with the number of the page where they go on. So rows
can be had page by page, without the header, the schema or the tree above them; one bad page costs its own rows alone.
The layout is SQLite's published file format, version 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PAGE = 4096  # SQLite's page size unless the file says otherwise
LEAF = 0x0D  # the first byte of a page of table rows
WAL_MAGIC = (0x377F0682, 0x377F0683)
INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes

Value = int | str | bytes | None
Pages = dict[int, bytes]  # counted from 1


def read_rows(path: Path) -> Iterator[tuple[int, list[Value]]]:
    """(row id, columns) of every table row that can be decoded, also old versions left in free pages."""
    pages = read_pages(path)
    for number, page in sorted(pages.items()):
        if number > 1 and page[:1] == bytes([LEAF]):  # the first page holds the schema
            count = int.from_bytes(page[3:5], "big")
            for place in range(8, min(8 + 2 * count, len(page) - 1), 2):
                try:
                    yield _row(pages, page, int.from_bytes(page[place : place + 2], "big"))
                except (IndexError, KeyError, ValueError):
                    continue  # damaged: the others are still good


def read_pages(path: Path) -> Pages:
    """The pages of a database, with what its write-ahead log holds of them."""
    size = _page_size(path)
    pages: Pages = {}
    with open(path, "rb", buffering=0) as file:
        for number in range(1, path.stat().st_size // size + 1):
            try:
                file.seek((number - 1) * size)
                pages[number] = file.read(size)
            except OSError:  # a sector that the disk cannot read
                continue
    return pages | _logged(path.with_name(path.name + "-wal"), size)


def _page_size(path: Path) -> int:
    with open(path, "rb") as file:
        header = file.read(100)
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    plausible = header.startswith(b"SQLite format 3\0") and size >= 512 and size & (size - 1) == 0
    return size if plausible else PAGE


def _logged(path: Path, size: int) -> Pages:
    """The last committed version of each page in a write-ahead log."""
    try:
        log = path.read_bytes()
    except OSError:
        return {}
    if int.from_bytes(log[:4], "big") not in WAL_MAGIC:
        return {}
    salt = log[16:24]  # frames of an earlier log, not yet overwritten, have another
    committed: Pages = {}
    pending: Pages = {}
    for start in range(32, len(log) - size - 23, 24 + size):
        if log[start + 8 : start + 16] != salt:
            break
        pending[int.from_bytes(log[start : start + 4], "big")] = log[start + 24 : start + 24 + size]
        if log[start + 4 : start + 8] != bytes(4):  # the last frame of a transaction
            committed |= pending
            pending = {}
    return committed


def _row(pages: Pages, page: bytes, start: int) -> tuple[int, list[Value]]:
    length, start = _varint(page, start)
    row_id, start = _varint(page, start)
    usable = len(page)  # no bytes of a page are reserved
    most = usable - 35
    local = length
    if length > most:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
    parts = [page[start : start + local]]
    missing = length - local
    following = int.from_bytes(page[start + local : start + local + 4], "big") if missing else 0
    while missing > 0:
        more = pages[following]
        following = int.from_bytes(more[:4], "big")
        parts.append(more[4 : 4 + min(missing, usable - 4)])
        missing -= usable - 4
    payload = b"".join(parts)
    if len(payload) != length:
        raise ValueError("the row ends beyond its page")
    return row_id, _columns(payload)


def _columns(payload: bytes) -> list[Value]:
    end, place = _varint(payload, 0)
    kinds = []
    while place < end:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        size = INTEGERS.get(kind, 0) if kind < 12 else (kind - 12) // 2
        data = payload[place : place + size]
        if len(data) != size or kind in (7, 10, 11):  # 7: a real number, of which the ledger has none
            raise ValueError(f"a column of kind {kind} with {len(data)} bytes")
        place += size
        if kind >= 12:
            values.append(data.decode() if kind % 2 else data)
        else:
            values.append(None if kind == 0 else kind - 8 if kind >= 8 else int.from_bytes(data, "big", signed=True))
    return values


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of 1 to 9 bytes, seven bits each (eight in the ninth), and the place after it."""
    value = 0
    for n in range(8):
        byte = data[place + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + n + 1
    return value << 8 | data[place + 8], place + 9
