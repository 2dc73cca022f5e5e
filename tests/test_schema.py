"""Stored values are read as written, and other contents are refused in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer import schema
from autotransfer.augment import AUGMENTATIONS
from autotransfer.errors import UserError
from autotransfer.grids import GRIDS
from autotransfer.jobs import CURVES, Record
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.runs.choice import Calibration, Choice, EnsembleWeights, NamedSetting, WeightedCandidate
from autotransfer.runs.options import RunOptions
from autotransfer.settings import Training, field_names
from mutations import twisted
from tiny import described

OPTIONS = described(source="here.npz", search="tpe", max_epochs=7, lr=1e-2, patience=2, seeds=3)
RICH = at.Setting(
    method="mige", mode="complementary", strength=0.1, estimator="nu_method", warm_up=3, shuffle_subjects=True,
    standardize="train", align="online", append_scale=True, log_power=True, amplitude=0.2,
    channel_mask=0.1, schedule="constant", checkpoint="last", max_epochs=9,
)  # fmt: skip


def record(*, swapped: Record | None = None, **changes: Any) -> Record:
    usual: dict[str, Any] = {
        "best_epoch": 2, "epochs": 3, "validation_score": 0.75, "test_score": math.nan,
        "validation_confusion": np.array([[3, 1], [0, 4]]), "test_confusion": np.zeros((2, 2), np.int64),
        "history": {name: [0.5, math.inf, math.nan] for name in CURVES}, "seconds": 1.5, "population": 4,
        "failure": "the loss became nan", "swapped": swapped,
    }  # fmt: skip
    return Record(**usual | changes)


ENSEMBLE = EnsembleWeights(
    candidates=[WeightedCandidate("rich", "eegnet", 0.7, 0.5), WeightedCandidate("lines", "features", 0.3, 0.2)],
    nested={"ann": {"rich": 1.0}, "bo": {"rich": 0.5, "lines": 0.5}},
)


def ensemble_with(**changes: Any) -> dict[str, Any]:
    """Return the ensemble as choice.json has it."""
    return schema.to_values(ENSEMBLE) | changes


def choice(**changes: Any) -> Choice:
    plain, rich = NamedSetting("paper_network", at.Setting()), NamedSetting("rich", RICH)
    scores = {"ann": 0.5, "bo": 1.0}
    usual: dict[str, Any] = {
        "chosen": rich, "paper_network": plain, "best_uncensored": plain, "adaptation": "online",
        "shortlist": [plain, rich], "validation_q25": {"paper_network": 0.5, "rich": -math.inf},
        "validation_mean": {"paper_network": 0.5, "rich": math.nan},
        "test_scores": dict.fromkeys(("chosen", "paper_network"), scores), "nested_test_scores": scores,
        "nested_choices": {"ann": "rich", "bo": "paper_network"},
        "nested_uncensored_choices": {"ann": "paper_network", "bo": "paper_network"},
        "alternatives": {"best_single": {"ann": 0.5, "bo": math.nan}, "equal_weights": scores},
        "calibration": Calibration([0.4, 0.9], [0.5, 0.8], [0.25, 0.75], 0.05, 0.1),
        "ensemble": ENSEMBLE,
    }  # fmt: skip
    return Choice(**usual | changes)


KINDS: dict[str, tuple[Any, Any]] = {
    "record": (Record, record(swapped=record(failure=None))),
    "choice": (Choice, choice()),
    "options": (RunOptions, OPTIONS),
    "setting": (at.Setting, RICH),
    "versions": (list[dict[str, str]], [{"torch": "2"}]),
}


@pytest.mark.parametrize("name", KINDS)
def test_records_read_back_as_they_were_written(name: str) -> None:
    kind, value = KINDS[name]
    text = schema.to_json(value)
    again = schema.from_json(kind, text)
    assert type(again) is type(value)
    assert schema.to_json(again) == text
    if name != "record":  # arrays and NaN are not equal to themselves
        assert again == value or name == "choice"
    else:
        assert again.swapped.failure is None
        assert again.validation_confusion.dtype == np.int64
        np.testing.assert_array_equal(again.validation_confusion, value.validation_confusion)


HUGE = 10**399
ODD: tuple[Any, ...] = (
    HUGE, -HUGE, 2**63, 2**53 + 1, -1, 0, 1, True, None, 5.0, -0.0, 1e308, 1e-320, math.nan, math.inf, -math.inf, "",
    "none", "nan", "a\nb", "\ud800", "x" * 9000, [], {}, [[]], [None], {"a\nb": 1}, [[1, 2], [3]], [[1.5]], [[HUGE]],
)  # fmt: skip
BROKEN = ("", "{", "nul", "[" * 10**5, '{"swapped":' * 10**4, "[" * 500 + "]" * 500, "9" * 5000, "\x00", '"\ud800"')


def outcome(kind: Any, text: str) -> str:
    """'read' or 'refused'; anything else is raised."""
    try:
        found = schema.from_json(kind, text)
    except UserError as error:
        message = str(error)
        if message.isprintable() and 0 < len(message) < 1000:
            return "refused"
        raise
    written = schema.to_json(found)
    assert schema.to_json(schema.from_json(kind, written)) == written
    return "read"


@pytest.mark.parametrize("name", KINDS)
def test_any_content_is_read_or_refused_in_one_line(name: str) -> None:
    kind, value = KINDS[name]
    values = json.loads(schema.to_json(value))
    draw = random.Random(name)
    found = Counter(outcome(kind, json.dumps(twisted(values, draw, ODD))) for _ in range(60))
    assert found["refused"] > 6
    assert {outcome(kind, text) for text in BROKEN} == {"refused"}
    for odd in ODD:
        outcome(kind, json.dumps(odd))
        for field in values if isinstance(values, dict) else ():
            outcome(kind, json.dumps(values | {field: odd}))


@pytest.mark.parametrize("depth", [3, 50, 300, 900])
def test_records_in_records_are_refused(depth: int) -> None:
    values = json.loads(schema.to_json(record()))
    assert outcome(Record, json.dumps(values | {"swapped": values})) == "read"
    one = json.dumps({name: value for name, value in values.items() if name != "swapped"})[:-1] + ', "swapped": '
    assert outcome(Record, one * depth + "null" + "}" * depth) == "refused"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("best_uncensored", 5.0, "best_uncensored"),
        ("test_scores", {"chosen": {"ann": 0.5}}, "test_scores"),
        ("nested_test_scores", {}, "empty"),
        ("validation_q25", {"a": 1.5}, "outside"),
        ("validation_q25", {"a": HUGE}, "validation_q25.a"),
        ("validation_q25", {"a": True}, "validation_q25.a"),
        ("validation_q25", 0.5, "validation_q25"),
        ("ensemble", 0.5, "ensemble"),
        ("ensemble", ensemble_with(candidates=[{"name": "x", "family": "eegnet", "share": 1.0}]), "weight is missing"),
        ("ensemble", ensemble_with(candidates=[]), "weights"),
        ("ensemble", ensemble_with(nested={"ann": {"rich": math.inf}}), "weights"),
        ("alternatives", {"best_single": {"ann": 2.0}}, "outside"),
        ("two_se", {"name": "x"}, "two_se"),
        ("shortlist", ["paper_network"], "shortlist"),
        ("surprise", 1, "surprise"),
    ],
)
def test_a_wrong_choice_names_the_field(field: str, value: object, words: str) -> None:
    values = schema.to_values(choice()) | {field: value}
    with pytest.raises(UserError, match=words):
        schema.from_json(Choice, json.dumps(values))


# names

METHODS = [
    at.Setting(method=method, **options)
    for method, options in (
        ("adversary", {}), ("began", {}), ("mmd", {}), ("mige", {}), ("pairwise_mmd", {}),
        ("pairwise_mmd", {"pairs": "bernoulli"}), ("pairwise_mmd", {"pairs": "clique"}),
    )
]  # fmt: skip
POOL: list[Any] = [
    True, False, 1, 2, 3, 7, 64, 0.1, 0.2, 0.3, 0.5, 1.5, 10.0, "none", "trial", "train", "online", "transductive",
    "balanced", "people", "shuffled", "constant", "inverse_sqrt", "best", "last", "half", "median", "perplexity",
    "stein", "ssge", "nu_method", "all", "bernoulli", "clique", "labelled", "paper", "marginal", "conditional",
    "complementary", "adversary", "began", "mmd", "mige", "pairwise_mmd", "my_encoder", "your_encoder", "features",
    "tangent", "auto",
]  # fmt: skip


def one_change(setting: at.Setting, field: str) -> list[at.Setting]:
    """The setting with this field changed in every way that it can be."""
    own = getattr(setting, field)
    near = [own * (1 + 1e-12), own / 3] if isinstance(own, float) else []
    found = []
    for value in [*POOL, *near]:
        with contextlib.suppress(UserError):
            found.append(setting.replace(**{field: value}))
    return [other for other in found if getattr(other, field) != own]


@pytest.mark.slow
def test_settings_that_differ_have_names_that_differ() -> None:
    """Tables and choices go by name. What follows from the recordings is the same in all settings of a run."""
    options, follows = described(source="x", batch_size=64, lr=0.1), {"sfreq", "constants"}
    settings = {options.apply(setting) for name in GRIDS for setting in at.grid(name)}
    tried = set()
    bases = [options.apply(setting) for setting in (at.Setting(), *METHODS, RICH)]
    delayed = {"standardize": "none", "delays": 2, "represent": "features", "center": "online"}
    solved = [at.Setting(encoder="linear", **delayed), at.Setting(encoder="templates", standardize="train")]
    solved += [at.Setting(encoder="trees", standardize="none")]
    solved += [
        at.Setting(encoder="linear", represent=name, sfreq=100.0, constants=(1.0, 2.0))
        for name, kind in REPRESENTATIONS.items() if kind.required_fields
    ]  # fmt: skip
    elsewhere = {field.name for field in dataclasses.fields(Training)} | set(AUGMENTATIONS) | set(TRANSFORMS)
    for base in [*bases, bases[0].replace(encoder="shallow"), *solved]:
        # What has nothing to do with a penalty is changed with the first and the richest of them.
        changed = set(field_names()) - follows - (elsewhere if base in bases[1:-1] else set())
        for field in sorted(changed):
            others = one_change(base, field)
            settings.update([base, *others])
            tried |= {field} if others else set()
    assert tried == set(field_names()) - follows, "every field must have been changed"
    names: dict[str, at.Setting] = {}
    for setting in settings:
        other = names.setdefault(options.name_of(setting), setting)
        assert other == setting, f"{options.name_of(setting)!r} is {other} and {setting}"
