"""The device of tests of Triton kernels, which are skipped if there is neither a GPU nor Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton, which comes with torch for GPUs", allow_module_level=True)
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or Triton's interpreter (TRITON_INTERPRET=1)", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def seed_draws() -> None:
    torch.manual_seed(0)
