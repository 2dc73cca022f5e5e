"""What a run chose, for whom, by which rule and with which scores: choice.json, checked when it is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import schema
from ..errors import UserError
from ..preprocessing import TRANSFORMS
from ..settings import Setting

Scores = dict[str, float]  # by subject or by the name of a setting


@dataclass(frozen=True)
class Named:
    """A setting and the name that it has in a run, unique there."""

    name: str
    setting: Setting

    def to_dict(self) -> dict[str, Any]:
        """Every field that a setting can have, flat, for readers of choice.json."""
        return {"name": self.name} | self.setting.as_row()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Named:
        fields = {k: v for k, v in values.items() if k != "name" and (v != "none" or k in TRANSFORMS)}
        if not isinstance(values.get("name"), str):
            raise UserError(f"invalid value for name: {values.get('name')!r}")
        return cls(values["name"], Setting.from_dict(fields))


@dataclass(frozen=True)
class Compared:
    """How the plain network did on validation subjects with one preprocessing and way of training."""

    setting: Named
    validation_q25: float
    validation_mean: float
    kept: bool  # censors were tried on it, for everybody or for somebody


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Roles: `chosen` for everybody; `baseline`, the plain network; `best_uncensored`; `two_se`, the best of the plain
    network and of what is clearly ahead of it. Scores are balanced accuracies on test subjects."""

    chosen: Named
    baseline: Named
    best_uncensored: Named
    two_se: Named
    baseline_won: bool
    shortlist: list[Named]  # the settings that were trained on every fold
    validation_q25: Scores  # by name of a candidate: lower quartile over validation subjects
    validation_mean: Scores
    test_scores: dict[str, Scores]  # by role: single networks, as published
    nested_test_scores: Scores  # chosen again for each subject without their validation scores
    nested_uncensored_test_scores: Scores  # the same among uncensored settings alone
    nested_two_se_test_scores: Scores
    nested_choices: dict[str, str]  # subject -> name
    delivered_test_scores: dict[str, Scores]  # by role, and "nested", …: ensembles of what never saw the subject
    transductive: bool
    adaptation: str  # of the chosen setting
    nested_adaptations: dict[str, str]
    lead: float | None = None  # standard errors by which a setting must be ahead of the plain network
    preprocessings: list[Compared] = field(default_factory=list)
    nested_full_choices: dict[str, str] = field(default_factory=dict)
    nested_full_test_scores: Scores = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables = [self.validation_q25, self.validation_mean, self.nested_test_scores, self.nested_full_test_scores]
        tables += [self.nested_uncensored_test_scores, self.nested_two_se_test_scores]
        tables += [*self.test_scores.values(), *self.delivered_test_scores.values()]
        values = [value for table in tables for value in table.values()]
        if not all(math.isnan(value) or value == -math.inf or 0 <= value <= 1 for value in values):
            raise UserError("a score lies outside [0, 1]")
        for role in ("chosen", "baseline"):
            if not self.test_scores.get(role):
                raise UserError(f"test_scores has nothing for {role!r}")
        if not self.nested_test_scores:
            raise UserError("nested_test_scores is empty")

    @property
    def censor_tried(self) -> bool:
        return any(one.setting.penalty is not None for one in self.shortlist)

    @property
    def settings(self) -> dict[str, Setting]:
        """By name: everything that was a candidate, or compared before."""
        named = [*self.shortlist, *(one.setting for one in self.preprocessings)]
        return {one.name: one.setting for one in named}


def read_choice(folder: Path) -> Choice:
    """choice.json of a finished run, which lies in the open and may have been edited."""
    path = folder / "choice.json"
    try:
        return schema.from_json(Choice, path.read_text(encoding="utf-8", errors="replace"))
    except UserError as error:
        raise UserError(
            f"{path} is damaged ({error}); remove it, then make it again with: autotransfer resume {folder}"
        ) from None
