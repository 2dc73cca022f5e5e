"""TensorBoard event files of the fits of a run, with one folder per fit, written during the run or afterwards."""

from __future__ import annotations

import math
import re
import threading
import warnings
from pathlib import Path

from ..errors import UserError, one_line
from ..jobs import CURVES
from ..recordings.optional import need
from ..runs.results import FinishedFit, read_fits

POLL_SECONDS = 5.0  # seconds between updates during a run


class EventFiles:
    """Writer of event files with the curves, scores and hyperparameters of finished fits.

    `with EventFiles(run, target)` starts a thread that writes finished fits until the block ends. `update` writes the
    fits that have finished since the last update.
    """

    def __init__(self, run: Path, target: Path) -> None:
        need("tensorboard", "--tensorboard", "tensorboard")  # torch's module imports it
        self.run, self.target = run, target
        self.writer = need("torch.utils.tensorboard", "--tensorboard", "tensorboard").SummaryWriter
        self.written: set[str] = set()
        if target.exists() and not target.is_dir():
            raise UserError(f"{target} is a file; give --tensorboard a folder")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def update(self) -> int:
        """Write the fits that have finished since the last update, and return the number of all written fits."""
        for fit in read_fits(self.run, self.written).fits:
            self._write(fit)
            self.written.add(fit.key)
        return len(self.written)

    def _write(self, fit: FinishedFit) -> None:
        record = fit.record
        folder = self.target / folder_name(fit)
        for path in folder.glob("events.out.tfevents.*"):  # TensorBoard shows all files of a folder
            path.unlink()
        writer = self.writer(str(folder))
        try:
            for name in CURVES:
                for epoch, value in enumerate(record.history[name], 1):
                    if math.isfinite(value):
                        writer.add_scalar(name, value, epoch)
            scores = {"validation": record.validation_score, "test": record.test_score}
            metrics = {f"score/{split}": value for split, value in scores.items() if math.isfinite(value)}
            hyperparameters = {k: v for k, v in fit.setting.to_dict().items() if isinstance(v, (bool, int, float, str))}
            identity = {"setting": fit.name, "test_subject": str(fit.test_subject), "seed": fit.seed}
            # TensorBoard shows missing hyperparameters as empty cells.
            writer.add_hparams(hyperparameters | identity, metrics, run_name=".", global_step=record.epochs)
            writer.add_text("setting", f"`{fit.setting.to_json()}`")
        finally:
            writer.close()

    def _watch(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self.update()
            except (UserError, OSError) as error:  # the next update writes the missing fits
                warnings.warn(f"TensorBoard files could not be updated: {one_line(error)}", stacklevel=2)

    def __enter__(self) -> EventFiles:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self.update()


def folder_name(fit: FinishedFit) -> str:
    """Return the folder SETTING/SUBJECT-FOLD-SEED of a fit, without characters that could point to other folders."""
    setting, subject = (
        re.sub(r"[^A-Za-z0-9._=+-]+", "_", text).strip("._")[:80] for text in (fit.name, str(fit.test_subject))
    )
    return f"{setting}-{fit.setting.key[:6]}/{subject}-{fit.fold}-seed{fit.seed}"
