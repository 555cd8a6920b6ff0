"""The engine every network has: automatic differentiation of its atomic energies."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine, Evaluation, Network, Parameters


@dataclass
class AutogradEvaluation(Evaluation):
    """Energies and forces with the graph that leads from the weights to them."""

    weights: dict[str, Tensor] = field(default_factory=dict)


class AutogradEngine(Engine):
    """Forces and loss gradients by automatic differentiation, for M members at once."""

    def __init__(self, network: Network) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)  # weights come with every call
        self.names = [name for name, _ in network.named_parameters()]

    def evaluate(
        self,
        prepared: Parameters,
        batch: Batch,
        *,
        index: Tensor | None = None,
        forces: bool = True,
        gradient: bool = False,
        switch: Tensor | None = None,
    ) -> AutogradEvaluation:
        """As every engine; `switch` (layers, B, N, N) multiplies pairs, the same in all members."""
        if index is not None:
            batch = batch.rows(index)
        parameters, weights = dict(prepared), {}
        with torch.set_grad_enabled(forces or gradient):
            if gradient:
                weights = {name: prepared[name].detach().requires_grad_() for name in self.names}
                parameters |= weights
            positions = batch.positions.detach().requires_grad_(forces)
            atomic = self._atomic_energies(parameters, replace(batch, positions=positions), switch)
            energy = atomic.sum(-1)
            found = None
            if forces:
                # A structure of one atom may not use its position: its force is zero.
                (slope,) = torch.autograd.grad(
                    energy.sum(), positions, create_graph=gradient, materialize_grads=True
                )
                found = -slope
        if not gradient:
            return AutogradEvaluation(energy.detach(), atomic.detach(), found)
        return AutogradEvaluation(energy, None, found, weights=weights)

    def gradient(self, evaluation: AutogradEvaluation, by_energy: Tensor, by_forces: Tensor | None) -> Tensor:
        outputs, slopes = [evaluation.energy], [by_energy]
        if by_forces is not None and evaluation.forces is not None and evaluation.forces.requires_grad:
            outputs.append(evaluation.forces)
            slopes.append(by_forces)
        weights = [evaluation.weights[name] for name in self.names]
        found = torch.autograd.grad(outputs, weights, slopes, allow_unused=True)
        flat = [
            (torch.zeros_like(w) if g is None else g).flatten(1) for w, g in zip(weights, found, strict=True)
        ]
        return torch.cat(flat, 1)

    def _atomic_energies(self, parameters: Parameters, batch: Batch, switch: Tensor | None) -> Tensor:
        """Atomic energies (M, B, N), of all members at once where the network allows it."""
        members = len(batch.numbers)
        if members > 1 and self.network.vectorises and batch.cell is None:

            def one(p: dict[str, Tensor], numbers: Tensor, positions: Tensor) -> Tensor:
                result: Tensor = functional_call(self.network, p, (Batch(numbers, positions), switch))
                return result

            return vmap(one)(dict(parameters), batch.numbers, batch.positions)
        parts = [
            functional_call(
                self.network,
                {name: value[m] for name, value in parameters.items()},
                (batch.member(m), switch),
            )
            for m in range(members)
        ]
        return torch.stack(parts)
