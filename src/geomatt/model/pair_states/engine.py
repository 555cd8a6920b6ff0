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


class PairStatesEngine(Engine):
    """C++ on a CPU, Triton kernels on a GPU, plain torch otherwise."""

    def __init__(self, network: Network) -> None:
        self.dense, self.compiled = DenseEngine(network), CompiledEngine(network)
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

    def gradient(self, evaluation: Evaluation, by_energy: Tensor, by_forces: Tensor | None) -> Tensor:
        assert evaluation.maker is not None
        return evaluation.maker.gradient(evaluation, by_energy, by_forces)

    def setup_pending(self) -> bool:
        return self.compiled.supported and to_be_compiled(CODE)

    def setup(self) -> None:
        if self.compiled.supported:
            library(CODE)

    def _choose(self, parameters: Parameters, batch: Batch) -> Engine:
        if self.compiled.serves(parameters, batch):
            return self.compiled
        return self.fused if batch.numbers.is_cuda else self.dense
