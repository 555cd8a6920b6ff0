"""The engine of geometric attention: chooses the fastest of several for every batch."""

from __future__ import annotations

from geomatt.data.batch import Batch
from geomatt.model.choosing import ChoosingEngine, PreparedWeights
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.cpu.engine import CODE, CompiledEngine
from geomatt.model.geometric_attention.dense.engine import DenseEngine
from geomatt.model.geometric_attention.gpu.engine import FusedEngine
from geomatt.model.geometric_attention.sparse.engine import SparseEngine
from geomatt.model.interface import Engine
from geomatt.model.native.library import library, to_be_compiled

# Atoms from which neighbour lists are faster than all pairs in C++, in plain torch on a CPU, and on a GPU;
# both give the same numbers. One thread of an AMD EPYC, random matter of 0.1 atoms/Å³, all pairs against
# neighbour lists: in C++ 40 against 64 ms for 100 atoms, 110 against 94 for 120; in torch 29 against 30 for
# 40 atoms and 82 against 55 for 60. `geomatt bench --suite scaling` compares them.
DENSE_ATOMS = {"c++": 110, "cpu": 40, "cuda": 400}


class GeometricAttentionEngine(ChoosingEngine):
    """C++ on a CPU, Triton kernels on a GPU, neighbour lists for large systems, plain torch otherwise.

    "pairs" never uses neighbour lists, "sparse" does for all but loss gradients, "dense" is plain torch. Loss
    gradients of periodic structures are those of automatic differentiation.
    """

    def __init__(self, config: GeometricAttentionConfig, name: str = "auto") -> None:
        self.name = name
        self.dense, self.compiled = DenseEngine(config), CompiledEngine(config)
        self.fused, self.sparse = FusedEngine(config), SparseEngine(config)

    def setup_pending(self) -> bool:
        return self.name in ("auto", "pairs") and to_be_compiled(CODE)

    def setup(self) -> None:
        library(CODE)

    def capturable(self, batch: Batch) -> bool:
        return super().capturable(batch) and self.name != "sparse" and not self._large(batch, compiled=False)

    def _large(self, batch: Batch, compiled: bool) -> bool:
        return batch.numbers.shape[-1] > DENSE_ATOMS["c++" if compiled else batch.numbers.device.type]

    def choose(self, weights: PreparedWeights, batch: Batch, gradient: bool) -> Engine:
        if batch.cell is not None and gradient:
            return self.dense
        if batch.cell is not None or (self.name == "sparse" and not gradient):
            return self.sparse
        if self.name == "dense":
            return self.dense
        compiled = self.compiled.serves(weights.parameters, batch, weights.keep)
        if self.name == "auto" and not gradient and self._large(batch, compiled):
            return self.sparse
        if compiled:
            return self.compiled
        return self.fused if self.fused.serves(weights.parameters, batch) else self.dense
