"""Every fast path against the literal equations in float64."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from geomatt.bench.literal import literal_energies_and_forces
from geomatt.bench.result import Bench, Check, Exactness
from geomatt.bench.settings import Settings
from geomatt.bench.stage import Stage
from geomatt.bench.systems import ELEMENTS, Workload, aspirin_frames, random_matter
from geomatt.bench.training import Trainee, new_network
from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.inference import Evaluator, Path
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.training.loss import Loss

DTYPES = (torch.float64, torch.float32)
GOALS = {torch.float64: 1e-6, torch.float32: 1e-4}
PATHS: tuple[Path, ...] = ("dense", "sparse")
LITERAL = "literal, float64"


def molecule_exactness(bench: Bench, settings: Settings, stage: Stage) -> None:
    """Aspirin: both paths of evaluation, and the training step's loss and gradient."""
    workload = aspirin_frames(
        settings.batch, settings.batch, seed=settings.seed, device=settings.device, dtype=torch.float64
    )
    network = new_network(settings.config(ELEMENTS), settings.device, settings.seed).double()
    system = f"aspirin, {workload.atoms} atoms"
    with stage("exactness", 2 + len(PATHS) * len(DTYPES)) as advance:
        energies, forces = literal_energies_and_forces(network, workload.numbers, workload.positions)
        numbers = workload.numbers.expand(settings.batch, -1)
        for path in PATHS:
            for dtype in DTYPES:
                found = _infer(network, numbers, workload.positions, path, dtype)
                bench.exactness.append(
                    _entry(path, system, dtype, LITERAL, energies, forces, found, settings.quick)
                )
                advance(1)
        for dtype in DTYPES:
            bench.exactness.append(_gradient(network, workload, system, dtype, settings))
            advance(1)


def matter_exactness(bench: Bench, settings: Settings, stage: Stage) -> None:
    """Random matter: a small piece against the literal equations, a larger one against all pairs."""
    small, large = settings.exact_sizes
    cases = [(small, bias) for bias in (False, True)] + [(large, bias) for bias in (False, True)]
    with stage("exactness of random matter", len(cases)) as advance:
        for atoms, bias in cases:
            z, r = random_matter(atoms, settings.seed)
            numbers = torch.from_numpy(z).to(settings.device)[None]
            positions = torch.from_numpy(r).to(settings.device)[None]
            config = settings.config((1, 6, 7, 8), bias=bias)
            network = new_network(config, settings.device, settings.seed).double()
            system = f"random matter, {atoms} atoms, {'with' if bias else 'without'} bias"
            if atoms == small:
                reference = LITERAL
                energies, forces = literal_energies_and_forces(network, numbers[0], positions)
            else:
                reference = "dense, float64"
                try:
                    energies, forces = _infer(network, numbers, positions, "dense", torch.float64)
                except torch.OutOfMemoryError:
                    bench.notes.append(f"Exactness of {system} was not measured: too large for all pairs.")
                    torch.cuda.empty_cache()
                    advance(1)
                    continue
            for path in PATHS if atoms == small else PATHS[1:]:
                # With a bias features grow with the number of atoms: float32 is not promised there.
                for dtype in DTYPES[:1] if bias else DTYPES:
                    found = _infer(network, numbers, positions, path, dtype)
                    bench.exactness.append(
                        _entry(path, system, dtype, reference, energies, forces, found, settings.quick)
                    )
            advance(1)


def _infer(
    network: GeometricAttention, numbers: Tensor, positions: Tensor, path: Path, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Energies (B,) and forces (B, N, 3) by one path in one precision."""
    batch = Batch(numbers, positions.to(dtype))
    found = Evaluator(copy.deepcopy(network).to(dtype))(batch, forces=True, attention=False, path=path)
    assert found.forces is not None
    return found.atomic.double().sum(-1), found.forces.double()


def _gradient(
    network: GeometricAttention, workload: Workload, system: str, dtype: torch.dtype, settings: Settings
) -> Exactness:
    """Loss and gradient of a training step; Adam's first average after one step is (1 − β₁) of it."""
    reference = copy.deepcopy(network)
    energies, forces = literal_energies_and_forces(
        reference, workload.numbers, workload.positions, create_graph=True
    )
    atoms = torch.full((settings.batch,), workload.atoms, device=workload.device)
    loss = Loss()(energies - workload.energy, forces - workload.forces, atoms)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(reference.parameters()))])

    narrow = Workload(
        workload.numbers,
        workload.positions.to(dtype),
        workload.energy.to(dtype),
        workload.forces.to(dtype),
        workload.batches,
    )
    trainee = Trainee([narrow], [copy.deepcopy(network).to(dtype)], settings.batch)
    order = torch.arange(settings.batch, device=workload.device)[None]
    sums = trainee.stepper.run_epoch(order, settings.batch, [0.0])
    own_loss, true_loss = sums.per_member()[0][0] / settings.batch, float(loss.detach())
    own = trainee.stepper.state(0)["first"].double() / (1.0 - trainee.stepper.betas[0])
    by_loss = abs(own_loss - true_loss) / true_loss
    by_gradient = float((own - gradient).norm() / gradient.norm())
    return _judged("training step", system, dtype, LITERAL, by_loss, by_gradient, settings.quick)


def _entry(
    path: str,
    system: str,
    dtype: torch.dtype,
    reference: str,
    energies: Tensor,
    forces: Tensor,
    found: tuple[Tensor, Tensor],
    quick: bool,
) -> Exactness:
    energy = float(((found[0] - energies).abs() / energies.abs()).max())
    force = float((found[1] - forces).abs().max() / forces.square().mean().sqrt())
    return _judged(path, system, dtype, reference, energy, force, quick)


def _judged(
    path: str, system: str, dtype: torch.dtype, reference: str, energy: float, force: float, quick: bool
) -> Exactness:
    goal = GOALS[dtype]
    checks = () if quick else (Check("energy", energy, goal, True), Check("forces", force, goal, True))
    return Exactness(path, system, _name(dtype), reference, energy, force, checks)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
