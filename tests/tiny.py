"""Recordings so small that a whole run takes seconds."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.jobs import Outcome
from autotransfer.model.encoders import Encoders
from autotransfer.preprocessing import Preprocessing
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import Choice
from autotransfer.runs.options import RunOptions, build_options
from autotransfer.runs.preparation import prepare
from autotransfer.runs.run import Run, check_unused
from autotransfer.search.evidence import ClassificationEvidence
from autotransfer.search.held_out import find_entries


def save_folder(path: Path, recordings: at.Recordings) -> None:
    """Write recordings as a folder of .npy files."""
    path.mkdir()
    save_npz(path / "all.npz", recordings)
    with np.load(path / "all.npz") as stored:
        for name in set(stored.files) - {"meta"}:
            np.save(path / f"{name}.npy", stored[name])
        (path / "meta.json").write_text(str(stored["meta"]))
    (path / "all.npz").unlink()


def tiny(n_subjects: int = 4, per_class: int = 6, seed: int = 0, name: str = "tiny") -> at.Recordings:
    generator = np.random.default_rng(seed)
    subject = np.repeat(np.arange(n_subjects), 2 * per_class)
    y = np.tile([0, 1], n_subjects * per_class)
    X = generator.standard_normal((len(y), 2, 16))
    X[:, 0] += 4 * np.where(y[:, None], np.sin(np.arange(16)), np.cos(np.arange(16)))
    X[:, 1] += subject[:, None] * np.sin(np.arange(16) / 2)
    return at.Recordings(X, y, subject, sfreq=16, classes=["left", "right"], channels=["C3", "C4"], name=name)


def people(n_subjects: int = 5, per: int = 20, channels: int = 3, times: int = 24, seed: int = 0) -> at.Recordings:
    """Every subject mixes and scales the same sources in their own way; windows of subjects alternate."""
    draw = np.random.default_rng(seed)
    subject = np.tile(np.arange(n_subjects), per)
    y = draw.integers(0, 2, len(subject))
    sources = draw.standard_normal((len(subject), channels, times))
    sources[:, 0] += 2 * np.where(y[:, None], np.sin(np.arange(times) / 2), np.cos(np.arange(times) / 2))
    mixing = np.eye(channels) + 0.5 * draw.standard_normal((n_subjects, channels, channels))
    offset = 3 * draw.standard_normal((n_subjects, channels, 1))
    X = mixing[subject] @ sources + offset[subject]
    return at.Recordings(X, y, subject, sfreq=times)


def preprocessed(X: Tensor, subject: Tensor, rows: object = None, **values: object) -> Tensor:
    """Windows (N, C, T) of training subjects after the transforms of these values, fitted on rows or on all of them."""
    training = np.arange(len(X)) if rows is None else np.asarray(rows)
    fitted = Preprocessing.from_values(values).fit(X, subject, [training])
    return fitted(X[None], subject[None])[0]


def stacked_jobs(rec: at.Recordings, **values: object) -> list[at.Job]:
    """Members of one program: folds, seeds, a penalty and lengths differ."""
    common = {"batch_size": 16} | values
    settings = [at.Setting(**common, max_epochs=3), at.Setting(**common, method="mmd", max_epochs=2, warm_up=2)]
    return [at.Job(s, fold, seed) for seed in (0, 1) for s in settings for fold in at.leave_one_subject_out(rec)]


def assert_same_outcome(found: Outcome, expected: Outcome, tolerance: float = 0.0) -> None:
    assert found.best_epoch == expected.best_epoch
    assert found.test_score == expected.test_score
    for name, values in found.history.items():
        np.testing.assert_allclose(values, expected.history[name], rtol=0, atol=tolerance, err_msg=name)
    for name, tensor in found.state.items():
        torch.testing.assert_close(tensor, expected.state[name], rtol=0, atol=tolerance)


def tiny_file(folder: Path, **changes: object) -> Path:
    path = folder / "tiny.npz"
    save_npz(path, tiny(**changes))
    return path


def described(**given: Any) -> RunOptions:
    """Return the description of a small run: one seed, each subject alone, the settings of the grid and no others."""
    usual = {"source": "x", "seeds": 1, "folds": "all", "time": "none"}
    return build_options(usual | ({} if "adaptation" in given or "target" in given else {"adaptation": "none"}) | given)


def auto_classifier(grid: Any = None, **given: Any) -> at.AutoTransferClassifier:
    """Return a classifier with these options of a run, also those that are no parameters of its own."""
    own = {name: given.pop(name) for name in list(given) if name in signature(at.AutoTransferClassifier).parameters}
    return at.AutoTransferClassifier(grid, **own, options=given or None)


def create_run(
    folder: Path, options: RunOptions, encoders: Encoders | None = None, recordings: at.Recordings | None = None
) -> Run:
    """Start a run without a plan in a new or empty folder."""
    check_unused(folder)
    return Run.start(folder, prepare(options, encoders, recordings))


def make_evidence(run: Run, choice: Choice) -> ClassificationEvidence:
    """Return what the candidates on the shortlist scored and predicted for held-out subjects."""
    entries = find_entries(run, [named.setting for named in choice.shortlist], run.folds())
    return ClassificationEvidence.from_run(run, choice.shortlist, entries)
