"""CUDA graphs of training steps on a GPU; on a CPU the same functions run directly.

A training step of small networks is hundreds of kernels of a few microseconds each. Launched one by one they wait
for Python. A graph launches all of them at once.
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
WARM_UP = 2  # runs before the capture, in which libraries allocate memory and compilers run


class Program:
    """Function without arguments, captured in a CUDA graph if `captured`.

    `work` must use the same tensors in every call and never wait for the device.
    """

    def __init__(self, work: Callable[[], None], *, captured: bool) -> None:
        # Weak, because a method's owner holds this program: a cycle would keep a graph's memory until it is collected.
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
            self._run_on_side_stream()
        else:
            self._capture()

    def work(self) -> None:
        """Call the function directly."""
        work = self._work()
        assert work is not None
        work()

    def forget(self) -> None:
        """Discard the graph, because its tensors have changed. It is captured again at a later call."""
        self.graph, self.runs = None, 0

    def _run_on_side_stream(self) -> None:
        """Run on a separate stream, as a capture does."""
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
            # A user's encoder may call functions that a graph cannot hold. A failed capture has run nothing.
            warnings.warn(f"training runs without CUDA graphs, slower: {str(error).splitlines()[0]}", stacklevel=2)
            self.captured = False
            torch.cuda.synchronize()
            self.work()
            return
        self.graph = graph
        graph.replay()


class ParallelStreams:
    """Parallel streams for independent functions on a GPU; other devices call them one after the other.

    Small kernels leave most of the device idle.
    """

    STREAMS = 8

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams: list[torch.cuda.Stream] = []

    def __call__(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results in order. They can be used on the current stream."""
        if self.device.type != "cuda" or len(works) < 2:
            return [work() for work in works]
        while len(self.streams) < min(len(works), self.STREAMS):
            self.streams.append(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
        here = torch.cuda.current_stream(self.device)
        # Critics were created on another stream than the one that trains them. Autograd synchronizes both.
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
    """Allow TF32 in matrix products on a GPU inside this context, as torch does in convolutions."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
