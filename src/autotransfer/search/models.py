"""The chosen setting as a model that can be used: the fold members as an ensemble, and a refit on everybody."""

from __future__ import annotations

import numpy as np

from ..errors import UserError
from ..folds import Fold
from ..jobs import Job
from ..runs.assembly import assemble
from ..runs.choice import Choice
from ..runs.run import Run, Tell
from ..runs.saved_model import save_model
from ..settings import Setting
from ..training.train import train


def build_models(run: Run, setting: Setting, choice: Choice, tell: Tell) -> None:
    """Writes RUN/model and, with --final refit, RUN/model/refit."""
    entries = [e for e in run.ledger.entries() if e.setting == setting and e.status == "done"]
    own = [e for e in entries if e.stage != "nested"]
    if not own:
        name = run.options.name_of(setting)
        raise UserError(
            f"every training of {name!r} failed, although validation ranked it first; autotransfer status {run.folder} "
            "shows why. Start a new run with a smaller --lr"
        )
    states, folds = [], []
    for entry in own:
        tensors = run.weights(entry.key)
        states.append({k.removeprefix("best."): t for k, t in tensors.items() if k.startswith("best.")})
        folds.append(run.job(entry).fold)
    scores = {"nested_test_mean": float(np.mean(list(choice.nested_test_scores.values())))}
    ensemble = assemble(run.recordings, setting, states, folds, kind="ensemble", scores=scores)
    save_model(run.folder / "model", *ensemble)
    if run.options.final == "refit":
        best = [entry.record.best_epoch for entry in own if entry.record is not None]
        epochs = max(1, round(float(np.median(best))))
        tell(f"refit: one model on all {run.recordings.n_subjects} subjects for {epochs} epochs")
        fold = Fold(np.arange(run.recordings.n_trials, dtype=np.int64))
        job = Job(setting.replace(max_epochs=epochs, checkpoint="last"), fold, run.options.seed)
        (outcome,) = train(run.recordings, [job], run.options.device, progress=False, encoders=run.encoders)
        state = {k: t for k, t in outcome.final_state.items() if not k.startswith("censor.")}
        refit = assemble(run.recordings, setting, [state], [fold], kind="refit", scores=scores)
        save_model(run.folder / "model" / "refit", *refit)
