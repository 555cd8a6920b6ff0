"""One network with fixed weights behind its engine; on a GPU its evaluations are replayed as CUDA graphs."""

from __future__ import annotations

from dataclasses import replace

import torch

from geomatt.data.batch import Batch
from geomatt.model.graphs import capture
from geomatt.model.interface import Evaluation, Network

GRAPHS = 4  # shapes of batches whose graphs are kept


class Evaluator:
    """Evaluates batches with a network's current weights.

    `keep` for many evaluations: tables of the weights are more accurate, and graphs are captured. The choice
    changes results by rounding errors only, but a simulation that is continued must make the same one.
    """

    def __init__(self, network: Network, *, keep: bool = False, engine: str = "auto") -> None:
        self.network, self.name, self.keep = network, engine, keep
        self.weights = [*network.parameters(), *network.buffers()]
        self.versions = self._versions()
        self.engine = network.engine(engine)
        self.prepared = self.engine.prepare(network.stacked(), keep=keep)
        self._graphs: dict[tuple[torch.Size, bool], _Graph] = {}

    def holds(self, network: Network, engine: str) -> bool:
        """True if it was made for this network and engine, and the weights have not changed since.

        Asked at every evaluation, so it is fast.
        """
        return network is self.network and engine == self.name and self._versions() == self.versions

    def _versions(self) -> list[tuple[int, int]]:
        return [(w.data_ptr(), w._version) for w in self.weights]

    def __call__(self, batch: Batch, *, forces: bool = True) -> Evaluation:
        """Evaluate structures (B, N). Results have a leading axis of one; later calls may overwrite them."""
        batch = batch.as_member()
        if not (self.keep and self.engine.capturable(batch)):
            return self.engine.evaluate(self.prepared, batch, forces=forces)
        key = (batch.numbers.shape, forces)
        if key not in self._graphs:
            self._graphs = dict(list(self._graphs.items())[1 - GRAPHS :])
            self._graphs[key] = _Graph(self, batch, forces)
        return self._graphs[key].replay(batch)


class _Graph:
    """An evaluation captured for one shape of batch."""

    def __init__(self, evaluator: Evaluator, batch: Batch, forces: bool) -> None:
        self.numbers, self.positions = batch.numbers.clone(), batch.positions.clone()
        static = Batch(self.numbers, self.positions)

        def evaluate() -> Evaluation:
            return evaluator.engine.evaluate(evaluator.prepared, static, forces=forces)

        self.graph, self.found = capture(evaluate)

    def replay(self, batch: Batch) -> Evaluation:
        self.numbers.copy_(batch.numbers)
        self.positions.copy_(batch.positions)
        self.graph.replay()
        return replace(self.found)
