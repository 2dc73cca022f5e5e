"""CensoredClassifier learns, checks subject ids, and works in scikit-learn's tools."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
import sklearn
import torch
from sklearn import metrics
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.estimator.censored import validation_fold
from autotransfer.jobs import Outcome
from ensembles import weighted
from tiny import tiny

RECORDINGS = tiny()
X = RECORDINGS.X.numpy()
Y = np.array(["left", "right"])[RECORDINGS.y.numpy()]
SUBJECTS = np.array(["Ada", "Bo", "Cem", "Dora"])[RECORDINGS.subject.numpy()]


class Flat(nn.Module):
    """An encoder of a user's own, with state besides its weights."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(n_channels), nn.Linear(n_channels * n_times, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(self.norm(x).flatten(1)))


def small(**changes: object) -> at.CensoredClassifier:
    parameters = {"max_epochs": 12, "batch_size": 16, "lr": 1e-2, "device": "cpu"} | changes
    return at.CensoredClassifier(**parameters)


@pytest.fixture(scope="module")
def fitted() -> at.CensoredClassifier:
    return small().fit(X, Y, subjects=SUBJECTS)


def test_it_learns_and_predicts_the_users_labels(fitted: at.CensoredClassifier) -> None:
    new = tiny(seed=1)
    truth = np.array(["left", "right"])[new.y.numpy()]
    assert fitted.classes_.tolist() == ["left", "right"]
    assert fitted.classes_.dtype == Y.dtype
    assert fitted.score(new.X.numpy(), truth) > 0.9
    probability = fitted.predict_proba(new.X)
    np.testing.assert_allclose(probability.sum(1), 1)
    assert (fitted.predict(new.X) == fitted.classes_[probability.argmax(1)]).all()
    integers = small().fit(X, np.where(Y == "left", 7, 3), subjects=SUBJECTS)
    assert integers.classes_.tolist() == [3, 7]
    assert set(integers.predict(X)) <= {3, 7}
    np.testing.assert_array_equal(integers.predict_proba(X).argmax(1), 1 - fitted.predict_proba(X).argmax(1))


def test_it_is_at_train_with_the_named_subjects_validating() -> None:
    """Against at.train and at.encode: the same weights, scores, latents and probabilities."""
    own = {"validation_subjects": ["Bo", "Dora"], "random_state": 3, "preset": "paper"}
    clf = small(method="mmd", mode="conditional", strength=0.5, **own)
    noise = np.random.default_rng(0).permutation(Y)  # nothing to learn, so that the best epoch is an early one
    clf.fit(X, noise, subjects=SUBJECTS)
    rec = at.Recordings(X, noise, SUBJECTS)
    held_out = np.flatnonzero(np.isin(SUBJECTS, ["Bo", "Dora"]))
    fold = at.Fold(np.flatnonzero(~np.isin(SUBJECTS, ["Bo", "Dora"])), held_out, held_out, "both", "both")
    setting = at.Setting(
        method="mmd", mode="conditional", strength=0.5, max_epochs=12, batch_size=16, lr=1e-2, dropout=0.25
    )
    (outcome,) = at.train(rec, [at.Job(setting, fold, 3)], "cpu")
    z, logits = at.encode(rec, [outcome], np.arange(len(X)))
    assert clf.setting_ == setting
    assert 0 < outcome.best_epoch < 12
    assert (clf.best_epoch_, clf.validation_score_) == (outcome.best_epoch, outcome.validation_score)
    assert clf.validation_subjects_ == ["Bo", "Dora"]
    assert clf.subjects_ == ["Ada", "Bo", "Cem", "Dora"]
    assert clf.history_ == outcome.history
    np.testing.assert_allclose(clf.transform(X), z[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(clf.predict_proba(X), logits[0].double().softmax(-1).numpy(), atol=1e-6)


def test_every_parameter_reaches_the_setting() -> None:
    """A parameter that is stored and then forgotten would be silently ignored."""
    given: dict[str, object] = {
        "strength": 0.7, "max_epochs": 2, "patience": 5, "batch_size": 12, "lr": 0.02, "weight_decay": 0.3,
        "dropout": 0.1, "standardize": "train", "align": "online", "append_scale": True,
        "log_power": True, "warm_up": 3, "schedule": "constant", "channel_mask": 0.2,
    }  # fmt: skip
    by_method: list[dict[str, object]] = [
        {"method": "mige", "mode": "complementary", "estimator": "ssge", "length_scale": 2.0, "regularization": 0.05},
        {"method": "pairwise_mmd", "mode": "conditional", "pairs": "bernoulli", "fraction": 0.25},
        {"method": "pairwise_mmd", "mode": "conditional", "pairs": "clique", "size": 3},
        {"method": "began", "mode": "marginal", "variant": "paper", "critic_lr": 0.5},
        {"method": "mmd", "mode": "marginal", "as_printed": True},
    ]
    fields = set(at.CensoredClassifier().get_params()) - {
        "preset", "setting", "encoder", "sfreq", "validation_subjects", "random_state", "device", "scoring", "verbose",
    }  # fmt: skip
    assert {name for own in by_method for name in own} | set(given) | {"checkpoint"} == fields
    for own in by_method:
        for kept in ("best", "last"):  # patience plays a role with the first only
            setting = at.CensoredClassifier(**given, **own, checkpoint=kept).setting_for(36, 2)
            assert setting == at.Setting(**given, **own, checkpoint=kept)
            assert setting.patience == (5 if kept == "best" else None)


def test_defaults_of_the_recommended_preset() -> None:
    own = at.CensoredClassifier().setting_for(36, 2)
    assert own == at.Setting(
        method="mmd", mode="marginal", strength=1.0, standardize="train", append_scale=True, log_power=True,
        schedule="constant", checkpoint="averaged",
    )  # fmt: skip
    clf = at.CensoredClassifier(device="cpu", batch_size=16)
    assert clf.setting_for(36, 2).max_epochs == 500, "36 windows make two steps: 500 epochs at most"
    assert clf.setting_for(1600, 2).max_epochs == 25
    assert clf.set_params(max_epochs=3).setting_for(36, 2).max_epochs == 3
    masks = [
        at.CensoredClassifier(channel_mask=v).setting_for(36, n).augmentation for v, n in ((None, 8), (None, 7), (0, 8))
    ]
    assert list(map(bool, masks)) == [True, False, False]
    shallow = at.CensoredClassifier(encoder="shallow").setting_for(36, 2)
    assert (shallow.checkpoint, "append_scale" in str(shallow.preprocessing)) == ("averaged", False)


def test_the_paper_preset() -> None:
    assert at.CensoredClassifier(preset="paper").setting_for(36, 2) == at.Setting(method="adversary", strength=0.1)
    assert at.CensoredClassifier("none", preset="paper").setting_for(36, 2) == at.Setting()
    for preset in ("recommended", "paper"):
        given = {"method": "began", "mode": "conditional", "strength": 0.7, "standardize": "online", "lr": 0.02}
        given |= {
            "max_epochs": 3,
            "checkpoint": "last",
            "schedule": "constant",
            "append_scale": False,
            "log_power": False,
        }
        said = at.CensoredClassifier(preset=preset, **given)
        assert said.setting_for(36, 2) == at.Setting(**given), "whatever is given has the last word"
        assert said.setting_for(36, 2).max_epochs == 3
    assert at.CensoredClassifier(patience=5).setting_for(36, 2).patience == 5
    with pytest.raises(UserError, match="preset"):
        at.CensoredClassifier(preset="papre").fit(X, Y, subjects=SUBJECTS)


def test_the_rate_sets_the_kernel_and_the_seed_the_weights(fitted: at.CensoredClassifier) -> None:
    slow = small(sfreq=16, max_epochs=1).fit(X, Y, subjects=SUBJECTS)
    assert [found.model_.candidates[0].members.net.kernel for found in (slow, fitted)] == [8, 64]
    again = small().fit(X, Y, subjects=SUBJECTS)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    other = small(random_state=1).fit(X, Y, subjects=SUBJECTS)
    assert not np.allclose(other.predict_proba(X), fitted.predict_proba(X))
    drawn = [small(max_epochs=1, random_state=np.random.RandomState(4)).fit(X, Y, subjects=SUBJECTS) for _ in range(2)]
    np.testing.assert_array_equal(drawn[0].predict_proba(X), drawn[1].predict_proba(X))


def test_groups_is_another_name(fitted: at.CensoredClassifier) -> None:
    number = np.unique(SUBJECTS, return_inverse=True)[1] + 1
    for ids in ({"groups": SUBJECTS}, {"subjects": torch.from_numpy(number)}):
        np.testing.assert_array_equal(small().fit(X, Y, **ids).predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"subject ids are missing; pass fit\(X, y, subjects=ids\)"),
        ({"subjects": SUBJECTS, "groups": SUBJECTS}, "subjects and groups are both given"),
        ({"subjects": SUBJECTS[:-1]}, "subjects has 47 entries but X has 48"),
        ({"subjects": np.where(SUBJECTS == "Ada", "Ada", "Bo")}, "there are 2 subjects"),
        ({"subjects": SUBJECTS, "y": np.full(48, "left")}, "class 'left'"),
        ({"subjects": np.arange(48)}, "each of the 48 windows has a different subject"),
        ({"subjects": SUBJECTS, "y": None}, "requires y to be passed"),
        ({"subjects": SUBJECTS, "y": Y[:-1]}, "y has 47 entries"),
        ({"subjects": SUBJECTS, "y": np.linspace(0, 1, 48)}, "continuous"),
        ({"subjects": SUBJECTS, "y": np.array(["a", 1], object)[RECORDINGS.y]}, "give numbers or text, not both"),
        ({"subjects": SUBJECTS, "y": RECORDINGS.y.numpy().astype("M8[D]")}, "give them a number or text"),
        ({"subjects": SUBJECTS, "X": X[:, 0]}, r"\(48, 16\)"),
        ({"subjects": SUBJECTS, "X": np.where(np.arange(16) == 3, np.nan, X)}, "NaN or infinite values in 48 of 48"),
    ],
)
def test_users_mistakes(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        small().fit(**({"X": X, "y": Y} | arguments))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"device": "tpu9"}, "cannot use the device 'tpu9'"),
        ({"random_state": -1}, "seed is -1"),
        ({"encoder": "alexnet"}, "encoder is 'alexnet'; give 'eegnet', .*, or a class or function"),
        ({"encoder": Flat(2, 16)}, r"encoder is Flat\(.*; give 'eegnet', .*, or a class or function"),
        ({"validation_subjects": "Bo"}, "validation_subjects 'Bo'"),
        ({"validation_subjects": ["Eve"]}, "names 'Eve'"),
        ({"validation_subjects": []}, "0 of 4 subjects"),
        ({"validation_subjects": ["Ada", "Bo", "Cem"]}, "3 of 4 subjects"),
    ],
)
def test_parameters_are_checked_by_fit_alone(parameters: dict[str, object], message: str) -> None:
    clf = small(**parameters)
    with pytest.raises(UserError, match=message):
        clf.fit(X, Y, subjects=SUBJECTS)


def test_validation_subjects_are_selected() -> None:
    rec = at.Recordings(X, Y, SUBJECTS)
    assert validation_fold(rec, "last", 0).validation_subject == ("Dora",)
    drawn = {validation_fold(rec, "random", seed).validation_subject for seed in range(20)}
    assert len(drawn) == 4
    fold = validation_fold(rec, np.array(["Cem"]), 0)
    assert set(SUBJECTS[fold.validation]) == {"Cem"}
    assert set(SUBJECTS[fold.train]) == {"Ada", "Bo", "Dora"}


def test_a_failed_fit_is_an_error() -> None:
    """A rate that ends in NaN: in the first epoch it is an error, later the weights of a good epoch are kept."""
    with pytest.raises(UserError, match="the training loss became nan in epoch 1; try a lower lr"):
        small(lr=1e38, standardize="none").fit(X * 1e14, Y, subjects=SUBJECTS)


def test_grid_search_over_a_pipeline() -> None:
    pipeline = make_pipeline(FunctionTransformer(np.negative), small(max_epochs=3))
    grid = {"censoredclassifier__method": ["none", "mmd"]}
    folds = list(LeaveOneGroupOut().split(X, Y, SUBJECTS))[:2]
    search = GridSearchCV(pipeline, grid, cv=folds, error_score="raise")
    search.fit(X, Y, censoredclassifier__subjects=SUBJECTS)
    assert search.best_params_["censoredclassifier__method"] in ("none", "mmd")
    assert search.predict(X).shape == (48,)
    assert (search.best_estimator_[-1].setting_.method or "none") == search.best_params_["censoredclassifier__method"]
    with sklearn.config_context(enable_metadata_routing=True):
        routed = GridSearchCV(pipeline, grid, cv=folds, error_score="raise").fit(X, Y, subjects=SUBJECTS)
        ids = {"subjects": SUBJECTS, "groups": SUBJECTS}
        scores = cross_validate(search.best_estimator_, X, Y, cv=LeaveOneGroupOut(), params=ids, error_score="raise")
    np.testing.assert_array_equal(routed.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])
    assert scores["test_score"][:2].mean() == pytest.approx(search.best_score_)


def test_latents_are_used_by_another_classifier(fitted: at.CensoredClassifier) -> None:
    pipeline = make_pipeline(small(), LinearDiscriminantAnalysis())
    pipeline.fit(X, Y, censoredclassifier__subjects=SUBJECTS)
    assert pipeline.score(X, Y) > 0.9
    z = fitted.transform(X)
    assert z.shape == (48, len(fitted.get_feature_names_out()))
    frame = small().set_output(transform="pandas").fit(X, Y, subjects=SUBJECTS).transform(X)
    assert list(frame.columns[:2]) == ["censoredclassifier0", "censoredclassifier1"]
    np.testing.assert_array_equal(frame.to_numpy(), z)


def test_a_custom_encoder() -> None:
    """Against at.train with the same factory, and through clone and pickle."""
    clf = clone(small(encoder=Flat, max_epochs=8)).fit(X, Y, subjects=SUBJECTS)
    rec = at.Recordings(X, Y, SUBJECTS)
    factory = {clf.setting_.encoder: Flat}
    job = at.Job(clf.setting_, validation_fold(rec, "last", 0), 0)
    (outcome,) = at.train(rec, [job], "cpu", encoders=factory)
    z, logits = at.encode(rec, [outcome], np.arange(len(X)), encoders=factory)
    np.testing.assert_allclose(clf.transform(X), z[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(clf.predict_proba(X), logits[0].double().softmax(-1).numpy(), atol=1e-6)
    assert clf.score(X, Y) > 0.9
    assert clf.transform(X).shape == (48, 5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(X), clf.predict_proba(X))
    with pytest.raises(UserError, match="cannot take windows of shape"):
        small(encoder=lambda n_channels, n_times: nn.Conv2d(7, 1, 1)).fit(X, Y, subjects=SUBJECTS)


def test_epochs() -> None:
    mne = pytest.importorskip("mne", reason="epochs are MNE's")
    import pandas as pd

    info = mne.create_info(["C3", "C4"], 16.0, "eeg")
    metadata = pd.DataFrame({"subject": SUBJECTS})
    epochs = mne.EpochsArray(X.astype(np.float64), info, metadata=metadata, verbose="error")
    clf = small().fit(epochs, Y)
    arrays = small(sfreq=16).fit(X, Y, subjects=SUBJECTS)
    np.testing.assert_array_equal(clf.predict_proba(epochs), arrays.predict_proba(X))
    assert clf.feature_names_in_.tolist() == ["C3", "C4"]
    assert not hasattr(clf.fit(X, Y, subjects=SUBJECTS), "feature_names_in_")
    clf.fit(epochs, Y, groups=SUBJECTS)
    turned = epochs.copy().reorder_channels(["C4", "C3"])
    np.testing.assert_array_equal(clf.predict_proba(turned), clf.predict_proba(epochs))
    with pytest.raises(UserError, match="'C3'"):
        clf.predict(turned.rename_channels({"C3": "Cz"}))
    with pytest.raises(UserError, match=r"sampled at 16 Hz, not at 32 Hz"):
        small(sfreq=32).fit(epochs, Y)
    with pytest.warns(UserWarning, match="the model does not name channels"):
        arrays.predict(epochs)
    with_triggers = np.concatenate([X, np.where(Y == "left", 1.0, 2.0)[:, None, None].repeat(16, 2)], 1)
    marked = mne.create_info(["C3", "C4", "STI"], 16.0, ["eeg", "eeg", "stim"])
    triggers = mne.EpochsArray(with_triggers, marked, metadata=metadata, verbose="error")
    assert small(max_epochs=1).fit(triggers, Y).n_features_in_ == 2, "triggers give the class away"


def test_convergence_warning_keeps_a_good_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from autotransfer.estimator import censored

    def failing(*arguments: object, **named: object) -> list[Outcome]:
        (outcome,) = at.train(*arguments, **named)
        return [replace(outcome, failure="the training loss became nan in epoch 4", best_epoch=3)]

    monkeypatch.setattr(censored, "train", failing)
    with pytest.warns(ConvergenceWarning, match="the weights of epoch 3 are kept; try a lower lr"):
        small(max_epochs=1).fit(X, Y, subjects=SUBJECTS)


def test_score_is_the_reports_metric_unless_another_is_named(fitted: at.CensoredClassifier) -> None:
    noise = np.random.default_rng(0).permutation(Y)
    few = np.concatenate([np.flatnonzero(noise == "left")[:3], np.flatnonzero(noise == "right")])
    truth, predicted, p = noise[few], fitted.predict(X[few]), fitted.predict_proba(X[few])
    expected = {
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, predicted),
        "accuracy": metrics.accuracy_score(truth, predicted),
        "roc_auc": metrics.roc_auc_score(truth, p[:, 1]),
        "cohen_kappa": metrics.cohen_kappa_score(truth, predicted),
    }
    assert len({round(value, 3) for value in expected.values()}) == 4
    assert fitted.scoring is None
    for name, value in expected.items():
        own = copy.copy(fitted).set_params(scoring=name)
        assert own.score(X[few], truth) == pytest.approx(value), name
    with pytest.warns(UndefinedMetricWarning, match="y holds one class"):
        assert np.isnan(fitted.score(X[few[:3]], truth[:3]))
    with pytest.raises(at.UserError, match="unknown scoring 'recall'; choose from 'balanced_accuracy'"):
        clone(fitted).set_params(scoring="recall").fit(X, Y, subjects=SUBJECTS)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (RECORDINGS.y.numpy(), r"y has the class 0; choose from \['left', 'right'\]"),
        (np.char.upper(Y), r"y has the class 'LEFT'; choose from \['left', 'right'\]"),
        (np.where(Y == "left", np.array(None), Y), r"y\[.*\] is None; drop"),
        (np.where(Y == "left", np.nan, 1.0), r"y\[.*\] is nan; drop"),
        (np.ma.masked_array(Y, Y == "left"), r"y\[.*\] is None; drop"),
        ([None] * len(Y), r"y\[0\] is None; drop"),
        (Y[:-1], "y has 47 entries but X has 48"),
    ],
)
def test_scores_with_missing_or_wrong_labels_are_refused(
    fitted: at.CensoredClassifier, y: object, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fitted.score(X, y)


def test_classes_that_were_not_in_fit_count_as_mistakes(fitted: at.CensoredClassifier) -> None:
    strange = np.where(np.arange(len(Y)) % 4 == 0, "up", Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's
        expected = metrics.balanced_accuracy_score(strange, fitted.predict(X))
    assert fitted.score(X, strange) == pytest.approx(expected)


def test_a_saved_model_predicts_classes(fitted: at.CensoredClassifier) -> None:
    model = fitted.model_
    np.testing.assert_array_equal(model.classes_, fitted.classes_)
    np.testing.assert_array_equal(model.predict(X[:9]), fitted.predict(X[:9]))
    np.testing.assert_array_equal(
        model.predict(torch.from_numpy(X[:9]), np.array(list("aabbccdde"))), model.predict(X[:9])
    )
    mixed = weighted([model, model], [0.5, 0.5])
    np.testing.assert_array_equal(mixed.predict(X[:9], ["a"] * 9), model.predict(X[:9]))
    np.testing.assert_array_equal(mixed.classes_, model.classes_)
