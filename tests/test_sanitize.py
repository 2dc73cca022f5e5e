"""A few cases of tests/sanitizing.py run under sanitizers, which notice injected errors.

What must be noticed is noticed: a buffer that is one element short, a race, a division by zero.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from autotransfer import cpu
from sanitizing import COMPILER, SANITIZERS, Caught, Driver, build, drive, driven_by, machines, run_case

pytestmark = pytest.mark.skipif(os.name != "posix" or shutil.which(COMPILER[0]) is None, reason="no C compiler here")
slow = pytest.mark.slow
SECONDS = float(os.environ.get("AUTOTRANSFER_SANITIZE", "10"))  # for each build
WIDEST = list(machines())[-1]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Driver]]:
    """A driver for a machine with a sanitizer, each compiled once; skips where there is no such sanitizer."""
    folder, built, drivers = tmp_path_factory.mktemp("sanitize"), dict[tuple[str, str], Path](), list[Driver]()

    def start(machine: str, sanitizer: str) -> Driver:
        try:
            if (machine, sanitizer) not in built:
                built[machine, sanitizer] = build(folder, machine, sanitizer)
            driver = Driver(built[machine, sanitizer])
            driver.call("outside", 1, 0, bytes(24), [])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"the compiler has no such sanitizer: {error.stderr.decode(errors='replace')[-200:]}")
        except Caught as error:  # such as addresses that the system chooses more randomly than a sanitizer can bear
            pytest.skip(f"the sanitizer does not run here: {error}")
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        driver.end()


@pytest.mark.parametrize(
    ("machine", "sanitizer", "seconds"),
    [
        (WIDEST, "memory", 0.0),
        *(pytest.param(machine, sanitizer, SECONDS, marks=slow) for machine in machines() for sanitizer in SANITIZERS),
    ],
)
def test_kernels_stay_within_their_buffers_and_threads_apart(
    started: Callable[[str, str], Driver], machine: str, sanitizer: str, seconds: float, campaign: Callable[..., None]
) -> None:
    """A case is lost if a sanitizer reports it, and silently wrong if its result differs from plain torch."""
    tried, noticed = drive(started(machine, sanitizer), seconds)
    print(*noticed, sep="\n")
    silent = sum("away from plain torch" in one for one in noticed)
    campaign("sanitizers", tried, len(noticed) - silent, silent)


@slow
def test_a_buffer_that_is_one_element_short_is_noticed(started: Callable[[str, str], Driver]) -> None:
    """The driver sees what preloading a sanitizer would not."""
    driver = started(WIDEST, "memory")
    driver.short = "filter_times", 0
    with driven_by(driver), pytest.raises(Caught, match="ERROR: AddressSanitizer"):
        _ = [run_case("filters", seed) for seed in range(30)]


@slow
def test_a_race_is_noticed(started: Callable[[str, str], Driver]) -> None:
    """Members that all write where the first one does."""
    members, rows, inner, columns = 16, 4, 8, 4096
    tensors = (
        torch.zeros(members, rows, inner), torch.zeros(1, inner, columns), torch.zeros(members, dtype=torch.int64),
        torch.zeros(members, dtype=torch.int64), torch.zeros(members, rows, columns),
    )  # fmt: skip
    task = cpu._Product(members=members, rows=rows, inner=inner, columns=columns, per_item=1)
    places = [(8 * number, tensor) for number, tensor in enumerate(tensors)]  # a, b, group, order, out
    driver = started(WIDEST, "threads")
    with pytest.raises(Caught, match="data race"):
        driver.call("product", 4, members, bytes(task), places)


@slow
def test_undefined_behavior_is_noticed(started: Callable[[str, str], Driver]) -> None:
    task = cpu._NormPool(features=1, batch=1, times=4, pool=0)
    with pytest.raises(Caught, match="division by zero"):
        started(WIDEST, "memory").call("norm_pool_forward", 1, 1, bytes(task), [])
