"""Work on a GPU captured once as a CUDA graph, so that repeating it is a single call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")

WARM_UP = 3  # libraries allocate their workspaces in the first calls, which a capture must not contain


def capture(
    work: Callable[[], Result], before: Callable[[], None] = lambda: None
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of `work`, and its result, whose tensors every replay fills.

    Runs the work a few times; `before` is called before each run and before the capture, to undo changes.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            before()
            work()
    torch.cuda.current_stream().wait_stream(side)
    before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result
