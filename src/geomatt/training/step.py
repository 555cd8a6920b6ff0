"""One optimisation step, and an epoch of them. The trainer above knows nothing of how a step is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geomatt.data.batch import Batch
from geomatt.model.normalisation import Normalisation
from geomatt.training.loss import Loss


@dataclass(frozen=True)
class Targets:
    """Training data resident on the device, labels in the network's normalised units."""

    numbers: Tensor  # (n, N)
    positions: Tensor  # (n, N, 3)
    energy: Tensor  # (n,)
    forces: Tensor | None  # (n, N, 3)

    @classmethod
    def from_batch(cls, batch: Batch, normalisation: Normalisation, use_forces: bool = True) -> Targets:
        """Labels leave float64 only here, after the mean is gone."""
        assert batch.energy is not None
        dtype = batch.positions.dtype
        return cls(
            batch.numbers,
            batch.positions,
            normalisation.energy_residual(batch.numbers, batch.energy).to(dtype),
            batch.forces / normalisation.scale if use_forces and batch.forces is not None else None,
        )

    def rows(self, index: Tensor) -> Targets:
        return Targets(
            self.numbers.index_select(0, index),
            self.positions.index_select(0, index),
            self.energy.index_select(0, index),
            None if self.forces is None else self.forces.index_select(0, index),
        )

    def __len__(self) -> int:
        return self.numbers.shape[0]


@dataclass
class ErrorSums:
    """Sums of loss and absolute errors over structures, on the device; normalised units."""

    loss: Tensor
    energy: Tensor  # Σ |ΔE|
    forces: Tensor  # Σ |ΔF| over components
    structures: int = 0
    components: int = 0

    @classmethod
    def zero(cls, like: Tensor) -> ErrorSums:
        return cls(*(torch.zeros((), dtype=torch.float64, device=like.device) for _ in range(3)))

    def add(self, loss: Tensor, energy_error: Tensor, force_error: Tensor | None, atoms: Tensor) -> None:
        count = energy_error.shape[0]
        self.loss += loss.detach().double() * count
        self.energy += energy_error.detach().abs().double().sum()
        self.structures += count
        if force_error is not None:
            self.forces += force_error.detach().abs().double().sum()
            self.components += 3 * int(atoms.sum())

    @property
    def mean_loss(self) -> float:
        return float(self.loss) / max(1, self.structures)

    @property
    def energy_mae(self) -> float:
        return float(self.energy) / max(1, self.structures)

    @property
    def force_mae(self) -> float:
        return float(self.forces) / max(1, self.components)


def errors(network: nn.Module, targets: Targets, create_graph: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    """ΔE (B,), ΔF (B, N, 3) and the numbers of atoms (B,) of the network on the targets."""
    with_forces = targets.forces is not None
    positions = targets.positions.detach().requires_grad_(with_forces)
    with torch.set_grad_enabled(with_forces or create_graph):
        energy = network(targets.numbers, positions).sum(-1)
        forces = None
        if with_forces:
            (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=create_graph)
            forces = -gradient - targets.forces
    atoms = (targets.numbers > 0).sum(-1)
    return energy - targets.energy, forces, atoms


def validate(network: nn.Module, targets: Targets, loss: Loss, batch_size: int = 100) -> ErrorSums:
    """Errors over all targets, without touching the network."""
    sums = ErrorSums.zero(targets.positions)
    for start in range(0, len(targets), batch_size):
        index = torch.arange(start, min(start + batch_size, len(targets)), device=targets.positions.device)
        energy, force, atoms = errors(network, targets.rows(index), create_graph=False)
        sums.add(loss(energy, force, atoms), energy, force, atoms)
    return sums


class Stepper:
    """Optimises a network's trainable parameters with Adam; keeps a moving average of them if asked."""

    def __init__(
        self,
        network: nn.Module,
        targets: Targets,
        loss: Loss,
        *,
        ema_decay: float | None = None,
    ) -> None:
        self.network, self.targets, self.loss, self.ema_decay = network, targets, loss, ema_decay
        self.parameters = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.Adam(self.parameters.values(), lr=0.0, fused=True)
        self.average = {n: p.detach().clone() for n, p in self.parameters.items()} if ema_decay else {}

    def run_epoch(self, order: Tensor, batch_size: int, learning_rates: Iterable[float]) -> ErrorSums:
        """One pass over the targets in the given order (n,), a learning rate for each step."""
        sums = ErrorSums.zero(self.targets.positions)
        for index, rate in zip(order.split(batch_size), learning_rates, strict=True):
            self._step(self.targets.rows(index), rate, sums)
        return sums

    def _step(self, targets: Targets, rate: float, sums: ErrorSums) -> None:
        energy, force, atoms = errors(self.network, targets, create_graph=True)
        loss = self.loss(energy, force, atoms)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        if self.ema_decay:
            torch._foreach_lerp_(
                list(self.average.values()),
                [p.detach() for p in self.parameters.values()],
                1.0 - self.ema_decay,
            )
        sums.add(loss, energy, force, atoms)

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on besides data: parameters, Adam's moments and step, the average."""
        state = {f"parameter.{n}": p.detach() for n, p in self.parameters.items()}
        for name, p in self.parameters.items():
            for key, value in self.optimiser.state.get(p, {}).items():
                state[f"adam.{key}.{name}"] = value
        state.update({f"average.{n}": a for n, a in self.average.items()})
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue exactly where `state` was taken."""
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.copy_(state[f"parameter.{name}"])
                moments = {
                    key: state[f"adam.{key}.{name}"].clone().to(p.device)
                    for key in ("step", "exp_avg", "exp_avg_sq")
                    if f"adam.{key}.{name}" in state
                }
                if moments:
                    self.optimiser.state[p] = moments
            for name, a in self.average.items():
                a.copy_(state[f"average.{name}"])
