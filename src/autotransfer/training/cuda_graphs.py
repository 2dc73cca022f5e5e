"""CUDA graphs of training steps on a GPU. On a CPU the functions are called directly.

A training step of a small network has hundreds of kernels of a few microseconds each. If Python launches the kernels
one by one, the GPU waits for Python. A graph launches all kernels at once.
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
N_WARM_UP = 2  # number of calls before the capture, in which libraries allocate memory and compilers run


class GraphFunction:
    """Function without arguments, which is captured in a CUDA graph if `uses_graph`.

    The function must use the same tensors in every call and never wait for the device.
    """

    def __init__(self, function: Callable[[], None], *, uses_graph: bool) -> None:
        # A strong reference to the object of a bound method would make a cycle, which delays the release of memory.
        self._reference: Callable[[], Callable[[], None] | None]
        self._reference = weakref.WeakMethod(function) if ismethod(function) else lambda: function
        self.uses_graph = uses_graph
        self.n_calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif not self.uses_graph:
            self.call()
        elif self.n_calls < N_WARM_UP:
            self.n_calls += 1
            self._run_on_side_stream()
        else:
            self._capture()

    def call(self) -> None:
        """Call the function without the graph."""
        function = self._reference()
        assert function is not None
        function()

    def discard_graph(self) -> None:
        """Discard the graph, whose tensors have changed. A later call captures the graph again."""
        self.graph, self.n_calls = None, 0

    def _run_on_side_stream(self) -> None:
        """Call the function on a separate stream, as a capture does."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            self.call()
        current.wait_stream(stream)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.call()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            # A user's encoder may call functions that cannot be captured. A failed capture has computed nothing.
            warnings.warn(f"training runs without CUDA graphs, slower: {str(error).splitlines()[0]}", stacklevel=2)
            self.uses_graph = False
            torch.cuda.synchronize()
            self.call()
            return
        self.graph = graph
        graph.replay()


class ParallelStreams:
    """CUDA streams on which independent functions run in parallel, because small kernels leave most of a GPU idle.

    On other devices the functions run one after the other.
    """

    MAX_STREAMS = 8

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams: list[torch.cuda.Stream] = []

    def __call__(self, functions: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results of the functions in order, for use on the current stream."""
        if self.device.type != "cuda" or len(functions) < 2:
            return [function() for function in functions]
        while len(self.streams) < min(len(functions), self.MAX_STREAMS):
            self.streams.append(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self.device)
        # Critics are not trained on the stream on which they were created. Autograd synchronizes both streams.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        results = []
        for stream in self.streams:
            stream.wait_stream(current)
        for index, function in enumerate(functions):
            with torch.cuda.stream(self.streams[index % len(self.streams)]):
                results.append(function())
        for stream in self.streams:
            current.wait_stream(stream)
        return results


@contextmanager
def allow_tf32(device: torch.device) -> Iterator[None]:
    """Allow TF32 in matrix products on a GPU inside this context, as torch does in convolutions."""
    if device.type != "cuda":
        yield
        return
    previous = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = previous
