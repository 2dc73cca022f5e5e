"""Paths of the real recordings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NAMES = ("ecg_mitbih", "eeg_smni", "eeg_ssvep_exo", "emg_longterm", "emg_myo_readings", "wear_stress")
QUICK = ("eeg_ssvep_exo", "emg_longterm")


def real_file(name: str) -> Path:
    """The .npz of that name in $AUTOTRANSFER_DATA, or in ../shared/data; the test is skipped without it."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    file = Path(os.environ.get("AUTOTRANSFER_DATA", beside)) / f"{name}.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not here; set AUTOTRANSFER_DATA to the folder that holds it")
    return file
