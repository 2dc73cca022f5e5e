"""RunEstimator: base class of scikit-learn estimators whose `fit` performs a run."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import schema
from ..errors import UserError, one_line, shown, user_stacklevel
from ..model.encoders import Encoders
from ..models.loading import load_model
from ..models.model import Model
from ..recordings import Recordings, save_npz
from ..report.collect import collect
from ..report.comparison import score_table, write_scores
from ..report.page import write_page
from ..runs.choice import Choice, read_choice
from ..runs.lock import Lock
from ..runs.options import RunOptions
from ..runs.run import Run, Tell, check_unused, is_run
from ..search.plan import start_run
from ..search.procedure import perform_plan, read_results
from .window_classifier import WindowEstimator

DATA_FILE = "recordings.npz"  # stores the arrays given to fit, so that a run can be resumed from its folder alone
VARIABLE_OPTIONS = {"source", "device", "at_least"}  # options that may differ if a run is continued


class RunEstimator(WindowEstimator):
    """Estimator whose `fit` performs a run."""

    run_folder: str | os.PathLike[str] | None

    def _perform_run(
        self, recordings: Recordings, options: RunOptions, encoders: Encoders | None, *, verbose: bool
    ) -> Model:
        """Start or continue a run, set fitted attributes from the results, and return the model."""
        if recordings.sfreq is None:
            warnings.warn(
                "the sampling rate is unknown: features of rhythms, bands and beats are left out, and networks filter "
                f"over 64 samples; give it in Hz, as {type(self).__name__}(sfreq=200)",
                stacklevel=user_stacklevel(),
            )
        is_kept = self.run_folder is not None
        tell: Tell = print if verbose else lambda _: None
        with _create_folder(self.run_folder) as path, Lock(folder := Path(path)):
            run = _open_run(folder, recordings, options, encoders, tell, is_kept=is_kept)
            with closing(run.database):
                _check_same_options(run, options)
                is_complete = run.database.load_fact("complete", bool)
                choice = read_choice(folder) if is_complete else perform_plan(run, tell, progress=verbose)
                model = load_model(folder / "model", encoders)
                self.summary_ = replace(
                    collect(run), source="arrays given to fit", command=f"{self!r}.fit(X, y, subjects=subjects)"
                )
                if is_kept:
                    write_scores(folder, choice)
                    try:
                        write_page(self.summary_, folder / "report.html")
                    except Exception as error:  # the fit itself succeeded
                        warnings.warn(f"the report could not be drawn ({one_line(error)})", stacklevel=3)
                self.results_ = read_results(run)
                self.scores_ = score_table(choice)
                self._set_attributes(run, choice)
        self.choice_, self.verdict_ = schema.to_values(choice), choice.headline
        expected = choice.next_subject
        limits = choice.task.metric(choice.metric).limits
        self.next_subject_ = limits if expected is None else (expected.low, expected.high)
        self.best_setting_ = model.candidates[int(np.argmax(model.card.weights))].setting
        return model

    def _set_attributes(self, run: Run, choice: Choice) -> None:
        """Set fitted attributes that only this estimator has."""

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to `path` as one self-contained HTML file, and return the path."""
        check_is_fitted(self)
        return write_page(self.summary_, path)


def _create_folder(run_folder: str | os.PathLike[str] | None) -> AbstractContextManager[str | os.PathLike[str]]:
    """Create the run folder, or a temporary folder if `run_folder` is None."""
    if run_folder is None:
        return TemporaryDirectory(prefix="autotransfer-")
    if not isinstance(run_folder, str | os.PathLike) or not os.fspath(run_folder):
        raise UserError(f"run_folder is {shown(run_folder)}; give the path of a folder, or None")
    Path(run_folder).mkdir(parents=True, exist_ok=True)
    return nullcontext(run_folder)


def _open_run(
    folder: Path, recordings: Recordings, options: RunOptions, encoders: Encoders | None, tell: Tell, *,
    is_kept: bool,
) -> Run:  # fmt: skip
    """Return the run of a folder, or a new run. is_kept: whether to save the arrays for `autotransfer resume`."""
    if is_run(folder):
        return Run.open(folder, encoders, recordings)
    check_unused(folder)
    if is_kept:
        save_npz(folder / DATA_FILE, recordings)
    run = start_run(folder, replace(options, source=str(folder / DATA_FILE)), encoders, recordings, tell)
    run.warn_of_recordings()
    return run


def _check_same_options(run: Run, options: RunOptions) -> None:
    """Raise if the folder has a run with other options."""
    old_values, values = run.database.require_fact("requested_options", RunOptions).to_dict(), options.to_dict()
    names = [name for name in {**values, **old_values} if old_values.get(name) != values.get(name)]
    names = [name for name in names if name not in VARIABLE_OPTIONS]
    if names:
        name = min(names, key=lambda name: name == "max_epochs")  # its default depends on other options
        raise UserError(
            f"{run.folder} holds a run with {name}={old_values.get(name)!r}, not {values.get(name)!r}; choose another "
            "run_folder (None in cross-validation)"
        )
