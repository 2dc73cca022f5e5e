"""Benchmarks: timings (python -m benchmarks), baselines, and the tables of results (python -m benchmarks.results)."""

import autotransfer  # noqa: F401  is imported before torch, because it sets options of torch's allocator
