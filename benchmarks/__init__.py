"""Measure timings as ratios within one run with python -m benchmarks."""

import autotransfer  # noqa: F401  is imported before torch, because it sets options of torch's allocator
