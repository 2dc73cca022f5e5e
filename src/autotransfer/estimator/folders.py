"""The folder of the run behind `fit`: the user's or a temporary one, with a run that is begun or continued."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import UserError, shown
from ..folds import in_units
from ..model.encoders import Encoders
from ..recordings import Recordings, save_npz
from ..runs.options import RunOptions, resolved
from ..runs.provenance import changed_column, column_digests, fingerprint
from ..runs.run import Run, Tell, check_unused, is_run
from ..search.planning import begin

DATA = "recordings.npz"  # the arrays handed to fit, so that a run can be resumed from its folder alone
IMMATERIAL = {"source", "device", "at_least"}  # options that a resumed run may differ in


@contextmanager
def open_folder(run_folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The user's folder, or a temporary one."""
    if run_folder is None:
        with TemporaryDirectory(prefix="autotransfer-") as name:
            yield Path(name)
        return
    folder = Path(run_folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}); choose another run_folder") from None
    yield folder


@contextmanager
def open_run(
    folder: Path, recordings: Recordings, options: RunOptions, encoders: Encoders | None, tell: Tell | None, *,
    kept: bool,
) -> Iterator[Run]:  # fmt: skip
    """The run in the folder, continued if there is one; its ledger is closed afterwards.

    kept: the folder outlives fit, so the arrays are put there, and `autotransfer resume` can go on with it.
    """
    if is_run(folder):
        run = Run.open(folder, encoders)
        _check_same(run, recordings, options)
    else:
        check_unused(folder)
        if kept:
            save_npz(folder / DATA, recordings)
        run = begin(folder, replace(options, source=str(folder / DATA)), encoders, recordings, tell)
    try:
        yield run
    finally:
        run.ledger.close()


def _check_same(run: Run, recordings: Recordings, options: RunOptions) -> None:
    """Raise if the folder holds a run on other data or with other options."""
    known, asked = run.recordings, in_units(recordings, run.options.hold_out)
    same_names = (known.classes, known.subjects, known.sfreq) == (asked.classes, asked.subjects, asked.sfreq)
    if not same_names or fingerprint(known) != fingerprint(asked):
        raise UserError(f"{run.folder} holds a run on other data; choose another run_folder (None in cross-validation)")
    digests = {name: digest for name, digest in column_digests(asked).items() if digest}  # those left out are the run's
    if (column := changed_column(digests, known)) is not None:
        raise UserError(
            f"{run.folder} holds a run on data with another column {shown(column)}; choose another run_folder (None in "
            "cross-validation)"
        )
    stored = run.ledger.recall("asked", RunOptions)
    if stored is None:  # it was begun in another way
        stored, options = run.options, resolved(options, run.recordings)
    begun, wanted = stored.to_dict(), options.to_dict()
    differing = [name for name in {**wanted, **begun} if name not in IMMATERIAL and begun.get(name) != wanted.get(name)]
    differing.sort(key=lambda name: name == "max_epochs")  # may follow from another
    if differing:
        name = differing[0]
        raise UserError(
            f"{run.folder} holds a run with {name}={begun.get(name)!r}, not {wanted.get(name)!r}; choose another "
            "run_folder"
        )
