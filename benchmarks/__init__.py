"""Measure timings as ratios within one run with python -m benchmarks."""

import autotransfer  # noqa: F401  before torch, because it sets the options of torch's allocator
