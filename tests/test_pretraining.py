"""Several studies at once, bases that are trained on them, and runs that start from one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.model import start
from autotransfer.models.base import Base, load_base
from autotransfer.models.saving import BASE
from autotransfer.preprocessing.represent import base_layout, pretrained, representation_class
from autotransfer.preprocessing.represent.pretrained import at_one_scale
from autotransfer.pretraining.pretrain import FOLDS, SETTING, _entries
from autotransfer.recordings import save_folder, save_npz
from autotransfer.recordings.copies import traces
from autotransfer.recordings.layout import channel_map, position, resampling, starts
from autotransfer.runs import executor
from autotransfer.runs.checkpoint import restore, save_checkpoint
from autotransfer.runs.options import RunOptions
from autotransfer.runs.preparation import Preparation
from autotransfer.runs.run import job_of
from autotransfer.search.kinds import candidates_of, closed_forms, networks
from autotransfer.training import packing
from autotransfer.training.batches import epochs_for
from autotransfer.training.metrics import apart, weighted_nll
from autotransfer.training.packing import program_of
from autotransfer.training.represented import represented_on
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import windows_for
from faults import Command, footprint, wait_for_a_write, wait_for_files


def study(seed: int, subjects: int = 4, **changes: Any) -> at.Recordings:
    """A small study; changes: of what Recordings are made of."""
    made = at.synthetic(n_subjects=subjects, seed=seed)
    given = {
        "X": made.X, "y": made.y, "subject": made.subject, "sfreq": made.sfreq, "channels": made.channels,
        "name": f"study {seed}",
    }  # fmt: skip
    return at.Recordings(**given | changes)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases") / "base"
    at.pretrain(at.Studies([study(1), study(2)]), folder, members=2, epochs=4, device="cpu", progress=False)
    return folder


# layouts


def test_channels_are_matched_by_name_by_ring_and_by_position() -> None:
    assert np.array_equal(channel_map(["EEG C3", "T3-REF"], None, ["T7", "C3"], None), [[0, 1], [1, 0]])
    around = channel_map(["a", "b"], (1, 0), ["w", "x", "y", "z"], (0, 1, 2, 3))
    assert np.allclose(around, [[0, 1], [0.5, 0.5], [1, 0], [0.5, 0.5]])
    between = channel_map(["C3", "Cz", "O1"], None, ["C1"], None)[0]
    assert between[0] == pytest.approx(between[1], rel=0.01), "C1 lies in the middle of C3 and Cz"
    assert between[2] == 0
    assert between.sum() == pytest.approx(1)
    assert not channel_map(["C3"], None, ["O2", "gsr"], None).any(), "too far, and nowhere"


@pytest.mark.filterwarnings("ignore:Montage name:FutureWarning")  # the name that older versions of MNE know
def test_positions_are_those_of_the_10_10_system() -> None:
    mne = pytest.importorskip("mne")
    montage = mne.channels.make_standard_montage("standard_1005").get_positions()["ch_pos"]
    names = [name for name in montage if position(name) is not None and name not in ("T9", "T10", "P9", "P10")]
    assert len(names) > 60
    centre = np.mean([montage[name] for name in ("T7", "T8")], 0)
    for name in names:
        own = montage[name] - centre
        assert position(name) @ own / np.linalg.norm(own) > np.cos(np.deg2rad(25)), name  # type: ignore[operator]


def test_resampling_keeps_a_slow_wave() -> None:
    time = np.arange(100) / 100
    slow = np.sin(2 * np.pi * 5 * time) @ resampling(100, 100.0, 200.0)
    expected = np.sin(2 * np.pi * 5 * np.arange(200) / 200)
    assert np.abs(slow - expected)[20:-20].max() < 0.02


def test_pieces_cover_a_window() -> None:
    assert starts(200, 200) == starts(100, 200) == [0]
    assert starts(400, 200) == [0, 200]
    assert starts(300, 200) == [0, 100]


# studies


def test_studies_have_one_layout_and_classes_of_their_own() -> None:
    slow = study(
        2, X=study(2).X[:, [1, 0, 2, 3]].repeat(1, 1, 2)[..., ::2], sfreq=64.0, channels=("ch1", "ch0", "ch2", "x")
    )
    both = at.Studies([study(1), slow, study(3)])
    assert both.channels == ("ch0", "ch1", "ch2", "ch3", "ch4", "ch5", "ch6", "ch7")
    assert both.sfreq == 128
    pool = both.recordings
    assert pool.n_subjects == 12
    assert pool.n_classes == 6
    assert pool.heads is not None
    assert pool.heads.tolist() == [0, 0, 1, 1, 2, 2]
    assert pool.classes[2] == "study 2: 0"
    assert "study" in pool.columns
    own = pool.X[pool.y // 2 == 1]
    assert not own[:, 4:].any(), "what a study does not have is 0"
    assert own[:, :3].any()
    assert torch.allclose(own.square().mean((1, 2)), torch.ones(len(own)), atol=1e-4)


def test_people_are_in_one_study_only() -> None:
    one = study(1)
    later = study(1, X=one.X[:, :, 7:], name="the same, cut elsewhere")
    with pytest.raises(at.UserError, match="share samples"):
        at.Studies([one, later])
    assert not traces(one.X, one.subject.numpy()).shared(traces(study(2).X, study(2).subject.numpy()))


@pytest.mark.parametrize(
    ("studies", "told"),
    [
        ([study(1)], "at least 2"),
        ([study(1), study(2, channels=[f"z{c}" for c in range(8)])], "in common"),
        ([study(1), study(2, sfreq=None)], "sampling rate"),
    ],
)
def test_studies_that_cannot_be_one_are_refused(studies: list[at.Recordings], told: str) -> None:
    with pytest.raises(at.UserError, match=told):
        at.Studies(studies)


def test_windows_compete_among_the_classes_of_their_study() -> None:
    logits = torch.randn(1, 5, 4, dtype=torch.float64)
    y = torch.tensor([[0, 1, 2, 3, 2]])
    heads = torch.tensor([0, 0, 1, 1])
    nll, _ = weighted_nll(logits + apart(heads)[y], y, torch.ones(1, 4, dtype=torch.float64))
    for row, label in enumerate(y[0].tolist()):
        own = slice(0, 2) if label < 2 else slice(2, 4)
        assert nll[0, row] == pytest.approx(float(-logits[0, row, own].log_softmax(-1)[label % 2]))


def test_training_and_evaluation_keep_heads_apart() -> None:
    pool = at.Studies([study(1), study(2)]).recordings
    assert pool.heads is not None
    fold = at.leave_one_subject_out(pool)[0]
    setting = at.Setting(encoder="shallow", standardise="none", max_epochs=1)
    (apart_,) = at.train(pool, [at.Job(setting, fold)], device="cpu", progress=False)
    rows = np.concatenate([fold.validation, fold.test])
    other = pool.heads[None] != pool.heads[pool.y[rows]][:, None]
    assert float(apart_.held_out_log_probs[other].max()) < -1000
    object.__setattr__(pool, "heads", None)
    (together,) = at.train(pool, [at.Job(setting, fold)], device="cpu", progress=False)
    assert together.history["train_loss"][0] > apart_.history["train_loss"][0] + 0.3, "twice as many classes compete"


# a base


def test_frozen_networks_say_what_the_members_say(base: Path) -> None:
    known, target = load_base(base), study(5)
    names = known.bind(target)
    fitted = at.Setting(encoder="linear", standardise="none", represent=names["base"]).preprocessing.fit(
        target.X, target.subject, [np.arange(40)]
    )
    x, level = at_one_scale(target.X[:9])
    known.members.train(False)
    with torch.no_grad():
        expected = known.members.classifier(known.members.net(x.expand(2, -1, -1, -1))).mean(0)
    found = fitted(target.X[None, :9], target.subject[None, :9])[0, :, 0]
    assert torch.allclose(found[:, :-1], expected, atol=1e-4)
    assert torch.allclose(found[:, -1:], level.log(), atol=1e-5)


def test_what_a_base_makes_of_windows_keeps_nothing_of_how_it_was_made(base: Path) -> None:
    """A graph for every window filled the memory."""
    known, target = load_base(base), study(5)
    assert not any(tensor.requires_grad for made in (known.frozen(), known.untrained()) for tensor in made.values())
    form = at.Setting(encoder="linear", standardise="none", represent=known.bind(target)["base"])
    _, windows = represented_on(target, form.preprocessing, torch.device("cpu"), torch.float32)
    assert len(windows) == target.n_trials
    assert not windows.requires_grad


def test_windows_of_another_layout_are_made_alike(base: Path) -> None:
    known = load_base(base)
    plain = study(5)
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    other = study(5, X=plain.X[:, order], channels=[plain.channels[c] for c in order])

    def numbers(recordings: at.Recordings) -> torch.Tensor:
        setting = at.Setting(encoder="linear", standardise="none", represent=known.bind(recordings)["base"])
        fitted = setting.preprocessing.fit(recordings.X, recordings.subject, [np.arange(9)])
        made: torch.Tensor = fitted(recordings.X[None, :9], recordings.subject[None, :9])
        return made

    assert torch.allclose(numbers(plain), numbers(other), atol=1e-5)
    longer = study(5, X=torch.cat([plain.X, plain.X], -1))
    assert torch.allclose(numbers(plain), numbers(longer), atol=1e-5), "two pieces that are alike"


def test_the_card_has_scores_of_people_left_out(base: Path) -> None:
    card = load_base(base).card
    assert [one["people"] for one in card.studies] == [4, 4]
    assert card.people == 8
    assert card.n_classes == 4
    assert all(0 <= one["score"] <= 1 for one in card.studies)
    assert "study 1" in (base / "README.md").read_text()


def test_people_of_the_base_are_refused(base: Path) -> None:
    known = load_base(base)
    known.check_new(study(3))
    with pytest.raises(at.UserError, match="4 of 4 people are in the base"):
        known.check_new(
            study(1, X=study(1).X[:, :, 5:], name="another name", subject=[f"p{s}" for s in study(1).subject])
        )


def damage_card(folder: Path, **changes: object) -> None:
    (folder / BASE.card).write_text(json.dumps(json.loads((folder / BASE.card).read_text()) | changes))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / BASE.weights).write_bytes((folder / BASE.weights).read_bytes()[:-8]),
        lambda folder: (folder / BASE.weights).unlink(),
        lambda folder: (folder / BASE.card).write_text("[]"),
        lambda folder: damage_card(folder, members=10**9),
        lambda folder: damage_card(folder, n_times=-1),
        lambda folder: damage_card(folder, name="changed"),
        lambda folder: damage_card(folder, unknown=1),
    ],
)
def test_a_damaged_base_is_one_line(base: Path, tmp_path: Path, damage: Any) -> None:
    for path in base.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert isinstance(load_base(tmp_path), Base)
    damage(tmp_path)
    with pytest.raises(at.UserError, match="base"):
        load_base(tmp_path)


AGAIN: dict[str, Any] = {"members": 2, "epochs": 4, "device": "cpu", "progress": False}  # as the base has it


def assert_same_base(folder: Path, other: Path) -> None:
    """Every file, bit for bit."""
    assert {path.name for path in folder.iterdir()} == {"base.json", "base.safetensors", "README.md", "lock"}
    for name in ("base.json", "base.safetensors", "README.md"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def stopping_after(epochs: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupts a training once; the list has an entry for each epoch."""
    begun: list[int] = []

    def stop() -> None:
        begun.append(1)
        if len(begun) == epochs:
            raise KeyboardInterrupt

    monkeypatch.setattr(executor, "CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(executor, "raise_if_asked", stop)
    return begun


def test_pretraining_goes_on_where_it_was_killed(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = stopping_after(2, monkeypatch)
    both = at.Studies([study(1), study(2)])
    with pytest.raises(KeyboardInterrupt):
        at.pretrain(both, tmp_path / "b", **AGAIN)
    assert (tmp_path / "b" / "population-1.checkpoint").exists()
    with pytest.raises(at.UserError, match="other studies or settings, which is not finished"):
        at.pretrain(both, tmp_path / "b", **AGAIN | {"epochs": 5})
    monkeypatch.setattr(packing, "CPU_LIMIT", 1)  # less memory is free than before: what is composed stays so
    at.pretrain(both, tmp_path / "b", **AGAIN)
    assert len(begun) == 4, "two epochs were left"
    assert_same_base(tmp_path / "b", base)
    (tmp_path / "b" / "pretraining.sqlite").write_bytes(b"")  # of a process that was killed in the last moment
    at.pretrain(both, tmp_path / "b", **AGAIN)
    assert len(begun) == 4, "a finished base is not trained again"
    assert_same_base(tmp_path / "b", base)
    with pytest.raises(at.UserError, match="other studies or settings; choose"):
        at.pretrain(both, tmp_path / "b", **AGAIN | {"epochs": 5})


@pytest.mark.faults
def test_kills_leave_the_same_base(tmp_path: Path) -> None:
    asked: list[object] = ["pretrain"]
    for number in (1, 2):
        save_npz(tmp_path / f"{number}.npz", study(number))
        asked.append(tmp_path / f"{number}.npz")
    asked += ["--members", 2, "--epochs", 6, "--device", "cpu", "--quiet", "--out"]
    assert Command(*asked, tmp_path / "whole", log=tmp_path / "log").wait() == 0
    out, kills = tmp_path / "b", 0
    while not (out / "base.json").exists() and kills < 20:
        command = Command(*asked, out, log=tmp_path / "log", checkpoint_every=-1.0, from_file=kills % 2 == 1)
        if kills % 2:
            wait_for_a_write(out, footprint(out), command)
        else:
            wait_for_files(out, ("*.checkpoint", "base.json"), command, 60)
        command.kill()
        kills += 1
    assert kills > 5
    assert Command(*asked, out, log=tmp_path / "log").wait() == 0, (tmp_path / "log").read_text()
    assert_same_base(out, tmp_path / "whole")


def test_a_damaged_ledger_costs_what_it_held(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = stopping_after(3, monkeypatch)
    both = at.Studies([study(1), study(2)])
    with pytest.raises(KeyboardInterrupt):
        at.pretrain(both, tmp_path, **AGAIN)
    (tmp_path / "pretraining.sqlite").write_bytes(b"SQLite format 3\0" + bytes(2000))
    at.pretrain(both, tmp_path, **AGAIN)
    assert len(begun) >= 4
    assert_same_base(tmp_path, base)


def test_studies_larger_than_memory_give_the_same_base(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        save_folder(tmp_path / f"study {number}", study(number))
    both = at.Studies([tmp_path / "study 1", tmp_path / "study 2"])
    assert both.fit_into_memory
    at.pretrain(both, tmp_path / "mapped", **AGAIN)
    monkeypatch.setattr(packing, "free_memory", lambda _: 7 * both.studies[0].X.numel())
    assert not both.fit_into_memory
    del both.recordings
    begun = stopping_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        at.pretrain(both, tmp_path / "b", **AGAIN)
    assert not [path for path in (tmp_path / "b").iterdir() if path.stat().st_size >= 4 * both.studies[0].X.numel()]
    at.pretrain(both, tmp_path / "b", **AGAIN)
    assert len(begun) == 2 * 4, "one network after the other, as there is no memory for both"
    assert "recordings" not in vars(both), "which are all windows in memory"
    for folder in ("mapped", "b"):
        assert_same_base(tmp_path / folder, base)


def test_windows_in_a_file_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = study(2, X=study(2).X.repeat(1, 1, 3), sfreq=100.0)
    both = at.Studies([study(1), fast], sfreq=128.0)
    monkeypatch.setattr("autotransfer.recordings.chunks.CHUNK_VALUES", 5000)
    held, read = both.recordings, both.in_file(tmp_path)
    slow = fast.X @ torch.from_numpy(resampling(384, 100.0, 128.0))
    begins = starts(slow.shape[-1], 128)
    assert len(begins) == 4
    pieces = [study(1).X, *(slow[..., at : at + 128] for at in begins)]
    assert torch.allclose(held.X, torch.cat([at_one_scale(piece)[0] for piece in pieces]), atol=1e-4)
    assert torch.equal(held.y, torch.cat([study(1).y, *[fast.y + 2] * 4]))
    assert torch.equal(held.subject, torch.cat([study(1).subject, *[fast.subject + 4] * 4]))
    assert held.X.shape == both.shape
    for name in ("X", "y", "subject", "heads"):
        assert torch.equal(getattr(held, name), getattr(read, name)), name
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("autotransfer.pretraining.studies.disk_usage", lambda _: SimpleNamespace(free=10**5))
    with pytest.raises(at.UserError, match=r"0.0001 GB are free"):
        both.in_file(tmp_path)


def test_members_leave_out_a_fifth_of_the_people_and_train_on_all_others() -> None:
    pool = at.Studies([study(1), study(2)]).recordings
    entries = _entries(pool, SETTING, 7, None, 3)
    assert [(entry.test, entry.seed) for entry in entries] == [(0, 3), (1, 3), (2, 3), (3, 3), (4, 3), (0, 4), (1, 4)]
    fold = job_of(pool, entries[1], FOLDS).fold
    assert len(fold.validation) == 0
    assert np.unique(pool.subject[fold.test]).tolist() == [1, 6]
    assert len(fold.train) + len(fold.test) == pool.n_trials
    assert entries[0].setting.max_epochs == epochs_for(len(fold.train), 128, 5000)


def test_the_study_is_one_more_nuisance(tmp_path: Path) -> None:
    both = at.Studies([study(1), study(2)])
    made = at.pretrain(
        both, tmp_path / "b", members=1, epochs=1, device="cpu", progress=False, method="mmd", strength=0.1,
        nuisance="subject+study",
    )  # fmt: skip
    assert made.setting.nuisance == "subject+study"


# runs that start from one


def test_a_base_is_a_candidate_beside_untrained_networks(base: Path) -> None:
    target = study(5)
    bound = load_base(base).bound_to(target)
    made = [one for one in closed_forms("online", target, base=bound) if one.kind in ("base", "random_base")]
    assert {(one.kind, one.to_dict().get("centre", "none")) for one in made} == {
        (kind, centre) for kind in ("base", "random_base") for centre in ("none", "online")
    }
    without = closed_forms("online", target)
    assert [one for one in closed_forms("online", target, base=bound) if one not in made] == without
    with pytest.raises(at.UserError, match="are in the base"):
        load_base(base).bound_to(study(1))


def test_a_base_that_is_not_open_is_said_so() -> None:
    setting = at.Setting(encoder="linear", standardise="none", represent="base:0123456789abcdef:4")
    assert setting.kind == "base"
    assert at.Setting.from_json(setting.to_json()) == setting
    with pytest.raises(at.UserError, match="not open here"):
        setting.preprocessing.fit(study(1).X, study(1).subject, [np.arange(9)])
    with pytest.raises(at.UserError, match="base:DIGEST:CLASSES"):
        representation_class("base:elsewhere")


@pytest.mark.slow
def test_a_run_from_a_base_delivers_a_model_that_needs_no_base(base: Path, tmp_path: Path) -> None:
    target = study(5)
    save_npz(tmp_path / "target.npz", target)
    out, cli = tmp_path / "run", CliRunner()
    kept = ["run", str(tmp_path / "target.npz"), "--out", str(out), "--base", str(base), "--networks", "none"]
    told = cli.invoke(app, [*kept, "--epochs", "1", "--seeds", "1", "--quick", "--device", "cpu", "--time", "none"])
    assert told.exit_code == 0, told.output
    choice = json.loads((out / "choice.json").read_text())
    kinds = {one["represent"].partition(":")[0] for one in choice["shortlist"]}
    assert {"base", "random_base"} <= kinds
    assert "base of other studies has" in (out / "report.html").read_text(), "its weight, or that it has none"
    assert "base of other studies has" in " ".join(told.output.split())
    assert load_base(out / "base").digest == load_base(base).digest
    forgotten = dict(pretrained.Pretrained.opened)
    pretrained.Pretrained.opened.clear()
    try:
        model = at.load_model(out / "model")
        assert model.predict_proba(target.X[:4]).shape == (4, 2)
    finally:
        pretrained.Pretrained.opened.update(forgotten)
    refused = cli.invoke(app, ["run", str(tmp_path / "target.npz"), "--out", str(tmp_path / "x"), "--base", "nowhere"])
    assert isinstance(refused.exception, at.UserError)
    assert "nowhere" in str(refused.exception)


# networks that learn on


def tuned_and_scratch(base: Path, target: at.Recordings, **changes: Any) -> tuple[at.Setting, at.Setting]:
    """The candidates of a run."""
    options = RunOptions(source="", adaptation="zero-shot", base=str(base), **{"epochs": 3} | changes)
    every = candidates_of(Preparation(options, target, base=load_base(base).bound_to(target))).networks
    tuned, scratch = [one for one in every if one.kind.endswith("_base")]
    return tuned, scratch


def test_a_network_that_starts_from_a_base_stands_beside_one_from_scratch(base: Path) -> None:
    target = study(5)
    tuned, scratch = tuned_and_scratch(base, target, lr=0.002)
    assert (tuned.kind, scratch.kind) == ("tuned_base", "scratch_base")
    assert tuned.training.encoder_lr == pytest.approx(0.0002)
    assert tuned.replace(start=None, encoder_lr=None) == scratch, "nothing else differs"
    assert at.Setting.from_json(tuned.to_json()) == tuned
    assert program_of(target, job(tuned, target)) == program_of(target, job(scratch, target)), "they share a stack"
    without = networks([at.Setting()], target, "zero-shot", "none", base=load_base(base).bound_to(target))
    assert [one.kind for one in without] == ["eegnet"]


def job(setting: at.Setting, target: at.Recordings, fold: int = 0, seed: int = 0) -> at.Job:
    return at.Job(setting, at.leave_one_subject_out(target)[fold], seed)


def population(jobs: list[at.Job], target: at.Recordings) -> Trainer:
    windows = windows_for(target, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
    return Trainer(jobs, windows)


def test_every_member_starts_from_one_member_of_the_base(base: Path) -> None:
    target, known = study(5), load_base(base).members.tensors()
    tuned, scratch = tuned_and_scratch(base, target)
    jobs = [job(tuned, target, fold, seed) for fold in range(3) for seed in range(3)]
    made = population([*jobs, job(scratch, target)], target).members.tensors()
    started = set()
    for member in range(len(jobs)):
        places = [
            place for place in (0, 1) if torch.equal(made["encoder.spatial"][member], known["encoder.spatial"][place])
        ]
        assert len(places) == 1
        for name, tensor in known.items():
            if name.startswith("encoder."):
                assert torch.equal(made[name][member], tensor[places[0]]), name
        started |= set(places)
    assert started == {0, 1}, "all members of the base are used"
    assert not any(torch.equal(made["encoder.spatial"][-1], tensor) for tensor in known["encoder.spatial"])
    alone = population([job(scratch, target)], target).members.tensors()
    assert torch.equal(made["classifier.weight"][0], alone["classifier.weight"][0]), "heads begin alike"


def test_a_stacked_member_that_learns_on_equals_the_same_member_alone(base: Path) -> None:
    target = study(5)
    tuned, scratch = tuned_and_scratch(base, target)
    jobs = [job(tuned, target), job(scratch, target), job(tuned, target, 1, 1)]
    together = at.train(target, jobs, device="cpu", progress=False)
    assert [outcome.population for outcome in together] == [3, 3, 3]
    for one, stacked in zip(jobs, together, strict=True):
        (alone,) = at.train(target, [one], device="cpu", progress=False)
        for name, tensor in alone.state.items():
            torch.testing.assert_close(stacked.state[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_the_encoder_learns_slower_than_its_classifier(base: Path) -> None:
    target = study(5)
    tuned, _ = tuned_and_scratch(base, target)

    def moved(setting: at.Setting) -> dict[str, float]:
        """By the first step, which in Adam has the length of the rate."""
        trainer = population([job(setting, target)], target)
        before = {name: tensor.clone() for name, tensor in trainer.members.tensors().items()}
        trainer.train_epoch(1)
        after = trainer.members.tensors()
        return {
            name: float((after[name] - before[name]).abs().median())
            for name in ("encoder.spatial", "classifier.weight")
        }

    slow, usual = moved(tuned), moved(tuned.replace(encoder_lr=None))
    assert slow["classifier.weight"] == pytest.approx(1e-3, rel=0.02) == usual["classifier.weight"]
    assert usual["encoder.spatial"] == pytest.approx(1e-3, rel=0.02)
    assert slow["encoder.spatial"] == pytest.approx(1e-4, rel=0.02)


def test_training_that_starts_from_a_base_goes_on_exactly(base: Path, tmp_path: Path) -> None:
    target = study(5)
    jobs = [job(setting, target) for setting in tuned_and_scratch(base, target)]
    through, begun = population(jobs, target), population(jobs, target)
    for _ in range(3):
        through.train_epoch()
        through.evaluate()
    begun.train_epoch()
    begun.evaluate()
    save_checkpoint(tmp_path / "c", begun, ["a", "b"])
    windows = windows_for(target, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
    restored = restore(dict(zip("ab", jobs, strict=True)), windows, tmp_path / "c")
    assert restored is not None
    for _ in range(2):
        restored[0].train_epoch()
        restored[0].evaluate()
    for name, tensor in through.state().items():
        assert torch.equal(tensor, restored[0].state()[name]), name


def test_networks_of_a_base_read_windows_as_it_does(base: Path) -> None:
    target = study(5)
    expected = at_one_scale(target.X[:9])[0]

    def windows(recordings: at.Recordings) -> torch.Tensor:
        preprocessing = tuned_and_scratch(base, recordings)[0].preprocessing
        fitted = preprocessing.fit(recordings.X, recordings.subject, [np.arange(9)])
        made: torch.Tensor = fitted(recordings.X[None, :9], recordings.subject[None, :9])[0]
        assert made.shape[1:] == preprocessing.shape(recordings.n_channels, recordings.n_times)
        return made

    assert torch.allclose(windows(target), expected, atol=1e-5)
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    other = study(5, X=1e-6 * target.X[:, order], channels=[target.channels[c] for c in order])
    assert torch.allclose(windows(other), expected, atol=1e-4), "channels by name, whatever the unit"
    half = study(5, X=target.X[..., :40], sfreq=64.0)
    assert windows(half).shape == (9, 8, 128), "80 samples at the rate of the base, repeated"
    longer = study(5, X=torch.cat([target.X, target.X], -1))
    assert windows(longer).shape == (9, 8, 256), "a longer window stays whole"


def test_a_model_that_started_from_a_base_needs_none(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = study(5)
    tuned, _ = tuned_and_scratch(base, target)
    (outcome,) = at.train(target, [job(tuned, target)], device="cpu", progress=False)
    model = outcome.model()
    expected = model.predict_proba(target.X[:5])
    at.save_model(model, tmp_path / "model")
    monkeypatch.setattr(start, "_opened", {})
    monkeypatch.setattr(base_layout.BaseLayout, "opened", {})
    kept = at.load_model(tmp_path / "model")
    assert np.allclose(kept.predict_proba(target.X[:5]), expected, atol=1e-6)
    assert np.allclose(kept.graph()(target.X[:5]).numpy(), expected, atol=1e-6)
    with pytest.raises(at.UserError, match="not open here"):
        at.train(target, [job(tuned, target)], device="cpu", progress=False)


def test_weights_that_do_not_fit_are_refused(base: Path) -> None:
    target = study(5)
    tuned, _ = tuned_and_scratch(base, target)
    with pytest.raises(at.UserError, match=r"cannot start from base:.*temporal"):
        at.train(target, [job(tuned.replace(temporal_kernel=9), target)], device="cpu", progress=False)
    with pytest.raises(at.UserError, match="base:DIGEST"):
        at.Setting(encoder="shallow", start="elsewhere")
    with pytest.raises(at.UserError, match="start belongs to the encoder 'shallow'"):
        at.Setting(encoder="eegnet", start="base:0123456789abcdef")
    with pytest.raises(at.UserError, match="DIGEST:CHANNELS:TIMES"):
        representation_class("base_layout:elsewhere")


@pytest.mark.slow
def test_a_run_has_networks_that_start_from_its_base(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = study(5)
    save_npz(tmp_path / "target.npz", target)
    out, cli = tmp_path / "run", CliRunner()
    words = ["run", str(tmp_path / "target.npz"), "--out", str(out), "--base", str(base), "--networks", "one"]
    told = cli.invoke(app, [*words, "--epochs", "2", "--seeds", "1", "--quick", "--device", "cpu", "--time", "none"])
    assert told.exit_code == 0, told.output
    shortlist = json.loads((out / "choice.json").read_text())["shortlist"]
    starts_from = sorted(one["start"][:5] for one in shortlist if one["represent"].startswith("base_layout:"))
    assert starts_from == ["base:", "none"]
    assert "Networks that start from the base and learn on" in (out / "report.html").read_text()
    expected = at.load_model(out / "model").predict_proba(target.X[:4])
    monkeypatch.setattr(start, "_opened", {})
    for kind in (base_layout.BaseLayout, pretrained.Pretrained):
        monkeypatch.setattr(kind, "opened", {})
    assert np.array_equal(at.load_model(out / "model").predict_proba(target.X[:4]), expected)
    again = cli.invoke(app, ["resume", str(out)])  # from the run's copy of the base
    assert again.exit_code == 0, again.output


def test_pretrain_on_the_command_line(tmp_path: Path) -> None:
    for seed in (1, 2):
        save_npz(tmp_path / f"{seed}.npz", study(seed))
    files = [str(tmp_path / f"{seed}.npz") for seed in (1, 2)]
    told = CliRunner().invoke(
        app, ["pretrain", *files, "--out", str(tmp_path / "b"), "--members", "1", "--epochs", "1", "--device", "cpu"]
    )
    assert told.exit_code == 0, told.output
    assert "8 people" in told.output
    assert load_base(tmp_path / "b").card.members == 1


# models and bases that are shared


class FakeHub:
    """What we use of huggingface_hub, with a folder in place of the hub."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.private: list[bool] = []

    def HfApi(self, token: str | None) -> FakeHub:  # the hub's name
        return self

    def create_repo(self, repo_id: str, private: bool, exist_ok: bool) -> None:
        self.private.append(private)
        (self.home / repo_id).mkdir(parents=True, exist_ok=True)

    def upload_folder(self, repo_id: str, folder_path: str, commit_message: str, allow_patterns: list[str]) -> str:
        for path in Path(folder_path).iterdir():
            if path.name in allow_patterns:
                (self.home / repo_id / path.name).write_bytes(path.read_bytes())
        return f"https://hub/{repo_id}"

    def snapshot_download(
        self, repo_id: str, revision: str | None, token: str | None, allow_patterns: list[str]
    ) -> str:
        """In the layout of the hub's cache: links to files that are called by their digests."""
        if not (self.home / repo_id).exists():
            raise RuntimeError("404")
        blobs, snapshot = self.home / "blobs", self.home / "snapshots" / repo_id
        blobs.mkdir(exist_ok=True)
        snapshot.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(allow_patterns):
            if (self.home / repo_id / name).exists():
                blob = blobs / f"{repo_id.replace('/', '-')}-{number}"
                blob.write_bytes((self.home / repo_id / name).read_bytes())
                (snapshot / name).unlink(missing_ok=True)
                (snapshot / name).symlink_to(blob)
        return str(snapshot)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    made = FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)  # type: ignore[arg-type]
    return made


def test_a_base_goes_to_the_hub_and_back(base: Path, hub: FakeHub) -> None:
    known = load_base(base)
    assert known.push_to_hub("me/base") == "https://hub/me/base"
    assert hub.private == [True], "nothing is public by default"
    found = at.from_pretrained("me/base")
    assert isinstance(found, Base)
    assert found.digest == known.digest == load_base("hf:me/base").digest
    digest = json.loads((base / BASE.card).read_text())["digest"]["weights"]
    assert digest in (hub.home / "me/base" / BASE.page).read_text()
    assert {path.name for path in (hub.home / "me/base").iterdir()} == {BASE.card, BASE.weights, BASE.page}


def test_a_model_goes_to_the_hub_and_back(hub: FakeHub, tmp_path: Path) -> None:
    target = study(5)
    setting = at.Setting(encoder="linear", standardise="none", represent="features")
    (outcome,) = at.train(target, [at.Job(setting, at.leave_one_subject_out(target)[0])], device="cpu", progress=False)
    model = outcome.model()
    model.push_to_hub("me/model")
    at.save_model(model, tmp_path / "here")
    for source in ("me/model", "hf:me/model", tmp_path / "here"):
        found = at.from_pretrained(source)
        assert np.array_equal(found.predict_proba(target.X[:5]), model.predict_proba(target.X[:5]))  # type: ignore[union-attr]
    weights = hub.home / "me/model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    with pytest.raises(at.UserError, match="not what"):
        at.from_pretrained("me/model")


def test_what_is_no_repository_or_cannot_be_had_is_one_line(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(at.UserError, match="no repository"):
        at.from_pretrained("no such folder")
    with pytest.raises(at.UserError, match="404"):
        at.from_pretrained("me/absent")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # type: ignore[arg-type]
    with pytest.raises(at.UserError, match=r"pip install huggingface_hub"):
        at.from_pretrained("me/model")
