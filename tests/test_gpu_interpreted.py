"""The tests of the Triton kernels in Triton's interpreter, where there is no GPU.

Triton reads TRITON_INTERPRET when it is imported, so the sample runs in processes of its own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

LEAST = {"test_gpu_elementwise.py": 6, "test_gpu_step.py": 5, "test_gpu_kernels.py": 15, "test_gpu_pairs.py": 30}


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton, which there is for Linux")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which all of these tests run")
@pytest.mark.slow
@pytest.mark.parametrize("name", LEAST)
def test_kernels_in_the_interpreter(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(Path(__file__).with_name(name))], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert int(passed[1]) >= LEAST[name], "tests are missing"
    assert "skipped" not in done.stdout
