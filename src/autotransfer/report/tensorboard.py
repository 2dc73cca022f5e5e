"""A run's fits as TensorBoard's event files, one folder for each, while it works or afterwards."""

from __future__ import annotations

import math
import re
import threading
import warnings
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line
from ..jobs import HISTORY
from ..recordings.optional import need
from ..runs.results import FinishedFit, read_fits

EVERY = 5.0  # seconds between looks at a run that is at work


def import_summary_writer() -> Any:
    """Import torch's writer of event files. A run imports it before it begins, so that a missing tensorboard is noticed
    early."""
    need("tensorboard", "--tensorboard", "tensorboard")
    return need("torch.utils.tensorboard", "--tensorboard", "tensorboard").SummaryWriter


class EventFiles:
    """Writer of event files: curves by epoch, scores and hyperparameters of every finished training, each written once.

    with EventFiles(run, target): starts a thread that looks for new fits until the block ends, and EventFiles(run,
    target).update() writes all that are there now.
    """

    def __init__(self, run: Path, target: Path) -> None:
        self.run, self.target, self.writer = run, target, import_summary_writer()
        self.written: set[str] = set()
        if target.exists() and not target.is_dir():
            raise UserError(f"{target} is a file; give --tensorboard a folder")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def update(self) -> int:
        """Write new fits; returns how many are written in all."""
        for training in read_fits(self.run, self.written).fits:
            self._write(training)
            self.written.add(training.key)
        return len(self.written)

    def _write(self, training: FinishedFit) -> None:
        record = training.record
        folder = self.target / folder_name(training)
        for old in folder.glob("events.out.tfevents.*"):  # of an earlier command: TensorBoard would show both
            old.unlink()
        writer = self.writer(str(folder))
        try:
            for name in HISTORY:
                for epoch, value in enumerate(record.history[name], 1):
                    if math.isfinite(value):
                        writer.add_scalar(name, value, epoch)
            scores = {"validation": record.validation_score, "test": record.test_score}
            metrics = {f"score/{split}": value for split, value in scores.items() if math.isfinite(value)}
            hyperparameters = {
                k: v for k, v in training.setting.to_dict().items() if isinstance(v, (bool, int, float, str))
            }
            whose = {"setting": training.name, "test_subject": str(training.test_subject), "seed": training.seed}
            # Fields of other settings are absent here, which TensorBoard shows as empty cells.
            writer.add_hparams(hyperparameters | whose, metrics, run_name=".", global_step=record.epochs)
            writer.add_text("setting", f"`{training.setting.to_json()}`")
        finally:
            writer.close()

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            try:
                self.update()
            except (UserError, OSError) as error:  # the run goes on; at its end everything is written again
                warnings.warn(f"TensorBoard's files are behind: {one_line(error)}", stacklevel=2)

    def __enter__(self) -> EventFiles:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            self.update()


def folder_name(training: FinishedFit) -> str:
    """Return the folder of a training, setting / person and seed. Names are cleaned, so that no path can leave the
    target folder."""
    setting, person = (
        re.sub(r"[^A-Za-z0-9._=+-]+", "_", text).strip("._")[:80]
        for text in (training.name, str(training.test_subject))
    )
    return f"{setting}-{training.setting.key[:6]}/{person}-{training.fold}-seed{training.seed}"
