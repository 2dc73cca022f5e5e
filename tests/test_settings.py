"""Settings and grids: every field checked, equal fits are equal settings."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

import autotransfer as at
from autotransfer.censoring import CENSORS
from autotransfer.errors import UserError
from autotransfer.grids import GRIDS
from autotransfer.settings import Setting, field_names


def test_the_baseline_has_one_form() -> None:
    baseline = Setting()
    assert baseline == Setting(method=None, mode="conditional", strength=3)
    assert baseline == Setting(method="mmd", strength=0)
    assert baseline == Setting(method="mige", strength=0.0, estimator="stein")
    row = baseline.as_row()
    assert row["method"] == row["mode"] == row["strength"] == "none"
    assert baseline.name == "paper_network"
    assert baseline.batches == "shuffled"


def test_fields_that_a_method_does_not_read_do_not_tell_settings_apart() -> None:
    assert Setting(method="mmd", estimator="stein", variant="paper") == Setting(method="mmd")
    assert Setting(method="mmd", length_scale=2) == Setting(method="mmd", length_scale=2.0)
    assert Setting(method="pairwise_mmd", pairs="all", size=3) == Setting(method="pairwise_mmd")
    assert Setting(method="mmd", mode="conditional").batches == "balanced"
    assert Setting(method="mmd").batches == "people"
    assert hash(Setting(method="mmd", strength=1)) == hash(Setting(method="mmd", strength=1.0))


@pytest.mark.parametrize(
    "arguments",
    [
        {"strength": "1"}, {"max_epochs": 2.5}, {"max_epochs": True}, {"weight_decay": float("nan")}, {"method": "gan"},
        {"method": "mmd", "length_scale": -1.0}, {"method": "pairwise_mmd", "pairs": "some"}, {"dropout": 1.0},
        {"method": "mmd", "strength": -1}, {"method": "mmd", "strength": float("nan")}, {"standardize": "zscore"},
        {"schedule": "cosine"}, {"checkpoint": None}, {"lr": 0},
    ],
)  # fmt: skip
def test_impossible_values_are_named(arguments: dict[str, object]) -> None:
    *_, (name, value) = arguments.items()
    with pytest.raises(UserError) as error:
        Setting(**arguments)
    assert name in str(error.value)
    assert repr(value) in str(error.value)


def test_json_round_trip_and_key() -> None:
    for setting in at.grid("quick"):
        assert Setting.from_json(setting.to_json()) == setting
    with pytest.raises(UserError, match="unknown field 'speed'"):
        Setting.from_json('{"speed": 3}')


def test_numpy_values_switch_transforms_on_and_off() -> None:
    assert Setting(standardize="train", append_scale=np.False_) == Setting(standardize="train")
    on = Setting(standardize="train", append_scale=np.True_, amplitude=np.float32(0.5))
    assert on == Setting(standardize="train", append_scale=True, amplitude=0.5)
    assert Setting.from_json(on.to_json()) == on
    with pytest.raises(UserError, match="amplitude is 0"):
        Setting(amplitude=0)


def test_unknown_keywords_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"no field 'strenght'.*did you mean 'strength'"):
        Setting(method="mmd", strenght=0.3)
    with pytest.raises(UserError, match="log_power has no effect with encoder"):
        Setting(encoder="mine", log_power=True)


def test_parts_can_be_read_and_replaced_as_a_whole() -> None:
    setting = Setting(method="mmd", mode="conditional", strength=0.3, lr=0.01, align="online")
    assert setting.penalty.options.length_scale == setting.length_scale == "median"
    assert setting.training.lr == setting.lr == 0.01
    assert setting.estimator is None, "a field that plays no role"
    assert (Setting().shuffle_subjects, Setting().warm_up) == (False, 0)
    assert setting.replace(preprocessing=Setting().preprocessing) == setting.replace(align="none")
    assert replace(setting, strength=3) == Setting(
        method="mmd", mode="conditional", strength=3.0, lr=0.01, align="online"
    )
    assert replace(setting, method="adversary").penalty.options == Setting(method="adversary").penalty.options
    with pytest.raises(AttributeError):
        setting.speed  # noqa: B018
    assert pickle.loads(pickle.dumps(setting)) == setting


def test_no_two_parts_share_a_keyword() -> None:
    """They are written side by side, so a name must mean one thing; censors may share theirs among themselves."""
    from autotransfer.augment import AUGMENTATIONS
    from autotransfer.model.encoders import ENCODERS
    from autotransfer.preprocessing import TRANSFORMS
    from autotransfer.settings import Penalty, Training

    rooms = [
        {f.name for kind in CENSORS.values() for f in fields(kind.Options)} | {f.name for f in fields(Penalty)},
        {f.name for kind in ENCODERS.values() for f in fields(kind)} | {"encoder"},
        {f.name for f in fields(Training)},
        *({name, *(f.name for f in fields(kind)[1:])} for name, kind in {**TRANSFORMS, **AUGMENTATIONS}.items()),
    ]
    assert len(set.union(*rooms)) == sum(map(len, rooms))


def test_patience_has_no_effect_if_the_last_epoch_is_kept() -> None:
    assert Setting(checkpoint="last", patience=3) == Setting(checkpoint="last")
    assert Setting(checkpoint="last", patience=3).key == Setting(checkpoint="last").key
    assert (Setting(checkpoint="last", patience=3).patience, Setting(patience=3).patience) == (None, 3)
    assert replace(Setting(patience=3), checkpoint="last").patience is None


def test_paper_grid() -> None:
    settings = at.grid("paper")
    assert len(settings) == 346
    count = {m: sum(s.method == m for s in settings) for m in {s.method for s in settings} - {None}}
    assert count == {"adversary": 15, "began": 15, "mmd": 15, "pairwise_mmd": 15, "mige": 3 * 5 * 19}
    assert {s.strength for s in settings if s.method == "mmd"} == {1, 3, 10, 30, 100}
    assert {s.strength for s in settings if s.method == "mige"} == {1, 0.3, 0.1, 0.03, 0.01}


@pytest.mark.parametrize("name", GRIDS)
def test_grids_begin_with_the_baseline_and_repeat_nothing(name: str) -> None:
    settings = at.grid(name)
    assert settings[0] == Setting()
    assert len({s.key for s in settings}) == len({s.name_relative_to(Setting()) for s in settings}) == len(settings)


def test_names_say_what_but_censoring_differs() -> None:
    plain = Setting(lr=0.01, standardize="train")
    assert plain.name_relative_to(plain) == "paper_network"
    assert Setting(method="mmd", lr=0.01, standardize="train").name_relative_to(plain) == "mmd marginal 1 median"
    other = Setting(lr=0.01, align="online", batches="balanced")
    assert other.name_relative_to(plain) == "paper_network with standardize trial, align online, batches balanced"
    steady = replace(plain, schedule="constant", checkpoint="last")
    assert steady.name_relative_to(plain) == "paper_network with schedule constant, checkpoint last"
    assert plain.name_relative_to(steady) == "paper_network with schedule inverse_sqrt, checkpoint best"
    late = Setting(method="mmd", lr=0.01, standardize="train", warm_up=5, batches="shuffled")
    assert late.name_relative_to(plain) == "mmd marginal 1 median warm_up 5 with batches shuffled"
    rhythms = {"encoder": "linear", "standardize": "none", "represent": "rhythms", "constants": (13.0, 26.0)}
    assert Setting(**rhythms, sfreq=128.0).name_relative_to(plain) == "rhythms", "the recordings say the rest"
    slow, fast = (Setting(**rhythms, sfreq=rate) for rate in (128.0, 256.0))
    assert slow.name_relative_to(fast) == "paper_network with sfreq 128.0", "unless it is all that differs"


@pytest.mark.parametrize(
    ("standardize", "align", "adaptation"),
    [("trial", "none", "none"), ("train", "none", "none"), ("online", "none", "online"),
     ("trial", "online", "online"), ("transductive", "none", "transductive"), ("none", "transductive", "transductive"),
     ("online", "transductive", "transductive"), ("transductive", "online", "transductive")],
)  # fmt: skip
def test_adaptation(standardize: str, align: str, adaptation: str) -> None:
    assert Setting(standardize=standardize, align=align).adaptation == adaptation


def test_every_field_reaches_the_key() -> None:
    """A number that changes an outcome but not the key would let a database confuse two fits."""
    base = Setting(method="pairwise_mmd", pairs="clique", size=2)
    changes = {"temporal_filters": 4, "spatial_depth": 1, "latent_filters": 8, "temporal_kernel": 9, "dropout": 0.1,
               "standardize": "transductive", "batches": "shuffled", "batch_size": 32, "lr": 0.1,
               "align": "online", "warm_up": 2, "schedule": "constant", "checkpoint": "last",
               "weight_decay": 0.5, "max_epochs": 7, "patience": 3, "shuffle_subjects": True}  # fmt: skip
    assert set(changes) <= set(field_names())
    for name, value in changes.items():
        assert Setting(method="pairwise_mmd", pairs="clique", size=2, **{name: value}).key != base.key, name


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"lr": []}', '{"color": 1}', "[" * 100_000])
def test_invalid_json_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as found:
        at.Setting.from_json(text)
    assert "\n" not in str(found.value)
