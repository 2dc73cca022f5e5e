"""The benchmark of one change at a time: what is compared with what, and that nothing is trained twice."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest
from benchmarks import one_change
from benchmarks.changes import changes_table, gains_of

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.recordings import save_npz
from tiny import tiny


def test_penalties_are_compared_in_their_own_batches() -> None:
    changes = one_change.changes_of(tiny(), one_change.PARTS, epochs=2)
    by_name = {change.name: change for change in changes}
    assert len(by_name) == len(changes)
    assert {change.setting.method for change in changes} == {None, *at.CENSORS}
    for change in changes:
        if not change.reference:
            continue
        reference = by_name[change.reference].setting
        if change.part == "preprocessing":
            assert change.setting.training == reference.training
            assert change.setting.standardise == "trial"
            assert not change.setting.append_scale
            assert not change.setting.log_power
        elif change.setting.penalty is None:
            assert reference.training.batches == "shuffled"
            assert change.setting.replace(augmentation=()) == reference
        else:
            assert change.setting.uncensored(change.setting.training.batches) == reference
    shuffled = [change for change in changes if change.part == "control"]
    assert shuffled
    assert all(change.setting.shuffle_subjects for change in shuffled)


def test_it_continues_and_its_table_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "tiny.npz"
    save_npz(source, tiny())
    monkeypatch.setattr(one_change, "AUGMENTATIONS", {"amplitude": AUGMENTATIONS["amplitude"]})
    names = [f"amplitude {value}" for value in AUGMENTATIONS["amplitude"].values_tried()]
    options = Namespace(
        files=[str(source)], out=tmp_path / "changes.csv", parts=["augmentations"], seeds=1, epochs=1, device="cpu"
    )
    one_change.run(options)
    table = pd.read_csv(options.out, dtype={"subject": str}, keep_default_na=False)
    people = {str(subject) for subject in tiny().subjects}
    assert set(table["change"]) == {"shuffled", "balanced", "people", *names}
    assert all(set(rows["subject"]) == people for _, rows in table.groupby("change"))
    one_change.run(options)
    assert len(pd.read_csv(options.out)) == len(table)
    table.loc[table["change"] == names[0], "score"] = 0.75
    table.loc[table["change"] == "shuffled", "score"] = 0.5
    (pair,) = gains_of(table, "augmentations")[names[0]].values()
    assert pair.mean == 0.25
    table.to_csv(options.out, index=False)
    assert f"| {names[0]} | {len(people)} | +0.250 |" in changes_table(tmp_path, "augmentations")
