"""Optimisation steps for M independent networks at once; M = 1 is the ordinary case.

A step evaluates a batch of each member, turns the derivatives of the loss into a gradient by the network's
engine, and updates the weights. On a CPU members take turns; on a GPU they share every operation, and the
whole step is captured as a CUDA graph.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model import Network
from geomatt.model.graphs import capture
from geomatt.model.interface import Parameters
from geomatt.training.loss import Errors, ErrorSums, Loss
from geomatt.training.muon import Muon
from geomatt.training.optimiser import Adam
from geomatt.training.targets import Targets
from geomatt.training.team import team
from geomatt.training.weights import Weights

VALIDATION_BATCH = 100


class Stepper:
    """Weights, optimiser, engine and training data of M networks."""

    def __init__(
        self,
        networks: Sequence[Network],
        targets: Targets,  # normalised, with the member axis in front
        loss: Loss,
        *,
        ema_decay: float = 0.0,
        clip: float = 0.0,
        optimiser: str = "adam",
        engine: str = "auto",
    ) -> None:
        self.targets, self.loss, self.team = targets, loss, team()
        self.engine = networks[0].engine(engine)
        self.weights = Weights(networks)
        if optimiser == "muon":
            self.adam: Adam = Muon(self.weights, networks[0].matrices, ema_decay=ema_decay, clip=clip)
        else:
            self.adam = Adam(self.weights, ema_decay=ema_decay, clip=clip)
        self.device = self.weights.theta.device
        self._captured = isinstance(targets, Batch) and self.engine.capturable(targets)
        self._sums = ErrorSums(len(networks), self.device)
        self._graphs = StepGraphs()
        self._kernel: Any = None
        theta = self.weights.theta
        single = theta.is_cuda and theta.dtype == torch.float32 and self._captured
        plain = isinstance(targets, Batch) and _fully_labelled(targets) and not loss.per_atom
        if single and plain and importlib.util.find_spec("triton"):
            from geomatt.training.gpu_kernels import FusedLoss

            self._kernel = FusedLoss(loss)

    def run_epoch(self, order: Tensor, batch_size: int, learning_rates: Iterable[float]) -> ErrorSums:
        """One pass over each member's targets in its order (M, n), with a learning rate for each step."""
        self._sums.clear(order.shape[1])
        order = order.to(self.device)
        for index, rate in zip(order.split(batch_size, 1), learning_rates, strict=True):
            self.adam.rate.fill_(rate)
            if self.team.joined:
                self._common_step(index)
            elif self._captured:
                changed = [*self.adam.tensors().values(), self._sums.sums]
                self._graphs.replay(self._step, index, changed)
            else:
                self._step(index)
        self.team.sum_(self._sums.sums)
        return self._sums

    def _step(self, index: Tensor) -> None:
        self.adam.step(self.gradient(index))

    def _common_step(self, index: Tensor) -> None:
        """A step of several processes: the gradient of the batch from those of their shares."""
        own = self.team.share(index)
        gradient = torch.zeros_like(self.weights.theta)
        if own.shape[1]:
            gradient.add_(self.gradient(own), alpha=own.shape[1] / index.shape[1])
        self.adam.step(self.team.sum_(gradient))

    def gradient(self, index: Tensor) -> Tensor:
        """Gradient of the loss on the structures `index` (M, B), as (M, n); adds to the error sums."""
        parameters, targets = self.weights.parameters, self.targets
        if self._kernel is not None and isinstance(targets, Batch):
            found = self._evaluate(parameters, targets, index, gradient=True)
            slopes = self._kernel(found.energy, found.forces, targets, index, self._sums.sums)
            return self.engine.gradient(found, *slopes)
        chosen, gradients, errors = targets.rows(index), [], []
        for own, part in self._shares(parameters, chosen):
            found = self._evaluate(own, part, None, gradient=True)
            errors.append(Errors.of(found, part))
            gradients.append(self.engine.gradient(found, *self.loss.slopes(errors[-1])))
        self._add(self._sums, errors)
        return _joined(gradients)

    def validate(self, targets: Targets) -> ErrorSums:
        """Errors over all targets with averaged weights, where there are any."""
        members, count = len(self.weights.theta), len(targets)
        sums = ErrorSums(members, self.device)
        sums.clear(count)
        # Fewer at a time where many members share the memory of a GPU.
        size = max(10, 400 // members) if self.device.type == "cuda" else VALIDATION_BATCH
        for number, start in enumerate(range(0, count, size)):
            if number % self.team.size != self.team.rank:
                continue
            index = torch.arange(start, min(start + size, count), device=self.device)
            chosen = targets.rows(index.expand(members, -1))
            errors = [
                Errors.of(self._evaluate(own, part, None, gradient=False), part)
                for own, part in self._shares(self.adam.averaged, chosen)
            ]
            self._add(sums, errors)
        self.team.sum_(sums.sums)
        return sums

    def kept_weights(self, member: int) -> dict[str, Tensor]:
        """Tensors of a member's network with the weights to validate and keep: averaged ones if there are."""
        return {name: value[member] for name, value in self.adam.averaged.items()}

    def _evaluate(self, parameters: Parameters, batch: Batch, index: Tensor | None, gradient: bool) -> Any:
        prepared = self.engine.prepare(parameters)
        forces = batch.forces is not None or batch.stress is not None
        return self.engine.evaluate(prepared, batch, index=index, forces=forces, gradient=gradient)

    def _shares(self, parameters: Parameters, batch: Batch) -> list[tuple[Parameters, Batch]]:
        """Slices of members evaluated together: all on a GPU, one after the other on a CPU.

        Each without the padding that none of its structures needs, unless the step is a CUDA graph, whose
        shapes are fixed.
        """
        members = len(batch.numbers)
        if self.device.type == "cuda" or members == 1:
            return [(parameters, batch if self._captured else batch.trimmed())]
        return [
            (
                {name: value[m : m + 1] for name, value in parameters.items()},
                batch.apply(lambda x, m=m: x[m : m + 1]).trimmed(),  # type: ignore[misc]
            )
            for m in range(members)
        ]

    def _add(self, sums: ErrorSums, errors: Sequence[Errors]) -> None:
        """Add the errors of all shares to the sums."""
        first = 0
        for part in errors:
            sums.add(self.loss(part), part, first)
            first += len(part.energy)


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


def _fully_labelled(targets: Batch) -> bool:
    """True if all structures have the same labels, without stress, and count alike."""
    if targets.stress is not None or targets.weight is not None:
        return False
    return targets.forces is None or not bool(targets.forces.isnan().any())


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """One tensor from those of all members; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
