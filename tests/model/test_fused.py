"""The Triton kernels against the dense engine: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton_kernels import DEVICE, runs_kernels

from geomatt.data import Batch
from geomatt.model import new_network
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.dense.engine import DenseEngine
from geomatt.training import Loss
from geomatt.training.loss import WEIGHTINGS, Errors

PRECISION, TOLERANCE = ("bf16x3", 3e-4) if DEVICE == "cuda" else ("ieee", 5e-6)
SMALL = {  # few and small programs: the interpreter runs them one after the other
    "chunks": 1, "overlap_rows": 64, "overlap_pairs": 128, "overlap_steps": 1, "folded_rows": 64,
    "folded_splits": 2, "folded_k": 32,
}  # fmt: skip

pytestmark = runs_kernels


class Problem:
    """Networks, with padding atoms, an odd number of everything, and data sets larger than a batch."""

    def __init__(self, orders: tuple[int, ...], bias: bool = True, members: int = 2) -> None:
        settings = {
            "orders": orders, "layers": 2, "features": 20, "overlap_features": 16, "gamma": 4.0,
            "d_max": 3.0, "spacing": 0.2, "bias": bias,
        }  # fmt: skip
        networks = [new_network("geomatt", settings, (1, 6, 8), seed=seed) for seed in range(members)]
        for network in networks:  # overlaps so large that all orders matter
            for name, parameter in network.named_parameters():
                if name.startswith("overlaps"):
                    parameter.data.mul_(4.0)
        self.config = networks[0].config
        self.names = [name for name, _ in networks[0].named_parameters()]
        self.parameters = {
            name: torch.stack([n.tensors()[name] for n in networks]).to(DEVICE)
            for name in networks[0].tensors()
        }
        torch.manual_seed(0)
        count, atoms = 3, 5
        numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (members, count, atoms))]
        numbers[0, 0, -2:] = 0
        forces = 0.01 * torch.randn(members, count, atoms, 3) * (numbers > 0)[..., None]
        positions = 1.3 * torch.randn(members, count, atoms, 3)
        batch = Batch(numbers, positions, torch.randn(members, count), forces)
        self.batch = batch.apply(lambda x: x.to(DEVICE))
        self.index = torch.tensor([[0, 2], [1, 0]][:members], device=DEVICE)

    def program(self) -> Any:
        from geomatt.model.geometric_attention.gpu.program import FusedProgram

        return FusedProgram(self.config, *self.index.shape, 5, DEVICE, precision=PRECISION, tune=SMALL)

    def reference(self) -> tuple[DenseEngine, Any, Batch]:
        """Evaluation of the chosen structures by the dense engine in float64."""
        parameters, batch = (
            {n: _double(p) for n, p in self.parameters.items()},
            self.batch.rows(self.index).apply(_double),
        )
        engine = DenseEngine(self.config)
        return engine, engine.evaluate(engine.prepare(parameters), batch, gradient=True), batch


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def close(x: torch.Tensor, y: torch.Tensor, tolerance: float = TOLERANCE) -> bool:
    return bool((x.double() - y.double()).abs().max() <= tolerance * y.double().abs().max())


@pytest.mark.parametrize(
    ("orders", "bias", "with_forces", "members"),
    [
        ((2, 3, 4), True, True, 1),  # the slowest in the interpreter
        ((3, 2), False, False, 1),
        ((5,), True, True, 2),
        ((2, 5), False, True, 2),
    ],
)
def test_results_are_those_of_the_dense_engine(
    orders: tuple[int, ...], bias: bool, with_forces: bool, members: int
) -> None:
    problem = Problem(orders, bias, members)
    engine, expected, labels = problem.reference()
    energy_error, force_error = expected.energy - labels.energy, expected.forces - labels.forces
    errors = Errors(energy_error, force_error if with_forces else None, labels.atoms)
    by_energy, by_forces, _ = Loss().slopes(errors)

    program = problem.program()
    call = program.call(problem.parameters, problem.batch.numbers, problem.batch.positions, problem.index)
    program.values(call, keep=True)
    assert close(program.energy, expected.energy)
    assert close(program.atomic, expected.atomic)
    assert close(program.forces, expected.forces)
    if len(orders) < 3:  # what depends on the weights alone need not be made again for other structures
        program.values(
            program.call(
                problem.parameters, problem.batch.numbers, problem.batch.positions, 2 - problem.index
            )
        )
        program.values(call, keep=True, known=True)
        assert close(program.forces, expected.forces)

    slopes = torch.zeros_like(force_error) if by_forces is None else by_forces
    gradient = program.gradient(call, by_energy.float(), slopes.float())
    true_gradient = engine.gradient(expected, by_energy, by_forces)
    offset = 0
    for name in problem.names:  # each by itself, since their sizes differ
        size = problem.parameters[name][0].numel()
        assert close(gradient[:, offset : offset + size], true_gradient[:, offset : offset + size]), name
        offset += size


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("with_forces", [True, False])
def test_loss_kernel(weighting: str, with_forces: bool) -> None:
    from geomatt.training.gpu_kernels import FusedLoss

    problem, loss = Problem((2,)), Loss(weighting, rho=0.3)
    targets = problem.batch if with_forces else Batch(*list(vars(problem.batch).values())[:3])
    chosen = targets.rows(problem.index)
    energy, forces = torch.randn(2, 2, device=DEVICE), torch.randn(2, 2, 5, 3, device=DEVICE)
    forces *= chosen.mask[..., None]
    sums = torch.zeros(4, 2, dtype=torch.float64, device=DEVICE)
    by_energy, by_forces = FusedLoss(loss)(energy, forces, targets, problem.index, sums)

    energy_error, force_error = energy - chosen.energy, forces - chosen.forces if with_forces else None
    errors = Errors(energy_error, force_error, chosen.atoms)
    expected = loss.slopes(errors)
    assert close(by_energy, expected[0], 1e-5)
    assert close(sums[0], loss(errors) * 2, 1e-5)
    assert close(sums[1], energy_error.abs().sum(1), 1e-5)
    if force_error is None:
        assert by_forces is None
    else:
        assert close(by_forces, expected[1], 1e-5)
        assert close(sums[2], force_error.abs().sum((1, 2, 3)), 1e-5)
        assert close(sums[3], 3.0 * chosen.atoms.sum(1))


def test_adam_is_torchs() -> None:
    from geomatt.training.gpu_kernels import FusedAdam

    torch.manual_seed(0)
    theta = torch.nn.Parameter(torch.randn(2, 700, device=DEVICE))
    slow = torch.nn.Parameter(theta.detach()[1].clone())  # the second member, at half the rate
    optimizer = torch.optim.Adam([{"params": [theta]}, {"params": [slow], "lr": 5e-4}], lr=1e-3)
    ours, first, second = theta.detach().clone(), torch.zeros_like(theta.data), torch.zeros_like(theta.data)
    average = ours.clone()
    steps = torch.zeros((), dtype=torch.float64, device=DEVICE)
    rate = torch.full((), 1e-3, dtype=torch.float64, device=DEVICE)
    pace = torch.tensor([1.0, 0.5], dtype=torch.float64, device=DEVICE)
    adam = FusedAdam(ema_decay=0.9)
    expected = average.clone()
    for step in range(1, 4):
        theta.grad = torch.randn_like(theta)
        slow.grad = theta.grad[1].clone()
        adam.step(ours, theta.grad, first, second, steps, rate, pace, average)
        optimizer.step()
        both = torch.stack([theta.data[0], slow.data])
        expected.lerp_(both, max(0.1, 9.0 / (9.0 + step)))
    assert steps.item() == 3
    assert torch.allclose(ours, both, atol=1e-6)
    assert torch.allclose(average, expected, atol=1e-6)


def test_supports() -> None:
    from geomatt.model.geometric_attention.gpu.program import FusedProgram

    assert FusedProgram.supports(GeometricAttentionConfig((1, 6)), 21)
    assert FusedProgram.supports(GeometricAttentionConfig((1, 6), orders=(2, 6)), 21)
    assert not FusedProgram.supports(GeometricAttentionConfig((1, 6)), 65)
    assert not FusedProgram.supports(GeometricAttentionConfig((1, 6), layers=6), 21)


@pytest.mark.skipif(DEVICE == "cpu", reason="no GPU")
def test_kept_evaluations_are_replayed_and_right() -> None:
    """Captured graphs answer for new positions, for several shapes, and after weights have changed."""
    from geomatt.model import Normalisation, Potential

    network = new_network("geomatt", {"layers": 2}, (1, 6, 8)).to(DEVICE)
    potential, slow = (
        Potential(network, Normalisation(-3.0, 2.0), engine=engine) for engine in ("auto", "autograd")
    )
    for seed, (structures, atoms) in enumerate([(1, 9), (4, 21), (1, 9), (2, 9)] * 2):
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (structures, atoms), generator=generator)]
        positions = 2.0 * torch.randn(structures, atoms, 3, generator=generator)
        batch = Batch(numbers.to(DEVICE), positions.to(DEVICE))
        found, expected = potential.evaluate(batch, keep=True), slow.evaluate(batch)
        assert close(found.energy, expected.energy)
        assert close(found.forces, expected.forces)
        with torch.no_grad():
            network.output.weight.mul_(1.5)
