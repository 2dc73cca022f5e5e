"""A censor, a transform that changes a window's shape, an encoder, an augmentation, a representation, a metric and an
adaptation method, each added here in a few lines and one registry entry, and each used from Python, by the estimators
and on the command line: in training, choice, saving, prediction and report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.augment.augmentation import Augmentation, TrainingBatch
from autotransfer.censoring import CENSORS
from autotransfer.censoring.groups import equal_shares, find_groups
from autotransfer.censoring.method import Method
from autotransfer.censoring.terms import Term
from autotransfer.cli import app
from autotransfer.model.encoder import EncoderOptions
from autotransfer.model.encoders import ENCODERS
from autotransfer.model.stack import Size
from autotransfer.models.loading import load_model
from autotransfer.person.adaptation import ADAPTATION_METHODS, AdaptationMethod, State
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.preprocessing.represent.base import Representation
from autotransfer.preprocessing.transform import Fitted, Rows, Stage, Transform
from autotransfer.randomness import uniform
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.search import kinds, playback
from autotransfer.tasks import Metric
from autotransfer.tasks.classification import METRICS
from tiny import auto_classifier, described, tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_answers")

# A censor


class MeanShift(Method):
    """Squared distance of every person's mean from the mean of their context."""

    label = "Mean shift"

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        of_group = groups.group.to(term.z.dtype) @ term.z / groups.group_rows[..., None]
        of_context = groups.context.to(term.z.dtype) @ term.z / groups.context_rows[..., None]
        share = equal_shares(groups.counts, groups.group_rows)
        return (share * (of_group - of_context).square().mean(-1)).sum(-1)


# A transform that changes the shape of a window


@dataclass(frozen=True)
class BandPower(Transform):
    """Log power of a window in `bands` equal parts of the spectrum: (C, T) -> (C, bands)."""

    bands: int = 8

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, self.bands

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return FittedBandPower(self.bands)


class FittedBandPower(Fitted):
    def __init__(self, bands: int) -> None:
        super().__init__()
        self.bands = bands

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        power = torch.fft.rfft(x).abs().square()[..., 1:]
        parts = power.tensor_split(self.bands, -1)
        return torch.stack([part.mean(-1) for part in parts], -1).add(1e-3).log()


# An encoder


@dataclass(frozen=True, kw_only=True)
class PerceptronOptions(EncoderOptions):
    hidden: int = 12

    def module(self, size: Size) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(size.channels * size.times, self.hidden), nn.ELU())


# An augmentation


@dataclass(frozen=True)
class Noise(Augmentation):
    """White noise of a standard deviation."""

    deviation: float = 0.1

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        draw = uniform(key, x.shape[2] * x.shape[3]).view(x.shape).to(x.dtype)
        return x + self.deviation * (draw - 0.5) * 12**0.5


# A representation


class Medians(Representation):
    """The median of every channel and of its magnitude: (C, T) -> (C, 2)."""

    kind_names = ("Medians", "medians of channels")

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, 2

    def numbers(self, x: Tensor) -> Tensor:
        return torch.stack([x.median(-1).values, x.abs().median(-1).values], -1).double()


# A metric


def expected_accuracy(y: Any, probability: Any, weight: Any) -> float:
    """How often windows would be right if classes were drawn with these probabilities."""
    return float(np.average(probability[np.arange(len(y)), y], weights=weight))


EXPECTED = Metric("expected accuracy", expected_accuracy, lambda shares: 1 / shares.shape[1], short="expected")

# An adaptation method


class Recentred(AdaptationMethod):
    """The mean code of the person so far becomes that of the training people."""

    label = "by the mean code"

    def begin(self) -> State:
        return {"sum": torch.zeros_like(self.everyone.means[:, 0]), "count": torch.zeros(())}

    def count(self, known: State, x: Tensor, p: Tensor) -> State:
        return {"sum": known["sum"] + x - self.everyone.means.mean(-2), "count": known["count"] + 1}

    def correction(self, known: State) -> tuple[Tensor, Tensor]:
        shift = known["sum"] / (10 + known["count"][..., None, None])  # (..., P, R)
        weight = self.everyone.logits
        return torch.zeros_like(weight).expand(*shift.shape[:-2], *weight.shape), -(shift[..., None] * weight).sum(-2)


ADDED = {
    "censor": (CENSORS, "mean_shift", MeanShift, {"method": "mean_shift", "mode": "conditional", "strength": 0.5}),
    "transform": (TRANSFORMS, "band_power", BandPower, {"band_power": 8}),
    "encoder": (ENCODERS, "perceptron", PerceptronOptions, {"encoder": "perceptron", "hidden": 10}),
    "augmentation": (AUGMENTATIONS, "noise", Noise, {"noise": 0.3}),
}
every_kind = pytest.mark.parametrize("kind", list(ADDED))


@pytest.fixture
def added(kind: str) -> Iterator[at.Setting]:
    """A setting that uses what is registered for the time of a test."""
    registry, name, entry, keywords = ADDED[kind]
    registry[name] = entry
    try:
        yield at.Setting(**keywords, max_epochs=3, batch_size=8)
    finally:
        del registry[name]


@every_kind
def test_a_setting_takes_it_up(kind: str, added: at.Setting) -> None:
    assert at.Setting.from_json(added.to_json()) == added
    for name, value in ADDED[kind][3].items():
        assert getattr(added, name) == value
        assert added.as_row()[name] == value
    assert added.key != at.Setting(max_epochs=3, batch_size=8).key
    plain = at.Setting(max_epochs=3, batch_size=8)
    assert added.name_relative_to(plain) != plain.name_relative_to(plain)


@every_kind
def test_stacked_equals_alone(kind: str, added: at.Setting, tmp_path: Path) -> None:
    recordings = at.load(tiny_file(tmp_path))
    jobs = [at.Job(added, fold, seed) for fold in at.leave_one_subject_out(recordings) for seed in (0, 1)]
    together = at.train(recordings, jobs, device="cpu")
    (alone,) = at.train(recordings, [jobs[3]], device="cpu")
    assert together[3].population == len(jobs)
    # Moments that no table holds come from a batched transform, whose last bit depends on the batch.
    np.testing.assert_allclose(alone.history["train_loss"], together[3].history["train_loss"], rtol=1e-5)
    assert alone.test_score == together[3].test_score


# Neither a censor nor an augmentation is in a file.
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k[0] in "ca")) for k in ADDED])
def test_it_exports(kind: str, added: at.Setting, tmp_path: Path) -> None:
    recordings = at.load(tiny_file(tmp_path))
    from autotransfer.models.assembly import Part, assemble

    folds = at.leave_one_subject_out(recordings)[:2]
    outcomes = at.train(recordings, [at.Job(added, fold) for fold in folds], device="cpu")
    saved = assemble(recordings, [Part(added, [o.state for o in outcomes], folds)], scores={})
    found = at.export_model(saved, "torch", tmp_path / "model.pt2")
    assert found.difference < 1e-5


BRIEF: dict[str, Any] = {"max_epochs": 2, "batch_size": 8, "seeds": 1, "folds": 3, "networks": "none", "device": "cpu"}


def call(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def run_of(folder: Path, *words: object) -> Choice:
    brief = [word for name, value in BRIEF.items() for word in (f"--{name.replace('_', '-')}", value)]
    call("run", tiny_file(folder), *brief, "--quiet", "--out", folder / "run", *words)
    return read_choice(folder / "run")


def fitted(estimator: Any) -> Any:
    data = tiny()
    return estimator.fit(data.X.numpy(), data.y.numpy(), subjects=data.subject.numpy())


@every_kind
def test_estimators_and_commands_take_it(kind: str, added: at.Setting, tmp_path: Path) -> None:
    clf = fitted(at.CensoredClassifier(setting=added, sfreq=16, device="cpu"))
    assert clf.setting_ == added
    windows = tiny().X[:5].numpy()
    single = np.stack([at.Session(clf).predict_proba(window) for window in windows])
    np.testing.assert_allclose(single, clf.predict_proba(windows), atol=1e-6)

    auto = fitted(auto_classifier(settings=[added], sfreq=16, **BRIEF))
    (tmp_path / "mine.json").write_text(json.dumps([added.to_dict()]))
    choice = run_of(tmp_path, "--grid", tmp_path / "mine.json")
    assert added.replace(max_epochs=2) in [candidate.setting for candidate in choice.shortlist]
    assert [one["name"] for one in auto.choice_["shortlist"]] == [one.name for one in choice.shortlist]
    assert len(call("predict", tmp_path / "run", tmp_path / "tiny.npz").splitlines()) > tiny().n_trials


def test_a_kind_of_candidates_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A network in a list of kinds, and a representation by name and for signals of a field."""
    monkeypatch.setitem(ENCODERS, "perceptron", PerceptronOptions)
    monkeypatch.setitem(REPRESENTATIONS, "medians", Medians)
    plain = described(source="x").settings()
    monkeypatch.setitem(kinds.UNPENALISED, "zero-shot", ({"encoder": "perceptron", "hidden": 6},))
    assert "perceptron" in {one.kind for one in kinds.networks(plain, tiny(), "zero-shot")}
    monkeypatch.setitem(kinds.REPRESENTED, "eeg", ("medians",))
    assert "medians" in {one.kind for one in kinds.closed_forms("zero-shot", tiny())}

    choice = run_of(
        tmp_path, "--grid", "uncensored", "--networks", "all", "--kinds", "medians", "--adaptation", "zero-shot"
    )
    assert {"perceptron", "medians"} <= {candidate.setting.kind for candidate in choice.shortlist}
    assert "medians of channels" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    auto = auto_classifier("uncensored", kinds="medians", sfreq=16, **BRIEF)
    assert "medians" in {one["kind"] for one in fitted(auto).choice_["ensemble"]["weights"]}


def test_a_metric_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(METRICS, "expected_accuracy", EXPECTED)
    choice = run_of(tmp_path, "--grid", "uncensored", "--adaptation", "zero-shot", "--metric", "expected")
    assert choice.metric == "expected_accuracy"
    assert EXPECTED.label in choice.verdict
    assert EXPECTED.label in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert EXPECTED.label in call("predict", tmp_path / "run", tmp_path / "tiny.npz", "--metric", "expected")
    clf = fitted(at.CensoredClassifier(scoring="expected", max_epochs=2, batch_size=8, sfreq=16, device="cpu"))
    X, y = tiny().X.numpy(), tiny().y.numpy()
    assert clf.score(X, y) == expected_accuracy(y, clf.predict_proba(X), None)
    auto = auto_classifier("uncensored", metric="expected", scoring="expected", sfreq=16, **BRIEF)
    assert fitted(auto).choice_["metric"] == "expected_accuracy"


def test_an_adaptation_method_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Held-out people try it; it is chosen here, to see it delivered."""
    monkeypatch.setitem(ADAPTATION_METHODS, "recentred", Recentred)
    monkeypatch.setattr(playback, "choices_of", lambda followed: (dict.fromkeys(followed, "recentred"), "recentred"))
    choice = run_of(tmp_path, "--grid", "uncensored", "--adaptation", "zero-shot", "--folds", "all")
    played = choice.playback
    assert played is not None
    assert played.follows == "recentred"
    assert played.adapted == played.ways["recentred"]
    assert Recentred.label in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    model, windows = load_model(tmp_path / "run" / "model"), tiny().X[:12]
    adapting, still = at.Session(model, adapt=True), at.Session(model)
    assert isinstance(adapting._adaptation.method, Recentred)
    adapted, plain = (np.log(session.predict_proba(windows)) for session in (adapting, still))
    np.testing.assert_array_equal(adapted[0], plain[0])
    assert not np.allclose(adapted, plain, atol=0.01)
    told = call("predict", tmp_path / "run", tmp_path / "tiny.npz", "--adapt", "all")
    assert told != call("predict", tmp_path / "run", tmp_path / "tiny.npz")
