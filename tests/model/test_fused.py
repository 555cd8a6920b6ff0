"""The Triton program against `DenseProgram`: on a GPU where there is one, else in Triton's interpreter.

Triton decides for the interpreter when it is first imported, so that happens in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from geomatt.model.geometric_attention.dense.program import DenseProgram

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.training.loss import Loss, loss_slopes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PRECISION, TOLERANCE = ("bf16x3", 3e-4) if DEVICE == "cuda" else ("ieee", 2e-6)
SMALL = {  # few and small programs: the interpreter runs them one after the other
    "chunks": 1, "overlap_rows": 64, "overlap_pairs": 128, "overlap_steps": 1, "folded_rows": 64,
    "folded_splits": 2, "folded_k": 32,
}  # fmt: skip

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
runs_kernels = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="no GPU, no interpreter")
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, inside the interpreter
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton"),
]


@pytest.mark.skipif(DEVICE == "cuda" or INTERPRETED, reason="the tests below run by themselves")
def test_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.fixture(scope="module")
def fused() -> ModuleType:
    from geomatt.model.geometric_attention.gpu import program as fused

    if INTERPRETED:
        from triton.runtime import interpreter

        scope = interpreter._LangPatchScope
        original = scope.set_attr

        def set_attr(self: Any, owner: Any, name: str, value: Any) -> None:
            """The interpreter's int(array) fails with newer numpy."""
            index = (lambda t: int(t.handle.data.item())) if name == "__index__" else value
            original(self, owner, name, index)

        scope.set_attr = set_attr
    return fused


def problem(
    bias: bool = True, orders: tuple[int, ...] = (2, 3, 4)
) -> tuple[GeometricAttentionConfig, dict[str, Any]]:
    """Two networks, with padding atoms, an odd number of everything, and data sets larger than a batch."""
    torch.manual_seed(0)
    config = GeometricAttentionConfig(
        (1, 6, 8), orders=orders, layers=2, features=20, overlap_features=12, gamma=4.0, d_max=3.0,
        spacing=0.2, bias=bias,
    )  # fmt: skip
    members, count, atoms = 2, 3, 5
    networks = [GeometricAttention(config).float() for _ in range(members)]
    parameters = {
        name: torch.stack([n.state_dict()[name] for n in networks]).to(DEVICE)
        for name in networks[0].state_dict()
    }
    numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (members, count, atoms))]
    numbers[0, 0, -2:] = 0
    data = {
        "parameters": parameters,
        "numbers": numbers.to(DEVICE),
        "positions": (1.3 * torch.randn(members, count, atoms, 3)).to(DEVICE),
        "energy": torch.randn(members, count).to(DEVICE),
        "forces": (0.01 * torch.randn(members, count, atoms, 3) * (numbers > 0)[..., None]).to(DEVICE),
        "index": torch.tensor([[0, 2], [1, 0]], device=DEVICE),
        "names": [name for name, _ in networks[0].named_parameters()],
    }
    return config, data


def reference(
    config: GeometricAttentionConfig, data: dict[str, Any], loss: Loss, forces: bool
) -> tuple[torch.Tensor, ...]:
    """The gradient and the errors in float64."""
    member = torch.arange(2, device=DEVICE)[:, None]
    numbers, positions, energy, labels = (
        data[name][member, data["index"]] for name in ("numbers", "positions", "energy", "forces")
    )
    parameters = {n: p.double() if p.is_floating_point() else p for n, p in data["parameters"].items()}
    program = DenseProgram(config)
    f = program.forward(program.prepare(parameters), numbers, positions.double())
    a = program.adjoints(f)
    energy_error = f.atomic.sum(-1) - energy.double()
    force_error = program.forces(f, a) - labels.double() if forces else None
    slopes = loss_slopes(loss, energy_error, force_error, (numbers > 0).sum(-1))
    gradient = program.gradient(f, a, *slopes)
    flat = torch.cat([gradient[name].reshape(2, -1) for name in data["names"]], 1)
    return flat, energy_error, program.forces(f, a) if force_error is None else force_error


def close(x: torch.Tensor, y: torch.Tensor, tolerance: float = TOLERANCE) -> bool:
    return bool((x.double() - y.double()).abs().max() <= tolerance * y.double().abs().max())


@runs_kernels
@pytest.mark.parametrize(("weighting", "bias", "forces"), [("authors", True, True), ("paper", False, False)])
def test_gradient_and_errors_are_those_of_the_dense_program(
    fused: ModuleType, weighting: Any, bias: bool, forces: bool
) -> None:
    config, data = problem(bias, (2, 3, 4) if forces else (3, 2))
    loss = Loss(weighting, rho=0.3)
    program = fused.FusedProgram(config, 2, 2, 5, DEVICE, precision=PRECISION, tune=SMALL)
    sums = torch.zeros(4, 2, dtype=torch.float64, device=DEVICE)
    gradient, energy_error, force_error = program.gradient(
        data["parameters"], data["numbers"], data["positions"], data["energy"],
        data["forces"] if forces else None, loss, index=data["index"], sums=sums,
    )  # fmt: skip
    expected, by_energy, by_forces = reference(config, data, loss, forces)
    offset = 0
    for name in data["names"]:  # each by itself, since their sizes differ
        size = data["parameters"][name][0].numel()
        assert close(gradient[:, offset : offset + size], expected[:, offset : offset + size]), name
        offset += size
    assert close(energy_error, by_energy)
    assert close(sums[1], by_energy.abs().sum(1))
    if forces:
        assert close(force_error, by_forces)
        assert close(sums[2], by_forces.abs().sum((1, 2, 3)))
        atoms = (data["numbers"][torch.arange(2)[:, None], data["index"].cpu()] > 0).sum(-1)
        assert close(sums[0], loss(by_energy, by_forces, atoms) * 2)
        values = program.energies_and_forces(
            data["parameters"], data["numbers"], data["positions"], data["index"]
        )
        member = torch.arange(2, device=DEVICE)[:, None]
        assert close(values[0], by_energy + data["energy"][member, data["index"]])
        assert close(values[1], by_forces + data["forces"][member, data["index"]])
    else:
        assert force_error is None


@runs_kernels
def test_adam_is_torchs(fused: ModuleType) -> None:
    from geomatt.training.fused_update import FusedAdam

    torch.manual_seed(0)
    theta = torch.nn.Parameter(torch.randn(2, 700, device=DEVICE))
    optimizer = torch.optim.Adam([theta], lr=1e-3)
    ours, first, second = theta.detach().clone(), torch.zeros_like(theta.data), torch.zeros_like(theta.data)
    average = ours.clone()
    steps = torch.zeros((), dtype=torch.float64, device=DEVICE)
    rate = torch.full((), 1e-3, dtype=torch.float64, device=DEVICE)
    adam = FusedAdam(ema_decay=0.9)
    expected = average.clone()
    for step in range(1, 4):
        theta.grad = torch.randn_like(theta)
        adam.step(ours, theta.grad, first, second, steps, rate, average)
        optimizer.step()
        expected.lerp_(theta.data, max(0.1, 9.0 / (9.0 + step)))
    assert steps.item() == 3
    assert torch.allclose(ours, theta.data, atol=1e-6)
    assert torch.allclose(average, expected, atol=1e-6)


@runs_kernels
def test_supports(fused: ModuleType) -> None:
    supports = fused.FusedProgram.supports
    assert supports(GeometricAttentionConfig((1, 6)), 21)
    assert not supports(GeometricAttentionConfig((1, 6)), 65)
    assert not supports(GeometricAttentionConfig((1, 6), orders=(2, 5)), 21)
    assert not supports(GeometricAttentionConfig((1, 6), layers=6), 21)
