"""An engine that chooses one of several for every batch."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine, Evaluation, Parameters


@dataclass
class PreparedWeights:
    """Weights of M networks, prepared for an engine when it is first chosen."""

    parameters: Parameters
    keep: bool
    prepared: dict[Engine, Any] = field(default_factory=dict)

    def of(self, engine: Engine) -> Any:
        if engine not in self.prepared:
            self.prepared[engine] = engine.prepare(self.parameters, keep=self.keep)
        return self.prepared[engine]


class ChoosingEngine(Engine):
    """Evaluates with the engine that `choose` names; the loss gradient is that engine's, too."""

    gathers = True  # if the chosen engine does

    @abstractmethod
    def choose(self, weights: PreparedWeights, batch: Batch, gradient: bool) -> Engine:
        """The fastest engine for a batch, with or without a loss gradient."""

    def chosen(self, parameters: Parameters, batch: Batch) -> Engine:
        return self.choose(self.prepare(parameters, keep=True), batch, gradient=False)

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> PreparedWeights:
        return PreparedWeights(parameters, keep)

    def compute(
        self, prepared: PreparedWeights, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        engine = self.choose(prepared, batch, gradient)
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
