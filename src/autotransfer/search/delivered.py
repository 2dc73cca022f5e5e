"""How well does what is delivered do? A new person gets no single network but the mean over many trainings.

For a test subject only trainings count that left them out. The pairs of held-out subjects form a ring, so every subject
is in two of them, as the one who tests and as the one who validates: two trainings for each seed. Their snapshots were
chosen by the other subject of the pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ..runs.assembly import assemble
from ..runs.ledger import Entry
from ..runs.run import Run
from ..runs.saved_model import SavedModel
from ..settings import Setting
from ..training.metrics import balanced_accuracy, confusion_counts

Wanted = tuple[Setting, int]


def delivered_scores(run: Run, entries: Sequence[Entry], wanted: Iterable[Wanted]) -> dict[tuple[str, int], float]:
    """By setting's key and test subject; nothing for those of whom every training failed."""
    by_setting: dict[Setting, list[Entry]] = {}
    for entry in entries:
        if entry.status == "done":
            by_setting.setdefault(entry.setting, []).append(entry)
    found = {}
    for setting, test in dict.fromkeys(wanted):
        own = [entry for entry in by_setting.get(setting, []) if test in (entry.test, entry.validation)]
        if own:
            found[setting.key, test] = _score(run, setting, own, test)
    return found


def _score(run: Run, setting: Setting, own: Sequence[Entry], test: int) -> float:
    states, folds = [], []
    for entry in own:
        snapshot = "best." if entry.test == test else "swapped."
        tensors = run.weights(entry.key)
        states.append({name.removeprefix(snapshot): t for name, t in tensors.items() if name.startswith(snapshot)})
        folds.append(run.job(entry).fold)
    recordings = run.recordings
    model = assemble(recordings, setting, states, folds, kind="ensemble", scores={})
    rows = torch.from_numpy(np.flatnonzero(recordings.subject.numpy() == test))
    probability = SavedModel(*model, run.encoders).predict_proba(recordings.X[rows])
    predicted = torch.from_numpy(probability.argmax(1))
    y = recordings.y[rows]
    counts = confusion_counts(predicted[None], y[None], torch.ones_like(y)[None], recordings.n_classes)
    return float(balanced_accuracy(counts)[0])
