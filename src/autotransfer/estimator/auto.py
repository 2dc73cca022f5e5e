"""AutoTransferClassifier: a run of AutoTransfer as a scikit-learn classifier."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError, shown
from ..models.model import Model
from ..recordings import Recordings
from ..runs.options import CUTTING, RunOptions, build_options
from ..settings import Setting
from .inputs import resolve_encoder, resolve_seed
from .run_estimator import DATA_FILE, RunEstimator
from .window_classifier import WindowClassifier


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTransferClassifier(RunEstimator, WindowClassifier):
    """Classifier of new subjects: a weighted ensemble of networks and linear models, selected on held-out subjects.

    `fit` performs a run, as `autotransfer run` does; it needs at least 3 subjects. Parameters that are None have the
    defaults of that command.

    Parameters
    ----------
    grid : str or list of Setting, optional
        Grid of candidates: "quick" or "paper" (the paper's procedure), or settings, as in `settings`.
    settings : list of Setting, optional
        Candidates, if no grid is given. The first setting without a penalty is the reference, EEGNet (paper).
    encoder : str, class or function, optional
        "eegnet", "shallow", or a factory (n_channels, n_times) -> nn.Module that maps windows to latent features.
    adaptation : str, optional
        Unlabeled windows of a new subject that the model uses: "zero-shot" (no windows), "online" (earlier windows),
        "transductive" (all windows), or "none" (settings of the grid without changes).
    metric : str, optional
        Metric of the run and of `score`: "balanced_accuracy", "f1", "auc", "kappa" or "accuracy".
    folds : int or "all", optional
        Number of groups of held-out subjects; "all": each subject alone.
    seeds : int, optional
        Number of seeds of each network.
    max_epochs : int, optional
        Number of epochs of each network; by default it depends on the number of windows.
    time : str, optional
        Time limit of `fit`, such as "10m" (default) or "2h"; "none": no limit.
    device : str, optional
        "auto", "cpu" or "cuda". Predictions are made on the CPU.
    sfreq : float, optional
        Sampling rate in Hz, for temporal kernels and features; MNE epochs have it.
    random_state : int, RandomState or None
        Random seed.
    run_folder : str or path, optional
        Folder of the run; by default a temporary folder. A run with the same data and options is continued.
    options : dict, optional
        Other options of `autotransfer run` and fields of `Setting` by name, such as
        {"kinds": "linear", "hold_out": "session", "lr": 3e-4, "verbose": True}.

    Attributes
    ----------
    verdict_ : str
        Score on new subjects, compared with the best baseline, in one sentence.
    next_subject_ : tuple of float
        90 % prediction interval (low, high) of the score of one more subject.
    classes_ : array of shape (classes,)
        Classes in the order of the columns of `predict_proba`.
    n_features_in_, feature_names_in_ : int, array
        Number of channels, and channel names if X has names.
    scores_ : DataFrame
        Score of each held-out subject by the delivered model, the baselines and other models, as in scores.csv.
    choice_, results_ : dict, DataFrame
        Contents of choice.json and results.csv.
    best_setting_ : Setting
        Setting of the candidate with the largest weight.
    summary_, model_ : Summary, Model
        Content of the report, and the fitted model.

    Examples
    --------
    >>> classifier = at.AutoTransferClassifier(grid="quick").fit(X, y, subjects=ids)
    >>> classifier.predict(X_new)
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
    def scoring(self) -> str | None:  # type: ignore[override]  # a parameter of CensoredClassifier
        return self.metric

    def _train(self, recordings: Recordings) -> Model:
        options, verbose = self._resolve_options(), bool((self.options or {}).get("verbose"))
        if options.task.is_numeric:
            raise UserError(f"target is {options.target!r}, which is regression; use AutoTransferRegressor")
        return self._perform_run(recordings, options, resolve_encoder(self.encoder)[1], verbose=verbose)

    def _resolve_options(self) -> RunOptions:
        """Return the options of the run that `fit` performs."""
        if self.grid is not None and self.settings is not None:
            raise UserError("grid and settings are both given, and each of them lists the candidates; give one of them")
        if not isinstance(self.options, Mapping | None):
            raise UserError(f"options is {shown(self.options)}; give a dict, such as {{'kinds': 'linear'}}")
        names = ("adaptation", "metric", "folds", "seeds", "max_epochs", "time", "device")
        values = {name: getattr(self, name) for name in names}
        values |= {"source": DATA_FILE, "grid": self.grid if self.settings is None else self.settings}
        values |= {"seed": resolve_seed(self.random_state), "encoder": resolve_encoder(self.encoder)[0]}
        others = {name: value for name, value in (self.options or {}).items() if name != "verbose"}
        for name in others:
            if name in values or name in self.get_params(deep=False):
                raise UserError(f"options has {name!r}, which is a parameter; give {name}=...")
            if name in (*CUTTING, "clean"):
                raise UserError(f"options has {name!r}, which applies to files only; give it to at.load")
        return build_options(values | others)
