"""Work on tensors that stay in place, run as it is on a CPU and replayed from a CUDA graph on a GPU.

A training step of small networks is hundreds of kernels of a few microseconds each. Launched one by one they wait
for Python; a graph launches them all at once.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import ismethod
from typing import TypeVar

import torch

from .memory import is_out_of_memory

T = TypeVar("T")
WARM_UP = 2  # runs before the capture: libraries allocate what they need, compilers compile


class Program:
    """`work` must read and write the same tensors every time and never wait for the device."""

    def __init__(self, work: Callable[[], None], *, captured: bool) -> None:
        # A method's owner holds this program. A reference back would keep both, and a graph's memory, until the
        # collector comes.
        self._work: Callable[[], Callable[[], None] | None]
        self._work = weakref.WeakMethod(work) if ismethod(work) else lambda: work
        self.captured = captured
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif not self.captured:
            self.work()
        elif self.runs < WARM_UP:
            self.runs += 1
            self._beside()
        else:
            self._capture()

    def work(self) -> None:
        work = self._work()
        assert work is not None
        work()

    def forget(self) -> None:
        """Free the graph's memory and capture again at the next run, because the tensors have changed."""
        self.graph, self.runs = None, 0

    def _beside(self) -> None:
        """Run on a stream of its own, as a capture would."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        here = torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            self.work()
        here.wait_stream(stream)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.work()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            # A user's encoder may do what no graph can hold. Nothing was run, so nothing is lost but speed.
            warnings.warn(f"steps are launched one by one: {str(error).splitlines()[0]}", stacklevel=2)
            self.captured = False
            torch.cuda.synchronize()
            self.work()
            return
        self.graph = graph
        graph.replay()


class Branches:
    """Independent works side by side on a GPU, each on a stream of its own; elsewhere one after the other.

    The kernels of a small work leave most of the device idle and still take their few microseconds each.
    """

    STREAMS = 8

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams: list[torch.cuda.Stream] = []

    def __call__(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results in order; they may be used on the present stream."""
        if self.device.type != "cuda" or len(works) < 2:
            return [work() for work in works]
        while len(self.streams) < min(len(works), self.STREAMS):
            self.streams.append(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
        here = torch.cuda.current_stream(self.device)
        # Critics were made on another stream than the one that trains them; autograd waits where it must.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        results = []
        for stream in self.streams:
            stream.wait_stream(here)
        for number, work in enumerate(works):
            with torch.cuda.stream(self.streams[number % len(self.streams)]):
                results.append(work())
        for stream in self.streams:
            here.wait_stream(stream)
        return results


@contextmanager
def allow_tf32(device: torch.device) -> Iterator[None]:
    """Compute matrix products inside this context with factors rounded to 10 bits (TF32), as torch's own convolutions
    on a GPU have them."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
