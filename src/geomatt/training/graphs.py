"""A training step on a GPU captured as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from geomatt.model.graphs import capture


class StepGraphs:
    """The captured graphs of a step that takes an index, one for each shape of it."""

    def __init__(self) -> None:
        self._graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def replay(self, step: Callable[[Tensor], None], index: Tensor, changed: Iterable[Tensor]) -> None:
        """Do `step(index)`. Capturing runs the step, so the tensors it changes are put back first."""
        if index.shape not in self._graphs:
            static = index.clone(memory_format=torch.contiguous_format)
            before = [(value, value.clone()) for value in changed]
            graph, _ = capture(lambda: step(static))
            for value, kept in before:
                value.copy_(kept)
            self._graphs[index.shape] = graph, static
        graph, static = self._graphs[index.shape]
        static.copy_(index)
        graph.replay()
