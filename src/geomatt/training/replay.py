"""A step on the GPU captured once as a CUDA graph and replayed: the host's work for it is one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

WARM_UP = 3  # libraries allocate their workspaces in the first calls, which a capture must not see


class StepGraphs:
    """The captured graphs of a step that takes an index, one for each shape of it."""

    def __init__(self) -> None:
        self._graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def replay(self, step: Callable[[Tensor], None], index: Tensor, changed: Iterable[Tensor]) -> None:
        """`step(index)`. Capturing runs the step, so the tensors it changes are put back before it counts."""
        if index.shape not in self._graphs:
            self._graphs[index.shape] = _capture(step, index, list(changed))
        graph, static = self._graphs[index.shape]
        static.copy_(index)
        graph.replay()


def _capture(
    step: Callable[[Tensor], None], index: Tensor, changed: list[Tensor]
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    static = index.clone(memory_format=torch.contiguous_format)
    kept = [value.clone() for value in changed]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(static)
    for value, before in zip(changed, kept, strict=True):
        value.copy_(before)
    return graph, static
