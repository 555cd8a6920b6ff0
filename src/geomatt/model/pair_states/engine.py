"""The engine of pair states: chooses the fastest of several for every batch."""

from __future__ import annotations

import importlib.util

from geomatt.data.batch import Batch
from geomatt.model.choosing import ChoosingEngine, PreparedWeights
from geomatt.model.interface import Engine, Network
from geomatt.model.native.library import library, to_be_compiled
from geomatt.model.pair_states.cpu.engine import CODE, CompiledEngine
from geomatt.model.pair_states.dense.engine import DenseEngine
from geomatt.model.pair_states.sparse.engine import SparseEngine

# Atoms from which neighbour lists are faster than all pairs, for networks with a radius.
DENSE_ATOMS = {"cpu": 40, "cuda": 100}


class PairStatesEngine(ChoosingEngine):
    """C++ on a CPU, Triton kernels on a GPU, plain torch otherwise; neighbour lists for what is large or
    periodic, of networks with a radius.

    `tf32`: a GPU trains with products in TF32, faster and less accurate than float32.
    """

    def __init__(self, network: Network, tf32: bool = True) -> None:
        self.config = network.config
        self.dense, self.compiled = DenseEngine(network), CompiledEngine(network)
        self.sparse = SparseEngine(network)
        self.fused = self.dense
        if network.device.type == "cuda" and importlib.util.find_spec("triton"):
            from geomatt.model.pair_states.gpu.engine import TritonEngine

            self.fused = TritonEngine(network, tf32)

    def setup_pending(self) -> bool:
        return self.compiled.supported and to_be_compiled(CODE)

    def setup(self) -> None:
        if self.compiled.supported:
            library(CODE)

    def capturable(self, batch: Batch) -> bool:
        return super().capturable(batch) and not self._neighbours(batch)

    def _neighbours(self, batch: Batch) -> bool:
        large = batch.numbers.shape[-1] > DENSE_ATOMS.get(batch.numbers.device.type, 40)
        return batch.cell is not None or self.config.electrons or bool(self.config.radius and large)

    def choose(self, weights: PreparedWeights, batch: Batch, gradient: bool) -> Engine:
        if self._neighbours(batch) or (gradient and "ceiling" in weights.parameters):
            return self.sparse  # other engines train without a ceiling
        if self.compiled.serves(weights.parameters, batch):
            return self.compiled
        return self.fused if batch.numbers.is_cuda else self.dense
