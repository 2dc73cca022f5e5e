"""The chosen setting as a model that can be used: the fold members as an ensemble, and a refit on everybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from ..folds import Fold
from ..jobs import Job
from ..model.eegnet import temporal_kernel_for
from ..recordings.standardise import affine
from ..runs.run import Run, Tell
from ..runs.saved_model import ModelCard, save_model
from ..settings import Setting
from ..training.train import train


def build_models(run: Run, setting: Setting, choice: dict[str, Any], tell: Tell) -> None:
    """Writes RUN/model and, with --final refit, RUN/model/refit."""
    entries = [e for e in run.ledger.entries() if e.setting == setting.to_json() and e.status == "done"]
    own = [e for e in entries if e.stage != "nested"]
    states, folds = [], []
    for entry in own:
        tensors = load(run.ledger.tensors(entry.key))
        states.append({k.removeprefix("best."): t for k, t in tensors.items() if k.startswith("best.")})
        folds.append(run.job(entry).fold)
    save_model(
        run.folder / "model",
        _card(run, setting, "ensemble", len(states), choice),
        _stacked(run, setting, states, folds),
    )
    if run.options.final == "refit":
        best = [entry.record["best_epoch"] for entry in own if entry.record is not None]
        epochs = max(1, round(float(np.median(best))))
        tell(f"refit: one model on all {run.recordings.n_subjects} subjects for {epochs} epochs")
        fold = _everybody(run)
        job = Job(replace(setting, max_epochs=epochs, patience=None), fold, run.options.seed)
        (outcome,) = train(run.recordings, [job], run.options.device, progress=False)
        state = {k: t for k, t in outcome.final_state.items() if not k.startswith("censor.")}
        save_model(
            run.folder / "model" / "refit",
            _card(run, setting, "refit", 1, choice),
            _stacked(run, setting, [state], [fold]),
        )


def _everybody(run: Run) -> Fold:
    """All rows train. A fold needs held-out rows: two subjects' stand in and decide nothing, as the last epoch is
    taken."""
    subject = run.recordings.subject.numpy()
    rows = np.arange(len(subject), dtype=np.int64)
    return Fold(rows, np.flatnonzero(subject == 0), np.flatnonzero(subject == 1), "nobody", "nobody")


def _card(run: Run, setting: Setting, kind: str, members: int, choice: dict[str, Any]) -> ModelCard:
    rec = run.recordings
    return ModelCard(
        name=rec.name,
        kind=kind,
        members=members,
        setting=asdict(setting),
        n_times=rec.n_times,
        channels=list(rec.channels),
        sfreq=rec.sfreq,
        classes=list(rec.classes),
        kernel=setting.temporal_kernel or temporal_kernel_for(rec.sfreq),
        subjects=rec.n_subjects,
        scores={"nested_test_mean": float(np.mean(list(choice["nested_test_scores"].values())))},
    )


def _stacked(
    run: Run, setting: Setting, states: Sequence[dict[str, Tensor]], folds: Sequence[Fold]
) -> dict[str, Tensor]:
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    if setting.standardise == "channel":
        X, subject = run.recordings.X, run.recordings.subject
        fitted = [affine(X, subject, "channel", rows=torch.as_tensor(fold.train)) for fold in folds]
        tensors["standardise.shift"] = torch.cat([shift for shift, _, _ in fitted])
        tensors["standardise.gain"] = torch.cat([gain for _, gain, _ in fitted])
    return tensors
