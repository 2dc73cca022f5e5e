"""Every entry point refuses bad windows without a trace and accepts unusual but harmless ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.estimator.window_classifier import WindowClassifier
from autotransfer.export.formats import to_safetensors
from autotransfer.models.building import fit_candidate_effects
from autotransfer.models.model import Model
from autotransfer.person.calibration import calibrate_model
from autotransfer.person.predictions import predict_windows
from autotransfer.recordings.raw import Raw
from ensembles import weighted, with_known
from test_session import REC, TRAINING, model

N, CHANNELS, TIMES = 6, 3, 24
# Whole numbers that float16 and int16 hold, so that nothing but the kind of array differs.
X = np.round(4 * REC.X[REC.subject == 3][:N].numpy()).astype(np.float32)
Y = np.array([0, 1, 0, 1, 0, 1])
CLASSES = np.array(["left", "right"])


def known(**values: Any) -> Model:
    """With what is known of how subjects differ, which calibration needs."""
    own = model(**values)
    folds = [at.Fold(rows, np.arange(0), np.arange(0), None, None) for rows in TRAINING]
    return with_known(own, effects=fit_candidate_effects(own.candidates[0], REC, folds))


ENSEMBLE = known(standardize="online")
MIXTURE = weighted([ENSEMBLE, known(seed=2, encoder="shallow")], [0.5, 0.7])
CALIBRATED = MIXTURE.calibrate_checked(torch.from_numpy(X), torch.from_numpy(Y))


def estimator(kind: type[WindowClassifier], model: Model) -> Any:
    fitted = kind()
    fitted.model_, fitted.classes_ = model, CLASSES
    fitted._set_feature_attributes(REC, has_names=False)
    return fitted


class EntryPoint(NamedTuple):
    """Windows in; what comes out is a function of them alone."""

    ask: Callable[[Any, Path], Any]
    fits: bool = True  # whether windows are compared with a model


def session(own: Model, *, one_by_one: bool = False) -> Callable[[Any, Path], Any]:
    opened: list[at.Session] = []  # once: what it does is recorded, which takes a while

    def ask(X: Any, _: Path) -> Any:
        opened.extend([] if opened else [at.Session(own)])
        opened[0].reset()
        several = one_by_one and np.ndim(X) == 3 and len(X)
        return [opened[0].predict_proba(window) for window in X] if several else opened[0].predict_proba(X)

    return ask


def recordings(X: Any, _: Path) -> Any:
    return at.Recordings(X, np.tile([0, 1], N // 2), np.repeat(np.arange(3), N // 3)).X.numpy()


def fit(X: Any, _: Path, **target: Any) -> Any:
    clf = at.CensoredClassifier(max_epochs=1, random_state=0)
    given = {"subjects": np.repeat(np.arange(3), N // 3)}
    return clf.fit(X, np.tile([0, 1], N // 2), **given, **target).predict_proba(TRUE)


def met(X: Any, _: Path) -> Any:
    """Windows of the subject to be met, next to those that are trained on."""
    return fit(TRUE, _, X_target_unlabeled=X)


def exported(X: Any, folder: Path) -> Any:
    (folder / "model.safetensors").write_bytes(to_safetensors(MIXTURE))
    return at.load_model(folder / "model.safetensors").predict_proba(X)


def coefficients(own: Model) -> Any:
    return np.concatenate([part.correction.bias.flatten() for part in own.candidates if part.correction is not None])


TRUE = X.copy()
ENTRY_POINTS = {
    "CensoredClassifier": EntryPoint(lambda X, _: estimator(at.CensoredClassifier, ENSEMBLE).predict_proba(X)),
    "AutoTransferClassifier": EntryPoint(lambda X, _: estimator(at.AutoTransferClassifier, MIXTURE).predict_proba(X)),
    "transform": EntryPoint(lambda X, _: estimator(at.CensoredClassifier, ENSEMBLE).transform(X)),
    "score": EntryPoint(lambda X, _: estimator(at.CensoredClassifier, ENSEMBLE).score(X, CLASSES[Y])),
    "estimator.calibrate": EntryPoint(
        lambda X, _: coefficients(estimator(at.CensoredClassifier, ENSEMBLE).calibrate(X, CLASSES[Y]).model_)
    ),
    "estimator.adapt": EntryPoint(lambda X, _: coefficients(estimator(at.CensoredClassifier,
    ENSEMBLE).adapt(X).model_)), "fit": EntryPoint(fit, fits=False),
    "fit, the target": EntryPoint(met),
    "Recordings": EntryPoint(recordings, fits=False),
    "Model.predict_proba": EntryPoint(lambda X, _: ENSEMBLE.predict_proba(X)),
    "Model.predict": EntryPoint(lambda X, _: ENSEMBLE.predict(X)),
    "Model.features": EntryPoint(lambda X, _: ENSEMBLE.features(X)),
    "Model.score": EntryPoint(lambda X, _: MIXTURE.score(X, CLASSES[Y])),
    "Model.calibrate": EntryPoint(lambda X, _: coefficients(MIXTURE.calibrate(X, CLASSES[Y]))),
    "a calibrated model": EntryPoint(lambda X, _: CALIBRATED.predict_proba(X)),
    "an exported file": EntryPoint(exported),
    "Session": EntryPoint(session(MIXTURE)),
    "Session of a calibrated model": EntryPoint(session(CALIBRATED)),
    "Session, window by window": EntryPoint(session(MIXTURE, one_by_one=True)),
    "predict": EntryPoint(lambda X, _: predict_windows(MIXTURE, Raw(X=X))),
    "calibrate": EntryPoint(lambda X, _: coefficients(calibrate_model(MIXTURE, Raw(X=X, y=CLASSES[Y]),
    MIXTURE.check(X))[0])),
}  # fmt: skip


def changed(value: float) -> np.ndarray:
    found = TRUE.copy()
    found[2, 1, 5] = value
    return found


def masked() -> Any:
    found = np.ma.masked_array(TRUE.copy(), mask=np.zeros(TRUE.shape, bool))
    found[2, 1, 5:8] = np.ma.masked
    return found


# What the message has to name, whatever its words.
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (masked, "3 values"),
    "masked windows in a list": (lambda: list(masked()), "3 values"),
    "NaN": (lambda: changed(np.nan), "'ch1'"),
    "infinite": (lambda: changed(-np.inf), "'ch1'"),
    "beyond float32": (lambda: changed(1e30), "'ch1'"),
    "complex": (lambda: TRUE.astype(np.complex64), "complex64"),
    "objects": (lambda: TRUE.astype(object), "object"),
    "rank": (lambda: TRUE[None], "(1, 6, 3, 24)"),
    "no windows": (lambda: TRUE[:0], "(0, 3, 24)"),
    "text": (lambda: "window", "X"),
}
UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "length": (lambda: np.concatenate([TRUE, TRUE[:, :, :9]], 2), "33"),
    "channels": (lambda: TRUE[:, :2], "2"),
}
ONE_BY_ONE = ("Session, window by window",)  # where the number and place of a window are another


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_bad_windows_are_refused_at_every_entry_point(name: str, tmp_path: Path) -> None:
    entry = ENTRY_POINTS[name]
    for what, (make, named) in (BAD | UNFIT if entry.fits else BAD).items():
        if name in ONE_BY_ONE and what == "masked windows in a list":
            continue  # a list of windows is no window
        with pytest.raises(UserError) as caught:
            entry.ask(make(), tmp_path)
        assert named in str(caught.value), what


def mapped(folder: Path) -> np.ndarray:
    np.save(folder / "X.npy", TRUE)
    return np.load(folder / "X.npy", mmap_mode="r")


def read_only() -> np.ndarray:
    found = TRUE.copy()
    found.flags.writeable = False
    return found


HARMLESS: dict[str, Callable[[Path], Any]] = {
    "float16": lambda _: TRUE.astype(np.float16),
    "float64": lambda _: TRUE.astype(np.float64),
    "int16": lambda _: TRUE.astype(np.int16),
    "Fortran order": lambda _: np.asfortranarray(TRUE),
    "big-endian": lambda _: TRUE.astype(">f4"),
    "read-only": lambda _: read_only(),
    "memory-mapped": mapped,
    "strided": lambda _: np.repeat(TRUE, 2, axis=2)[:, :, ::2],
    "backwards in memory": lambda _: TRUE[:, :, ::-1].copy()[:, :, ::-1],
    "a mask without masked values": lambda _: np.ma.masked_array(TRUE, mask=np.zeros(TRUE.shape, bool)),
    "a tensor": lambda _: torch.from_numpy(TRUE.copy()),
    "a half-precision tensor": lambda _: torch.from_numpy(TRUE).half(),
    "a tensor with gradients": lambda _: torch.from_numpy(TRUE.copy()).requires_grad_(),
    "a transposed tensor": lambda _: torch.from_numpy(TRUE.transpose(2, 0, 1).copy()).permute(1, 2, 0),
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_harmless_windows_give_the_same_result_at_every_entry_point(name: str, tmp_path: Path) -> None:
    entry = ENTRY_POINTS[name]
    wanted = entry.ask(TRUE.copy(), tmp_path)
    few = "fit" in name  # a fit each
    for what, make in list(HARMLESS.items())[:: 4 if few else 1]:
        given = make(tmp_path)
        found = entry.ask(given, tmp_path)
        if np.asarray(wanted).dtype.kind in "fc":
            np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=0, atol=1e-6, err_msg=what)
        else:
            assert np.array_equal(found, wanted), what
        after = given.detach().float().numpy() if isinstance(given, torch.Tensor) else np.asarray(given, np.float32)
        assert np.array_equal(after, TRUE), f"{what} was written to"


BAD_SUBJECTS: dict[str, tuple[Any, str]] = {
    "too few": (np.zeros(3, int), "3"),
    "missing": ([0, 0, None, 0, 0, 0], "[2]"),
    "NaN": (torch.tensor([0, 0, 0, 0, 0, float("nan")]), "[5]"),
    "one name": ("ann", "'ann'"),
}
SUBJECT_ENTRY_POINTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Model": ("subject", lambda s: ENSEMBLE.predict_proba(TRUE, s)),
    "Model.features": ("subject", lambda s: ENSEMBLE.features(TRUE, s)),
    "Model.predict": ("subject", lambda s: MIXTURE.predict(TRUE, s)),
    "estimator": ("subjects", lambda s: estimator(at.CensoredClassifier, ENSEMBLE).predict_proba(TRUE, s)),
    "transform": ("subjects", lambda s: estimator(at.CensoredClassifier, ENSEMBLE).transform(TRUE, s)),
    "predict": ("subject", lambda s: predict_windows(MIXTURE, Raw(X=TRUE, subject=s))),
    "calibrate": (
        "subject",
        lambda s: calibrate_model(MIXTURE, Raw(X=TRUE, y=CLASSES[Y], subject=s), MIXTURE.check(TRUE)),
    ),
    "Recordings": ("subject", lambda s: at.Recordings(TRUE, np.tile([0, 1], N // 2), s)),
    "Recordings, sessions": (
        "session",
        lambda s: at.Recordings(TRUE, np.tile([0, 1], N // 2), np.repeat(np.arange(3), N // 3), s),
    ),
}


@pytest.mark.parametrize("entry", SUBJECT_ENTRY_POINTS)
def test_subject_ids_are_checked_at_every_entry_point(entry: str) -> None:
    argument, ask = SUBJECT_ENTRY_POINTS[entry]
    for what, (people, named) in BAD_SUBJECTS.items():
        with pytest.raises(UserError) as caught:
            ask(people)
        assert argument in str(caught.value), what
        assert named in str(caught.value), what


@pytest.mark.parametrize("adapt", [False, True])
def test_a_session_learns_nothing_from_what_it_refuses(adapt: bool) -> None:
    undisturbed, own = at.Session(MIXTURE, adapt=adapt), at.Session(MIXTURE, adapt=adapt)
    bad = [make() for make, _ in (BAD | UNFIT).values()]
    bad += [windows[2] for windows in bad if np.ndim(windows) == 3 and len(windows) > 2]
    # One by one as well: products of other sizes round otherwise, and these random latents make much of it.
    wanted = [undisturbed.predict_proba(window) for window in TRUE]
    found = []
    for place, window in enumerate(TRUE):
        found.append(own.predict_proba(window))
        for wrong in [*bad, None, [[0.0, 1.0], [0.0]]]:
            with pytest.raises(UserError):
                own.predict_proba(wrong)
        assert own.n_windows == place + 1
    np.testing.assert_array_equal(found, wanted)


RATED = at.Setting(encoder="linear", represent="bands", standardize="none", sfreq=100.0)
AT_128 = at.synthetic(n_subjects=4, windows_per_class=2, n_channels=2, n_times=64, sfreq=128.0)
WINDOWS = (AT_128.X.numpy(), AT_128.y.numpy())
RATES: dict[str, Callable[[], Any]] = {
    "train": lambda: at.train(AT_128, [at.Job(RATED, at.leave_one_subject_out(AT_128)[0])]),
    "CensoredClassifier": lambda: at.CensoredClassifier(setting=RATED, sfreq=128.0).fit(
        *WINDOWS, subjects=AT_128.subject
    ),
    "AutoTransferClassifier": lambda: at.AutoTransferClassifier(
        settings=[at.Setting(max_epochs=1), RATED], sfreq=128.0
    ).fit(*WINDOWS, subjects=AT_128.subject),
}


@pytest.mark.parametrize("entry", RATES)
def test_a_setting_for_another_sampling_rate_is_refused(entry: str) -> None:
    with pytest.raises(UserError, match="sampled at 128 Hz, the setting expects 100 Hz"):
        RATES[entry]()
