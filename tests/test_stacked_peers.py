"""Stacked DANN and DeepCORAL: the losses they claim, SKADA's batches, members that know nothing of each other."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from benchmarks import deep, peers
from benchmarks import stacked_peers as stacked
from benchmarks.csv_rows import known_rows
from benchmarks.shallow import Task, task_of
from benchmarks.stacked_peers import Batches, Trainer, Windows

import autotransfer as at
from plain_eegnet import copy_member, our_name
from tiny import tiny, tiny_file

CPU = torch.device("cpu")


@pytest.fixture
def configuration() -> Iterator[None]:
    """scikit-learn's, which skada changes for the whole process when it is imported."""
    before = sklearn.get_config()
    yield
    sklearn.set_config(**before)


def uneven() -> at.Recordings:
    """Four people with 170, 90, 90 and 50 windows, so that epochs of their folds differ in length."""
    whole = tiny(per_class=85)
    subject, place = whole.subject.numpy(), np.arange(whole.n_trials) % 170
    rows = np.flatnonzero(place < np.array([170, 90, 90, 50])[subject])
    return at.Recordings(whole.X[rows], whole.y[rows], subject[rows], sfreq=16)


def tasks_of(recordings: at.Recordings, seeds: int = 1) -> list[Task]:
    return [task_of(recordings, fold, seed) for seed in range(seeds) for fold in at.leave_one_subject_out(recordings)]


def windows_of(recordings: at.Recordings) -> Windows:
    return Windows(recordings.X.numpy(), recordings.subject.numpy(), CPU, torch.float64)


@pytest.mark.parametrize("method", stacked.METHODS)
def test_a_member_of_the_stack_equals_the_same_member_alone(method: str) -> None:
    recordings = uneven()
    windows, tasks = windows_of(recordings), tasks_of(recordings, seeds=2)
    together = Trainer(windows, tasks, method)
    assert len({batches.steps for batches in together.batches}) > 1
    together.train(3)
    predicted, state = together.predict(), together.population.state_dict()
    for member in (0, 3, 5):
        alone = Trainer(windows, [tasks[member]], method)
        alone.train(3)
        for name, value in alone.population.state_dict().items():
            torch.testing.assert_close(state[name][member], value[0], rtol=0, atol=1e-9, msg=name)
        assert (alone.predict()[0] == predicted[member]).all()


def test_coral_distance_of_a_double_loop() -> None:
    draw = np.random.default_rng(0)
    source, target = draw.standard_normal((3, 20, 4)), 2 * draw.standard_normal((3, 15, 4)) + 1
    expected = np.zeros(3)
    for p in range(3):
        for i in range(4):
            for j in range(4):
                gap = [
                    sum((z[:, i] - z[:, i].mean()) * (z[:, j] - z[:, j].mean())) / (len(z) - 1)
                    for z in (source[p], target[p])
                ]
                expected[p] += (gap[0] - gap[1]) ** 2 / (4 * 4**2)
    distance = stacked.coral_distance(torch.from_numpy(source), torch.from_numpy(target))
    np.testing.assert_allclose(distance.numpy(), expected, rtol=1e-12)


@pytest.mark.usefixtures("configuration")
def test_coral_distance_is_skadas() -> None:
    pytest.importorskip("skada", reason="pip install '.[bench]'")
    from skada.deep.losses import deepcoral_loss

    source, target = torch.randn(3, 128, 16), 3 * torch.randn(3, 128, 16)
    distance = stacked.coral_distance(source, target)
    for member in range(3):
        torch.testing.assert_close(distance[member], deepcoral_loss(source[member], target[member]))


def test_domain_gradients_are_reversed_for_codes_only() -> None:
    term = stacked.Dann(2, 5, seeds=[0, 1]).double()
    z = torch.randn(2, 12, 5, dtype=torch.float64, requires_grad=True)
    weights = list(term.parameters())
    plain = torch.autograd.grad(term.domain_loss(z).sum(), [z, *weights])
    adversarial = torch.autograd.grad(term(z).sum(), [z, *weights])
    assert plain[0].abs().max() > 0
    torch.testing.assert_close(adversarial[0], -plain[0], rtol=0, atol=0)
    for gradient, other in zip(adversarial[1:], plain[1:], strict=True):
        torch.testing.assert_close(gradient, other, rtol=0, atol=0)
    torch.testing.assert_close(term(z), term.domain_loss(z), rtol=0, atol=0)


@pytest.mark.usefixtures("configuration")
@pytest.mark.filterwarnings("ignore:Implicit dimension choice for softmax")
def test_dann_is_skadas_but_for_its_softmax() -> None:
    pytest.importorskip("skada", reason="pip install '.[bench]'")
    from skada.deep._adversarial import DANNLoss
    from skada.deep.modules import DomainClassifier

    ours, theirs = stacked.Dann(1, 5, seeds=[0]), DomainClassifier(5)
    first, norm, _, last, _ = theirs.classifier
    for theirs_layer, our_layer in ((first, ours.hidden), (norm, ours.norm), (last, ours.out)):
        copy_layer(theirs_layer, our_layer)
    z = torch.randn(16, 5, requires_grad=True)

    domains = theirs(z)
    DANNLoss()(domains[:8], domains[8:]).backward()
    assert (domains == 1).all(), "a softmax over one output"
    assert (z.grad == 0).all(), "SKADA's default learns from domains now: stacked_peers says that it does not"

    z.grad = None
    theirs.classifier[-1] = torch.nn.Sigmoid()
    domains = theirs(z)
    loss = DANNLoss()(domains[:8], domains[8:])
    loss.backward()
    term = ours(z[None])
    torch.testing.assert_close(term[0], loss)
    torch.testing.assert_close(torch.autograd.grad(term.sum(), z)[0], z.grad)


@pytest.mark.usefixtures("configuration")
@pytest.mark.parametrize("method", ["dann", "coral"])
def test_a_step_has_skadas_loss_and_gradients(method: str) -> None:
    pytest.importorskip("skada", reason="pip install '.[bench]'")
    from skada.deep._adversarial import DANNLoss
    from skada.deep._divergence import DeepCoralLoss
    from skada.deep.base import DomainAwareCriterion, DomainAwareModule
    from skada.deep.modules import DomainClassifier

    recordings = uneven()
    task = tasks_of(recordings)[1]
    trainer = Trainer(windows_of(recordings), [task], method)
    ours = trainer.population.train()
    ours.encoder.dropout = 0.0
    rows = torch.from_numpy(trainer.batches[0].take(1))
    x, y = trainer.gathered(rows), torch.from_numpy(task.y)[rows[0]]
    losses = ours.losses(x, y[None, :128], trainer.noise)
    losses.sum().backward()

    network = deep.network_of(task).double()
    network.encoder.drop.p = 0.0
    copy_member(network.encoder, trainer.population.encoder, 0)
    domains = None
    if method == "dann":
        domains = DomainClassifier(network.width).double()
        domains.classifier[-1] = torch.nn.Identity()
        for place, layer in zip((0, 1, 3), (ours.term.hidden, ours.term.norm, ours.term.out), strict=True):
            copy_layer(domains.classifier[place], layer)
    copy_layer(network.classifier, ours.classifier)
    theirs = DomainAwareModule(network, "encoder", domains).train()
    # With logits: the plain loss refuses float64 beside SKADA's float32 labels.
    adapt = DeepCoralLoss() if domains is None else DANNLoss(torch.nn.BCEWithLogitsLoss())
    criterion = DomainAwareCriterion(torch.nn.CrossEntropyLoss(), adapt, reg=1.0)
    loss = criterion(theirs(x[0], sample_domain=torch.where(y < 0, -2, 1)), y)
    loss.backward()
    torch.testing.assert_close(losses[0], loss)
    torch.testing.assert_close(ours.classifier.weight.grad[0], network.classifier.weight.grad)
    gradients = dict(ours.encoder.named_parameters())
    for name, value in network.encoder.named_parameters():
        gradient = gradients[our_name(name)].grad.reshape(value.shape)
        torch.testing.assert_close(gradient, value.grad, rtol=1e-6, atol=1e-9, msg=name)


def copy_layer(theirs: torch.nn.Module, ours: torch.nn.Module) -> None:
    """The weights of the first member of ours."""
    with torch.no_grad():
        theirs.weight.copy_(ours.weight[0])
        theirs.bias.copy_(ours.bias[0])


def test_labels_of_the_test_subject_do_not_matter() -> None:
    recordings = tiny(per_class=8)
    windows, fold = windows_of(recordings), at.leave_one_subject_out(recordings)[1]
    y = recordings.y.numpy().copy()
    y[fold.test] = np.random.default_rng(0).permutation(1 - y[fold.test])
    changed = at.Recordings(recordings.X, y, recordings.subject, sfreq=16)
    for method in stacked.METHODS:
        first = Trainer(windows, [task_of(recordings, fold, 0)], method)
        other = Trainer(windows_of(changed), [task_of(changed, fold, 0)], method)
        for trainer in (first, other):
            trainer.train(2)
        rows = torch.from_numpy(fold.test)[None]
        with torch.no_grad():
            logits = [trainer.population.eval()(trainer.gathered(rows)) for trainer in (first, other)]
        assert (logits[0] == logits[1]).all()


def test_the_test_subjects_labels_cannot_train() -> None:
    task = tasks_of(tiny(per_class=8))[0]
    trainer = Trainer(windows_of(tiny(per_class=8)), [task], "coral")
    with pytest.raises(IndexError, match="-1 is out of bounds"):
        trainer.step(torch.from_numpy(np.resize(task.test, (1, 256))), 0)


@pytest.mark.usefixtures("configuration")
def test_batches_are_composed_like_skadas() -> None:
    pytest.importorskip("skada", reason="pip install '.[bench]'")
    from skada.deep.base import DomainBalancedSampler

    task = tasks_of(uneven())[1]  # 310 windows known, 90 of the test subject
    domain = np.where(task.y < 0, -2, 1)
    theirs = DomainBalancedSampler([({"sample_domain": d}, 0) for d in domain], batch_size=32)
    ours = Batches(task, batch=32)
    assert len(theirs) == ours.steps * 64
    for rows in (np.array(list(theirs)).reshape(-1, 2).T, ours.take(ours.steps).reshape(-1, 2, 32).swapaxes(0, 1)):
        source, target = (half.ravel() for half in rows)
        assert set(source) <= set(task.known)
        assert len(set(source)) == len(source) == 288, "full batches, none twice"
        for first in range(0, 270, 90):
            assert set(target[first : first + 90]) == set(task.test), "all before one repeats"


def test_windows_are_standardised_by_the_training_subjects() -> None:
    recordings = uneven()
    tasks = tasks_of(recordings)
    trainer = Trainer(windows_of(recordings), tasks, "coral")
    X = recordings.X.numpy().astype(np.float64)
    gathered = trainer.gathered(torch.arange(len(X)).expand(len(tasks), -1)).numpy()
    for windows, task in zip(gathered, tasks, strict=True):
        known = X[task.fold.train]
        expected = (X - known.mean((0, 2), keepdims=True)) / known.std((0, 2), keepdims=True)
        np.testing.assert_allclose(windows, expected, rtol=1e-9, atol=1e-9)


def test_rows_are_tidy_and_a_repeated_command_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "MOST", 3)
    out, source = tmp_path / "peers.csv", str(tiny_file(tmp_path, per_class=32))
    options = Namespace(files=[source], out=out, peers=["dann", "coral"], seeds=2, epochs=2, device="cpu")
    peers.run(options)
    rows = known_rows(out)
    expected = {("tiny", method, str(s), str(seed)) for method in options.peers for s in range(4) for seed in (0, 1)}
    assert {(r["dataset"], r["pipeline"], r["subject"], r["seed"]) for r in rows} == expected
    assert len(rows) == 16
    peers.run(options)
    assert known_rows(out) == rows


def test_epochs_of_a_run() -> None:
    assert stacked.usual_epochs(tiny()) == 500
    assert stacked.usual_epochs(tiny(n_subjects=12, per_class=640)) == 25  # 10 × 1280 windows: 100 steps


def test_needs_no_other_library() -> None:
    code = "import sys\nsys.modules |= dict.fromkeys(['skada', 'skorch'])\nimport benchmarks.peers"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
