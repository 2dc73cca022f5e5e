"""Forgetting people: what a run holds of them is deleted, and what is left is a folder in which it can be done again.

Nothing trained can stay. A training either saw a person's windows or held them out: then it keeps what it says of each
of their windows, and without them the fold that it belongs to has other people in it. Weights of the average,
thresholds, model and report rest on all trainings together. The options of the run stay, as study.toml.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..errors import UserError, shown
from ..files import sync_folder, write_atomically
from ..folds import held_out_groups
from ..words import count
from .data_facts import Data, check_person
from .ledger import REMEDY, Ledger, backup_of
from .lock import Lock
from .options import RunOptions
from .regression import CHOICE, NUMBERS, is_regression
from .run import check_is_run
from .sqlite_errors import DamagedLedger
from .study import NAME, study_text

MODEL = "model"  # the only folder of a run that holds something of a person
# What a run, and commands that were not told another place, write into its folder, and what of a person is in it. The
# ledger is deleted last: as long as it is there, whoever was interrupted can forget again.
HOLDS = {
    "recordings.npz": "windows and labels",
    "report.html": "names, scores, coordinates of windows",
    "choice.json": "names and scores",
    "results.csv": "names and scores",
    "plan.json": "a plan that rests on their windows",
    "optuna.sqlite*": "scores",
    **dict.fromkeys(("model.onnx", "model.pt2", "model.safetensors"), "an exported model that was fitted to them"),
    MODEL: "the model that was fitted to them",
    "population-*.checkpoint": "weights that were fitted to them",
    **{
        pattern.format(ledger): "weights, predictions, names and scores"
        for ledger in ("numbers", "ledger")
        for pattern in ("{}.damaged-*", "{}.backup.sqlite*", "{}.sqlite-*", "{}.sqlite")
    },
}
STAYS = (NAME, "lock")
MARKS = (
    "ledger.sqlite",
    NUMBERS,
    CHOICE,
    "model/model.json",
)  # any of them is there: the folder is a run's, or a person's


@dataclass(frozen=True)
class Forgotten:
    """What `forget` deletes, or has deleted."""

    people: tuple[str, ...]  # whom it was asked to forget
    files: dict[str, str]  # what holds something of them, by the name in the folder, and what that is
    others: tuple[str, ...]  # what lies in the folder and is not the run's: it stays
    trained_on_them: int = 0  # finished trainings that saw their windows
    held_them_out: int = 0  # finished trainings that were scored on their windows
    source: str | None = None  # where the recordings were; None: in Python, or nobody has noted it

    def lines(self, folder: Path, *, done: bool) -> list[str]:
        """For people to read. done: not a dry run."""
        verb = "deleted" if done else "would delete"
        trainings = self.trained_on_them + self.held_them_out
        lines = [f"{verb} {name}: {content}" for name, content in self.files.items()]
        if trainings:
            lines += [
                f"{count(trainings, 'training')} to be done again: {self.trained_on_them} saw them, "
                f"{self.held_them_out} held them out and kept what they say of them"
            ]
        if self.others:
            lines += [f"not the run's own, left alone: {', '.join(self.others)}; delete what was made from them"]
        config = "--target continuous" if self.source is None else f"--config {folder / NAME}"
        again = f"autotransfer run DATA {config} --out {folder}"
        return [*lines, f"take them out of {self.source or 'the recordings'}, then: {again}"]


def forget(run: str | Path, people: Sequence[str], *, dry_run: bool = False) -> Forgotten:
    """Delete everything that a run holds of people.

    All trainings of the run saw their windows, or were scored on them, so ledger, models, predictions and report go;
    the options stay in study.toml, with which the run can be done again on recordings without them. Copies, exported
    files and predictions that lie elsewhere are not known to the run.

    run: its folder. people: names, as the report has them.
    dry_run: delete nothing.
    Returns what was deleted, or would be. Where it was interrupted, call it again.
    """
    folder, names = Path(run), tuple(dict.fromkeys(str(name) for name in people))
    if not names or isinstance(people, str):
        raise UserError(f"people is {shown(people)}; give a list of names")
    regression = is_regression(folder)
    if not regression:
        check_is_run(folder)
    with Lock(folder):  # which also refuses links
        options, plan = (None, _regression_plan(folder, names)) if regression else _plan(folder, names)
        if dry_run:
            return plan
        if options is not None:
            write_atomically(folder / NAME, study_text(options))
        for name in plan.files:
            _delete(folder / name)
        sync_folder(folder)
    return plan


def _plan(folder: Path, names: tuple[str, ...]) -> tuple[RunOptions, Forgotten]:
    with closing(_ledger(folder / "ledger.sqlite")) as ledger:
        data, options = _asked(ledger, names)
        units = data.units
        theirs = {k for k, name in enumerate(data.subjects) if (name if units is None else units.people[k]) in names}
        groups = held_out_groups(len(data.subjects), units, options.n_folds)
        those = {place for place, group in enumerate(groups) if theirs & set(group)}
        finished = [entry for entry in ledger.entries(records=False) if entry.status in ("done", "failed")]
        held = sum(bool({entry.validation, entry.test} & those) for entry in finished)
    return options, Forgotten(names, *_files(folder), len(finished) - held, held, options.source)


def _regression_plan(folder: Path, names: tuple[str, ...]) -> Forgotten:
    """Of a run with a continuous target; its ledger is deleted last."""
    with closing(_ledger(folder / NUMBERS)) as ledger:
        _, options = _asked(ledger, names)
    files, others = _files(folder)
    files[ledger.path.name] = files.pop(ledger.path.name)
    return Forgotten(names, files, others, source=options.source or None)


def _asked(ledger: Ledger, names: tuple[str, ...]) -> tuple[Data, RunOptions]:
    """Recordings and options of a run, which has these people."""
    data, stored = ledger.recall("data", Data), ledger.recall("options", dict[str, Any])
    if data is None or stored is None:
        folder = ledger.path.parent
        raise UserError(f"{folder} does not say whose recordings it has; delete it, and run again without them")
    for name in names:
        check_person(name, data.people, data.name)
    return data, RunOptions.from_dict(stored)


def _files(folder: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """What of a folder is to be deleted, in that order, and what is not the run's."""
    present = {path.name: path.is_dir() for path in sorted(folder.iterdir())}
    files = {
        name: content
        for pattern, content in HOLDS.items()
        for name, is_folder in present.items()
        if fnmatch(name, pattern) and is_folder == (pattern == MODEL)
    }
    return files, tuple(name for name in present if name not in files and name not in STAYS)


def belongs_to_run(path: Path) -> bool:
    """Whether a file at this path is, or would be, one that a run writes into its folder or keeps there."""
    file = path.resolve()
    for folder in file.parents[:3]:  # the weights of a refit lie three folders deep
        if any((folder / name).exists() for name in MARKS):
            name = file.relative_to(folder).parts[0]
            return name in STAYS or any(fnmatch(name, pattern) for pattern in HOLDS)
    return False


def _ledger(path: Path) -> Ledger:
    """The ledger or, where it is damaged or missing, the copy of it."""
    for candidate in (path, backup_of(path)):
        try:
            if candidate.exists():
                return Ledger(candidate, read_only=True)
        except DamagedLedger:
            continue
    raise UserError(f"the ledger {path} is damaged, and there is no sound copy of it; {REMEDY}, or delete the folder")


def _delete(path: Path) -> None:
    """A file, or a folder with all that is in it. Links in it are deleted, not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
