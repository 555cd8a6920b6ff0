"""The engine of pair states: chooses the fastest of several for every batch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine, Evaluation, Network, Parameters
from geomatt.model.native.library import library, to_be_compiled
from geomatt.model.pair_states.cpu.engine import CODE, CompiledEngine
from geomatt.model.pair_states.dense.engine import DenseEngine
from geomatt.model.pair_states.sparse.engine import SparseEngine


@dataclass
class Weights:
    """Weights of M networks, prepared for an engine when it is first chosen."""

    parameters: Parameters
    keep: bool
    prepared: dict[Engine, Any] = field(default_factory=dict)

    def of(self, engine: Engine) -> Any:
        if engine not in self.prepared:
            self.prepared[engine] = engine.prepare(self.parameters, keep=self.keep)
        return self.prepared[engine]


# Atoms from which neighbour lists are faster than all pairs, for networks with a radius.
DENSE_ATOMS = {"cpu": 40, "cuda": 100}


class PairStatesEngine(Engine):
    """C++ on a CPU, Triton kernels on a GPU, plain torch otherwise; neighbour lists for what is large or
    periodic, of networks with a radius."""

    def __init__(self, network: Network) -> None:
        self.config = network.config
        self.dense, self.compiled = DenseEngine(network), CompiledEngine(network)
        self.sparse = SparseEngine(network)
        self.fused = self.dense
        if network.device.type == "cuda" and importlib.util.find_spec("triton"):
            from geomatt.model.pair_states.gpu.engine import TritonEngine

            self.fused = TritonEngine(network)

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Weights:
        return Weights(parameters, keep)

    def evaluate(
        self,
        prepared: Weights,
        batch: Batch,
        *,
        index: Tensor | None = None,
        forces: bool = True,
        gradient: bool = False,
    ) -> Evaluation:
        engine = self._choose(prepared.parameters, batch)
        found = engine.evaluate(prepared.of(engine), batch, index=index, forces=forces, gradient=gradient)
        found.maker = engine
        return found

    def gradient(
        self,
        evaluation: Evaluation,
        by_energy: Tensor,
        by_forces: Tensor | None,
        by_stress: Tensor | None = None,
    ) -> Tensor:
        assert evaluation.maker is not None
        return evaluation.maker.gradient(evaluation, by_energy, by_forces, by_stress)

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

    def _choose(self, parameters: Parameters, batch: Batch) -> Engine:
        if self._neighbours(batch):
            return self.sparse
        if self.compiled.serves(parameters, batch):
            return self.compiled
        return self.fused if batch.numbers.is_cuda else self.dense
