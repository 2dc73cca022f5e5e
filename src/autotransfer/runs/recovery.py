"""Going on with a run, from the copy of its ledger where the ledger itself is damaged or missing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ..errors import UserError
from ..files import sync_folder
from ..model.encoders import Encoders
from .ledger import REMEDY, Ledger, backup_of
from .lock import wal_files
from .run import Run, Tell
from .sqlite_errors import DamagedLedger


def reopen(folder: Path, encoders: Encoders | None, tell: Tell, source: str | None = None) -> Run:
    """The run in a folder, to go on with it; its lock must be held. source: as of `Run.open`.

    A damaged ledger is put aside, and the run goes on from the copy that was made when the last stage ended: what was
    trained since is trained again.
    """
    make_sound(folder / "ledger.sqlite", tell)
    return Run.open(folder, encoders, source=source)


def make_sound(path: Path, tell: Tell) -> None:
    """Put the copy of a ledger in its place where it is damaged or missing; raise where the copy is, too."""
    if not _sound(path):
        copy = backup_of(path)
        if not _sound(copy):
            raise UserError(f"the ledger {path} is damaged or missing, and there is no sound copy of it; {REMEDY}")
        kept = _put_aside(path)
        copy.replace(path)
        sync_folder(path.parent)
        fate = "missing" if kept is None else f"damaged and is kept as {kept.name}"
        tell(f"the ledger was {fate}; going on from the copy made when the last stage ended")
        with closing(Ledger(path)) as ledger:
            ledger.back_up()


def _put_aside(path: Path) -> Path | None:
    """A damaged ledger and its log under a name that is free; None where there is no ledger."""
    number = 1
    while (kept := path.with_name(f"{path.stem}.damaged-{number}.sqlite")).exists():
        number += 1
    log, index = wal_files(path)
    index.unlink(missing_ok=True)
    for name, target in ((log, wal_files(kept)[0]), (path, kept)):  # first what must not meet another ledger
        if name.exists():
            name.replace(target)
    return kept if kept.exists() else None


def _sound(path: Path) -> bool:
    """Whether a ledger is there and as it was written. Nothing is changed."""
    if not path.exists():
        return False
    try:
        with closing(Ledger(path, read_only=True)) as ledger:
            ledger.check()
    except DamagedLedger:
        return False
    return True
