"""AutoTransfer: models for biosignals that work on subjects they have never seen.

Modules are imported when a name is first used, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import plot as plot
    from .censoring import make_censor as make_censor
    from .censoring import scores as scores
    from .errors import UserError as UserError
    from .estimator.auto import AutoTransferClassifier as AutoTransferClassifier
    from .estimator.censored import CensoredClassifier as CensoredClassifier
    from .estimator.regressor import AutoTransferRegressor as AutoTransferRegressor
    from .export import export_model as export_model
    from .folds import Fold as Fold
    from .folds import leave_one_subject_out as leave_one_subject_out
    from .grids import grid as grid
    from .jobs import Job as Job
    from .model.eegnet import EEGNet as EEGNet
    from .models.loading import from_pretrained as from_pretrained
    from .models.loading import load_model as load_model
    from .models.loading import save_model as save_model
    from .models.outcome import train as train
    from .person.session import Session as Session
    from .recordings import Recordings as Recordings
    from .recordings import load as load
    from .recordings import synthetic as synthetic
    from .report.moabb_results import moabb_results as moabb_results
    from .search.study_size import plan_study as plan_study
    from .settings import Setting as Setting
    from .training.latent import encode as encode
    from .training.leakage import leakage as leakage

__version__ = "0.2.0.dev0"

_NAMES = {  # public names by module
    ".plot": "plot",
    ".censoring": "make_censor",
    ".censoring.scores": "scores",
    ".errors": "UserError",
    ".estimator.auto": "AutoTransferClassifier",
    ".estimator.censored": "CensoredClassifier",
    ".estimator.regressor": "AutoTransferRegressor",
    ".export": "export_model",
    ".folds": "Fold leave_one_subject_out",
    ".grids": "grid",
    ".jobs": "Job",
    ".model.eegnet": "EEGNet",
    ".models.loading": "from_pretrained load_model save_model",
    ".models.outcome": "train",
    ".person.session": "Session",
    ".recordings": "Recordings load synthetic",
    ".report.moabb_results": "moabb_results",
    ".search.study_size": "plan_study",
    ".settings": "Setting",
    ".training.latent": "encode",
    ".training.leakage": "leakage",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'autotransfer' has no attribute {name!r}")
    module = import_module(_MODULES[name], __name__)
    value = module if _MODULES[name].endswith(f".{name}") and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
