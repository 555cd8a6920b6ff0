"""Optimisation steps for M independent networks at once; M = 1 is the ordinary case.

All weights live in one matrix θ (M, n): a step gathers its structures, sweeps through `DenseProgram` and
updates θ with Adam. Adam works element by element, so members never see each other. On a CPU members are
swept one by one, by `NativeProgram` where it serves. On a GPU the sweep is `FusedProgram`'s where it can be,
and the whole step is captured as a CUDA graph and replayed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.adam import adam

from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.cpu.program import NativeProgram
from geomatt.model.geometric_attention.dense.program import DenseProgram, Parameters
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.normalisation import Normalisation
from geomatt.training.loss import Loss, loss_slopes, slope_weights
from geomatt.training.memory import keep_pages
from geomatt.training.replay import StepGraphs

if TYPE_CHECKING:
    from geomatt.model.geometric_attention.gpu.program import FusedProgram


@dataclass(frozen=True)
class Targets:
    """Training data on the device, labels in the networks' normalised units, one row of sets per member."""

    numbers: Tensor  # (M, n, N)
    positions: Tensor  # (M, n, N, 3)
    energy: Tensor  # (M, n)
    forces: Tensor | None  # (M, n, N, 3)

    @classmethod
    def from_batch(cls, batch: Batch, normalisation: Normalisation, use_forces: bool = True) -> Targets:
        """One member's targets. Labels leave float64 only here, after the mean is gone."""
        assert batch.energy is not None
        energy = normalisation.energy_residual(batch.numbers, batch.energy).to(batch.positions.dtype)
        forces = batch.forces / normalisation.scale if use_forces and batch.forces is not None else None
        return cls(
            batch.numbers[None], batch.positions[None], energy[None], None if forces is None else forces[None]
        )

    @classmethod
    def stack(cls, members: Sequence[Targets]) -> Targets:
        """Targets of several members, which must agree in n and N."""
        return cls(
            torch.cat([m.numbers for m in members]),
            torch.cat([m.positions for m in members]),
            torch.cat([m.energy for m in members]),
            _cat([m.forces for m in members]),
        )

    def rows(self, index: Tensor) -> Targets:
        """The structures `index` (M, B) of each member."""
        member = torch.arange(len(index), device=index.device)[:, None]
        return Targets(
            self.numbers[member, index],
            self.positions[member, index],
            self.energy[member, index],
            None if self.forces is None else self.forces[member, index],
        )

    def member(self, m: int) -> Targets:
        """Those of one member."""
        one, forces = slice(m, m + 1), self.forces
        return Targets(
            self.numbers[one], self.positions[one], self.energy[one], None if forces is None else forces[one]
        )

    @property
    def count(self) -> int:
        """n, structures per member."""
        return self.numbers.shape[1]


class ErrorSums:
    """Sums of loss and absolute errors over structures, per member, on the device; normalised units."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.sums = torch.zeros(4, members, dtype=torch.float64, device=device)
        self.structures = 0

    def add(self, loss: Tensor, energy_error: Tensor, force_error: Tensor | None, numbers: Tensor) -> None:
        """Add a batch: loss (M,), errors (M, B) and (M, B, N, 3)."""
        batch = energy_error.shape[1]
        self.sums[0] += loss * batch
        self.sums[1] += energy_error.abs().sum(1)
        if force_error is not None:
            self.sums[2] += force_error.abs().sum((1, 2, 3))
            self.sums[3] += 3 * (numbers > 0).sum((1, 2))

    def per_member(self) -> list[list[float]]:
        """Sums of loss, |ΔE| and |ΔF|, numbers of structures and of force components, for each member."""
        loss, energy, forces, components = self.sums.tolist()
        count = float(self.structures)
        return [[l, e, f, count, c] for l, e, f, c in zip(loss, energy, forces, components, strict=True)]


class Stepper:
    """Adam on the weights of M networks, with a moving average of them if asked.

    The networks' parameters become views of θ, so they always hold the current weights.
    """

    def __init__(
        self,
        networks: Sequence[GeometricAttention],
        targets: Targets,
        loss: Loss,
        *,
        ema_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        engine: str = "auto",
    ) -> None:
        """`engine`: "auto" takes fused kernels on a GPU, compiled code on a CPU; "dense" is plain torch."""
        self.networks, self.targets, self.loss, self.ema_decay = list(networks), targets, loss, ema_decay
        self.program = DenseProgram(networks[0].config)
        self.native = NativeProgram(self.program) if engine == "auto" else None
        self.theta, self.parameters = _flatten(self.networks)
        self.names = [name for name, _ in networks[0].named_parameters()]
        self.trainable = _trainable_mask(networks[0], self.theta)
        self.first, self.second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.average = self.theta.clone() if ema_decay else None
        self._averaged = {} if self.average is None else _views(self.average, self.networks)
        self.betas, self.eps = betas, eps
        # On the device, so that a captured graph reads them anew at every replay.
        device = self.theta.device
        self.steps = torch.zeros((), dtype=torch.float64, device=device)
        self.rate = torch.zeros((), dtype=torch.float64, device=device)
        self._graphs = StepGraphs()
        self._sums = ErrorSums(len(self.networks), self.theta.device)
        self._fused: dict[int, FusedProgram] | None = None  # by batch size; None: not to be used
        if engine == "auto" and _fused_possible(self.networks[0], targets):
            from geomatt.training.fused_update import FusedAdam

            self._fused, self._fused_adam = {}, FusedAdam(betas, eps, ema_decay)
        if device.type == "cpu":
            keep_pages()

    def run_epoch(self, order: Tensor, batch_size: int, learning_rates: Iterable[float]) -> ErrorSums:
        """One pass over each member's targets in its order (M, n), a learning rate for each step."""
        self._sums.sums.zero_()
        self._sums.structures = order.shape[1]
        order = order.to(self.theta.device)
        for index, rate in zip(order.split(batch_size, 1), learning_rates, strict=True):
            self.rate.fill_(rate)
            if self.theta.is_cuda:
                self._graphs.replay(self._step, index, self._mutable().values())
            else:
                self._step(index)
        return self._sums

    def _step(self, index: Tensor) -> None:
        if self._fused is not None:
            t = self.targets
            gradient, *_ = self._fused_program(index.shape[1], t).gradient(
                self.parameters, t.numbers, t.positions, t.energy, t.forces, self.loss, index, self._sums.sums
            )
            self._fused_adam.step(
                self.theta, gradient, self.first, self.second, self.steps, self.rate, self.average,
                self.trainable,
            )  # fmt: skip
            return
        gradient = self._gradient(index)
        if self.trainable is not None:
            gradient = gradient * self.trainable
        self._adam(gradient)

    def _fused_program(self, batch: int, targets: Targets) -> FusedProgram:
        from geomatt.model.geometric_attention.gpu.program import FusedProgram

        assert self._fused is not None
        if batch not in self._fused:
            members, _, atoms = targets.numbers.shape
            config = self.networks[0].config
            self._fused[batch] = FusedProgram(config, members, batch, atoms, self.theta.device)
        return self._fused[batch]

    def _gradient(self, index: Tensor) -> Tensor:
        """Gradient of the loss on the structures `index` (M, B), as (M, n); adds to the error sums."""
        targets = self.targets.rows(index)
        gradients, energy_errors, force_errors = zip(
            *(self._sweep(*share) for share in self._shares(self.parameters, targets)), strict=True
        )
        energy_error, force_error = _joined(energy_errors), _cat(force_errors)
        loss = self.loss(energy_error, force_error, (targets.numbers > 0).sum(-1))
        self._sums.add(loss, energy_error, force_error, targets.numbers)
        return _joined(gradients)

    def _sweep(self, parameters: Parameters, targets: Targets) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gradient (M, n) and errors of energies (M, B) and, with labels for them, forces (M, B, N, 3)."""
        if self.native is not None and self.native.serves(parameters, targets.positions):
            return self._native_sweep(self.native, parameters, targets)
        prepared = self.program.prepare(parameters)
        forward = self.program.forward(prepared, targets.numbers, targets.positions)
        adjoints = self.program.adjoints(forward)
        energy_error = forward.atomic.sum(-1) - targets.energy
        force_error = None
        if targets.forces is not None:
            force_error = self.program.forces(forward, adjoints) - targets.forces
        atoms = (targets.numbers > 0).sum(-1)
        slopes = loss_slopes(self.loss, energy_error, force_error, atoms)
        return self._flat(self.program.gradient(forward, adjoints, *slopes)), energy_error, force_error

    def _native_sweep(
        self, native: NativeProgram, parameters: Parameters, targets: Targets
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `_sweep`, for one member."""
        numbers, forces = targets.numbers[0], None if targets.forces is None else targets.forces[0]
        batch = native.batch(native.weights(parameters), numbers, targets.positions[0])
        batch.energies()
        batch.forces()
        slopes = slope_weights(self.loss, (numbers > 0).sum(-1), targets.energy.dtype)
        gradient, energy_error, force_error = batch.gradient(targets.energy[0], forces, *slopes)
        return self._flat(gradient), energy_error[None], None if force_error is None else force_error[None]

    def _flat(self, gradient: Mapping[str, Tensor]) -> Tensor:
        """Gradients by all parameters side by side, (M, n)."""
        return torch.cat([gradient[name].flatten(1) for name in self.names], 1)

    def _shares(self, parameters: Parameters, targets: Targets) -> list[tuple[Parameters, Targets]]:
        """What is swept at once: all members on a GPU, one after the other on a CPU with its small caches."""
        if self.theta.is_cuda or len(self.theta) == 1:
            return [(parameters, targets)]
        return [
            ({name: value[m : m + 1] for name, value in parameters.items()}, targets.member(m))
            for m in range(len(self.theta))
        ]

    def _adam(self, gradient: Tensor) -> None:
        """One Adam update of θ, and of its moving average."""
        b1, b2 = self.betas
        self.steps += 1
        if self.theta.is_cuda:  # torch's fused one has a float32 rate there, too coarse for float64
            self.first.lerp_(gradient, 1.0 - b1)
            self.second.mul_(b2).addcmul_(gradient, gradient, value=1.0 - b2)
            size = (self.rate / (1.0 - b1**self.steps)).to(self.theta.dtype)
            scale = (1.0 - b2**self.steps).sqrt().to(self.theta.dtype)
            self.theta.sub_(size * self.first / (self.second.sqrt() / scale + self.eps))
        else:
            adam(
                [self.theta], [gradient], [self.first], [self.second], [], [self.steps - 1],
                fused=True, amsgrad=False, beta1=b1, beta2=b2, weight_decay=0.0, eps=self.eps,
                maximize=False, lr=float(self.rate),
            )  # fmt: skip
        if self.average is not None:
            # Early on the average forgets faster, or it would remember the random start.
            weight = torch.clamp(9.0 / (9.0 + self.steps), min=1.0 - self.ema_decay).to(self.theta.dtype)
            self.average.lerp_(self.theta, weight)

    def _mutable(self) -> dict[str, Tensor]:
        """What a step changes."""
        state = {"theta": self.theta, "first": self.first, "second": self.second, "steps": self.steps}
        if self.average is not None:
            state["average"] = self.average
        return {**state, "sums": self._sums.sums}

    def state(self, member: int) -> dict[str, Tensor]:
        """All that a member's next step depends on besides the data."""
        state = {n: value for n, value in self._mutable().items() if n != "sums"}
        return {n: value if n == "steps" else value[member] for n, value in state.items()}

    def load_state(self, member: int, state: dict[str, Tensor]) -> None:
        """Continue a member exactly where `state` was taken; members must have done the same steps."""
        for name, value in self.state(member).items():
            value.copy_(state[name])

    def judged(self, member: int | None = None) -> dict[str, Tensor]:
        """The weights to validate and to keep: averaged where there is an average, else the current ones.

        As the program's parameters, or for one member as its network's state dict.
        """
        views = self.parameters if self.average is None else self._averaged
        return views if member is None else {name: value[member] for name, value in views.items()}

    def validate(self, targets: Targets) -> ErrorSums:
        """Errors of the weights to be judged over all targets."""
        members, count = targets.energy.shape
        sums = ErrorSums(members, self.theta.device)
        # Few at a time where many members share the memory.
        batch = max(1, min(count, 100 if self._fused is None else max(10, 400 // members)))
        for start in range(0, count, batch):
            rows = torch.arange(start, min(start + batch, count), device=self.theta.device)
            part = targets.rows(rows.expand(members, -1))
            energy, forces = self._predict(part)
            force_error = None if part.forces is None or forces is None else forces - part.forces
            energy_error = energy - part.energy
            atoms = (part.numbers > 0).sum(-1)
            loss = self.loss(energy_error, force_error, atoms)
            sums.add(loss, energy_error, force_error, part.numbers)
            sums.structures += len(rows)
        return sums

    def _predict(self, part: Targets) -> tuple[Tensor, Tensor | None]:
        """Energies (M, B) and, where there are labels for them, forces (M, B, N, 3)."""
        if self._fused is not None:
            program = self._fused_program(part.numbers.shape[1], part)
            return program.energies_and_forces(self.judged(), part.numbers, part.positions)
        energies, forces = zip(
            *(self._infer(*share) for share in self._shares(self.judged(), part)), strict=True
        )
        return _joined(energies), _cat(forces)

    def _infer(self, parameters: Parameters, part: Targets) -> tuple[Tensor, Tensor | None]:
        if self.native is not None and self.native.serves(parameters, part.positions):
            batch = self.native.batch(self.native.weights(parameters), part.numbers[0], part.positions[0])
            total = batch.energies().sum(-1)[None]
            return total, None if part.forces is None else batch.forces()[None]
        prepared = self.program.prepare(parameters)
        forward = self.program.forward(prepared, part.numbers, part.positions)
        energy = forward.atomic.sum(-1)
        if part.forces is None:
            return energy, None
        return energy, self.program.forces(forward, self.program.adjoints(forward))


def _cat(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The members' tensors as one, if there are any."""
    found = [part for part in parts if part is not None]
    return _joined(found) if found else None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """One tensor of several; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _views(theta: Tensor, networks: Sequence[GeometricAttention]) -> dict[str, Tensor]:
    """θ (M, n) as the program's parameters: weights as views, buffers stacked."""
    views: dict[str, Tensor] = {}
    offset = 0
    for name, p in networks[0].named_parameters():
        views[name] = theta[:, offset : offset + p.numel()].view(len(theta), *p.shape)
        offset += p.numel()
    for name, _ in networks[0].named_buffers():
        views[name] = torch.stack([network.get_buffer(name) for network in networks])
    return views


def _flatten(networks: list[GeometricAttention]) -> tuple[Tensor, dict[str, Tensor]]:
    """Move all weights into θ and make the networks' parameters views of it."""
    with torch.no_grad():
        theta = torch.stack([torch.cat([p.flatten() for p in n.parameters()]) for n in networks])
        views = _views(theta, networks)
        for m, network in enumerate(networks):
            for name, p in network.named_parameters():
                p.data = views[name][m]
    return theta, views


def _trainable_mask(network: GeometricAttention, theta: Tensor) -> Tensor | None:
    """One where a weight may change, or None if all may."""
    parameters = list(network.parameters())
    if all(p.requires_grad for p in parameters):
        return None
    return torch.cat([torch.full((p.numel(),), float(p.requires_grad)) for p in parameters]).to(theta)


def _fused_possible(network: GeometricAttention, targets: Targets) -> bool:
    """Whether the fused kernels exist for this model, precision and device."""
    positions = targets.positions
    if not positions.is_cuda or positions.dtype != torch.float32 or not importlib.util.find_spec("triton"):
        return False
    from geomatt.model.geometric_attention.gpu.program import FusedProgram

    return FusedProgram.supports(network.config, targets.numbers.shape[2])
