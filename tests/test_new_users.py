"""Ten new users' tasks, from an empty folder and the wheel; see new_users.py."""

from __future__ import annotations

import time
from importlib.util import find_spec

import pytest

from browser import find_chromium
from new_users import TASKS, User

INSTALL, *OTHERS = TASKS


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Somebody with an empty folder who has installed the wheel and made a run of their own files."""
    home = User(tmp_path_factory.mktemp("new") / "user")
    for name in (INSTALL, "a folder of my own CSV files"):
        do(name, home)
    return home


def do(name: str, user: User) -> None:
    start = time.perf_counter()
    TASKS[name].do(user)
    print(f"{time.perf_counter() - start:6.1f} s  {name}")


def test_there_are_nine() -> None:
    assert len(TASKS) == 9


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OTHERS if "CSV" not in name])
def test_a_new_user_succeeds(name: str, user: User) -> None:
    for package in TASKS[name].needs:
        if find_spec(package) is None:
            pytest.skip(f"{name} needs {package}")
    if "browser" in name and find_chromium() is None:
        pytest.skip("no Chromium here")
    do(name, user)


@pytest.mark.slow
def test_the_wheel_is_enough_for_a_first_run(user: User) -> None:
    assert (user.home / "csv-run" / "report.html").exists()
