"""Timings, as ratios measured side by side in one run: python -m benchmarks."""

import autotransfer  # noqa: F401  before torch, whose allocator is told by it to keep memory
