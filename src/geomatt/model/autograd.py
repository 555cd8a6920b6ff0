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
            inputs = [batch.positions.detach().requires_grad_(forces)]
            moved = replace(batch, positions=inputs[0])
            if forces and batch.cell is not None:
                inputs.append(torch.zeros_like(batch.cell).requires_grad_())
                moved = strained(moved, inputs[1])
            atomic = self._atomic_energies(parameters, moved, switch)
            energy = atomic.sum(-1)
            found = stress = None
            if forces:
                # A structure of one atom may not use its position: its force is zero.
                slope, *virial = torch.autograd.grad(
                    energy.sum(), inputs, create_graph=gradient, materialize_grads=True
                )
                found = -slope
                if batch.cell is not None:
                    stress = per_volume(virial[0], batch.cell)
        if not gradient:
            return AutogradEvaluation(energy.detach(), atomic.detach(), found, stress)
        return AutogradEvaluation(energy, None, found, stress, weights=weights)

    def gradient(
        self,
        evaluation: AutogradEvaluation,
        by_energy: Tensor,
        by_forces: Tensor | None,
        by_stress: Tensor | None = None,
    ) -> Tensor:
        outputs, slopes = [evaluation.energy], [by_energy]
        for output, slope in ((evaluation.forces, by_forces), (evaluation.stress, by_stress)):
            if slope is not None and output is not None and output.requires_grad:
                outputs.append(output)
                slopes.append(slope)
        weights = [evaluation.weights[name] for name in self.names]
        found = torch.autograd.grad(outputs, weights, slopes, allow_unused=True)
        flat = [
            (torch.zeros_like(w) if g is None else g).flatten(1) for w, g in zip(weights, found, strict=True)
        ]
        return torch.cat(flat, 1)

    def _atomic_energies(self, parameters: Parameters, batch: Batch, switch: Tensor | None) -> Tensor:
        """Atomic energies (M, B, N), of all members at once where the network allows it."""
        members = len(batch.numbers)
        plain = all(x is None for x in (batch.cell, batch.charge, batch.spin))
        if members > 1 and self.network.vectorises and plain:

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


def strained(batch: Batch, strain: Tensor) -> Batch:
    """The batch with positions and cells r (1 + ε), for strains ε (..., B, 3, 3)."""
    assert batch.cell is not None
    positions, cell = batch.positions, batch.cell
    return replace(batch, positions=positions + positions @ strain, cell=cell + cell @ strain)


def per_volume(virial: Tensor, cell: Tensor) -> Tensor:
    """Stress (..., 3, 3) from ∂E/∂ε: divided by the volume, nan for structures without one."""
    volume = torch.linalg.det(cell).abs()[..., None, None]
    there = volume > 0
    return torch.where(there, virial / torch.where(there, volume, 1.0), torch.nan)
