"""The engine every network has: automatic differentiation of its atomic energies."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine, Evaluation, Network, Parameters


class AutogradEngine(Engine):
    """Forces and loss gradients by automatic differentiation, for M members at once."""

    def __init__(self, network: Network) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)  # weights come with every call
        self.network.make_room(())  # bounds come with them, or not at all
        self.names = [name for name, _ in network.named_parameters()]

    def compute(
        self,
        prepared: Parameters,
        batch: Batch,
        index: Tensor | None,
        forces: bool,
        gradient: bool,
        switch: Tensor | None = None,
    ) -> Evaluation:
        """As every engine; `switch` (layers, B, N, N) multiplies pairs, the same in all members."""
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
            energy, found, stress = atomic.sum(-1), None, None
            if forces:
                # A structure of one atom may not use its position: its force is zero.
                slope, *virial = torch.autograd.grad(
                    energy.sum(), inputs, create_graph=gradient, materialize_grads=True
                )
                found = -slope
                if batch.cell is not None:
                    stress = per_volume(virial[0], batch.cell)
        # Outputs with the graph that leads from the weights to them.
        state = ((energy, found, stress), list(weights.values())) if gradient else None
        return Evaluation(energy.detach(), atomic.detach(), _plain(found), _plain(stress), state)

    def gradient(
        self,
        evaluation: Evaluation,
        by_energy: Tensor,
        by_forces: Tensor | None,
        by_stress: Tensor | None = None,
    ) -> Tensor:
        outputs, weights = evaluation.state
        known = [
            (output, slope)
            for output, slope in zip(outputs, (by_energy, by_forces, by_stress), strict=True)
            if slope is not None and output is not None and output.requires_grad
        ]
        outputs, slopes = zip(*known, strict=True)
        found = torch.autograd.grad(outputs, weights, slopes, materialize_grads=True)
        return torch.cat([g.flatten(1) for g in found], 1)

    def _atomic_energies(self, parameters: Parameters, batch: Batch, switch: Tensor | None) -> Tensor:
        """Atomic energies (M, B, N), of all members at once where the network allows it."""
        members = len(batch.numbers)
        plain = all(x is None for x in (batch.cell, batch.charge, batch.spin))
        if members > 1 and self.network.vectorises and plain:

            def one(p: dict[str, Tensor], numbers: Tensor, positions: Tensor) -> Tensor:
                result: Tensor = functional_call(self.network, p, (Batch(numbers, positions), switch))
                return result

            return vmap(one)(dict(parameters), batch.numbers, batch.positions)
        return torch.stack(
            [
                functional_call(
                    self.network, {n: v[m] for n, v in parameters.items()}, (batch.member(m), switch)
                )
                for m in range(members)
            ]
        )


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


def _plain(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach()
