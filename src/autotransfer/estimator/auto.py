"""AutoTransferClassifier: the whole procedure as a classifier, from the first job to the report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError, shown
from ..models.model import Model
from ..recordings import Recordings
from ..runs.options import CUTTING, RunOptions, build_options
from ..runs.preparation import check_packages
from ..settings import Setting
from ..tasks import Metric, Task, task_of
from ..tasks.classification import CLASSIFICATION
from ..training.packing import resolve_device
from .inputs import encoder_of, seed_of
from .run_estimator import DATA, RunEstimator
from .window_classifier import WindowClassifier


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTransferClassifier(RunEstimator, WindowClassifier):
    """Weighted ensemble of networks and linear models, each evaluated on held-out people.

        auto = AutoTransferClassifier(grid="quick").fit(X, y, subjects=ids)    # at least 3 subjects

    None is the default of `autotransfer run`.

    grid, settings: the name of a grid ("paper": the paper's procedure), or a list of `at.Setting`, which are averaged;
        the first without a penalty is the paper's network. Give one of the two
    encoder: "eegnet", "shallow", or a class or function (n_channels, n_times) -> nn.Module that maps windows to z
    adaptation: what models may use of a new person: "zero-shot", nothing; "online", the windows so far;
        "transductive", all windows at once, unlabeled; "none": the settings of the grid as they are
    metric: metric of the run and of `score`: "balanced_accuracy", "f1", "auc", "kappa" or "accuracy"
    folds: groups of people who are held out in turn: a number, or "all" for each person alone
    seeds: number of seeds of each network
    max_epochs: epochs of each network; by default they follow from the number of windows
    time: time limit of fit, such as "30m" (default) or "2h"; "none": train everything
    device: "auto", "cpu" or "cuda"; predictions are made on the CPU
    sfreq: sampling rate in Hz, for temporal kernels and representations; read from MNE epochs
    random_state: random seed
    run_folder: folder of the run. An existing run is continued if its data and options are the same, and refused
        otherwise. None: a temporary folder
    options: other options of `autotransfer run` and fields of `at.Setting`, by name, such as
        {"kinds": "linear", "hold_out": "session", "lr": 3e-4, "verbose": True}

    After fit: `verdict_`, the score on unseen people compared with the best baseline, in a sentence; `next_subject_`
    (low, high), a 90 % prediction interval for the score of one more person; `classes_`, `n_features_in_` (channels),
    `feature_names_in_` (if X named them), `choice_` (choice.json), `results_` (results.csv, a DataFrame),
    `best_setting_` (of the candidate with the largest weight), `summary_` (of the report) and `model_`.
    """

    grid: str | Sequence[Setting] | None = field(default=None, kw_only=False)
    settings: Sequence[Setting] | None = None
    encoder: Any = None
    adaptation: str | None = None
    metric: str | None = None
    folds: int | str | None = None
    seeds: int | None = None
    max_epochs: int | None = None
    time: str | None = None
    device: str | None = None
    sfreq: float | None = None
    random_state: Any = 0
    run_folder: str | os.PathLike[str] | None = None
    options: Mapping[str, Any] | None = None

    @property
    def scoring(self) -> str | None:  # type: ignore[override]  # a parameter of the other classifier
        return self.metric

    @property
    def _task(self) -> Task:
        return task_of(str(self._further().get("target", CLASSIFICATION)))

    def _metric(self) -> Metric:
        return self._task.metric(self.metric or self._task.default_metric)

    def _check_options(self) -> None:
        described = self._described()
        if described.task.is_numeric:
            raise UserError(
                f"target is {described.target!r}, and a classifier tells classes apart; use AutoTransferRegressor"
            )

    def _train(self, recordings: Recordings) -> Model:
        verbose = bool(self._further().get("verbose"))
        return self._perform(recordings, self._described(), encoder_of(self.encoder)[1], verbose=verbose)

    def _further(self) -> Mapping[str, Any]:
        """Return the options that have no parameter of their own."""
        if not isinstance(self.options, Mapping | None):
            raise UserError(f"options is {shown(self.options)}; give a dict, such as {{'kinds': 'linear'}}")
        return self.options or {}

    def _described(self) -> RunOptions:
        """Return the description of the run that fit performs."""
        if self.grid is not None and self.settings is not None:
            raise UserError("grid and settings are two names for what is tried; give one of them")
        names = ("adaptation", "metric", "folds", "seeds", "max_epochs", "time", "device")
        given = {name: getattr(self, name) for name in names}
        given |= {"source": DATA, "seed": seed_of(self.random_state), "encoder": encoder_of(self.encoder)[0]}
        given["grid"] = self.grid if self.settings is None else self.settings
        further = {name: value for name, value in self._further().items() if name != "verbose"}
        own = {"source", "seed", *self.get_params(deep=False)}
        if twice := [name for name in further if name in own]:
            raise UserError(f"{twice[0]} is a parameter of its own; leave it out of options")
        if unread := [name for name in further if name in (*CUTTING, "clean")]:
            raise UserError(f"{unread[0]} says how files are read, and X is an array; give it to at.load")
        described = build_options(given | further)
        resolve_device(described.device)
        check_packages(described)
        return described
