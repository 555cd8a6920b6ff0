"""Every engine of a network against automatic differentiation in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from geomatt.bench.report import Check, Exactness
from geomatt.bench.systems import MATTER, random_matter
from geomatt.bench.workbench import Workbench
from geomatt.data import Batch
from geomatt.model import Network, Normalisation, Potential
from geomatt.training import Loss, Stepper

GOALS = {torch.float64: 1e-6, torch.float32: 1e-4}
REFERENCE = "autograd"


def molecule_exactness(bench: Workbench) -> None:
    """Aspirin: energies and forces by every engine, and loss and gradient of a training step."""
    frames = bench.frames(bench.settings.batch, dtype=torch.float64)
    network, system = bench.network().double(), f"aspirin, {frames.numbers.shape[1]} atoms"
    with bench.stage(f"exactness, {bench.model}", 2) as advance:
        _compare(bench, network, frames, system)
        advance(1)
        true_loss, gradient = _step(network, frames, REFERENCE)
        for dtype in GOALS:
            loss, own = _step(copy.deepcopy(network).to(dtype), _cast(frames, dtype), "auto")
            errors = (abs(loss - true_loss) / true_loss, float((own - gradient).norm() / gradient.norm()))
            _add(bench, "training step", system, dtype, REFERENCE, errors)
        advance(1)


def matter_exactness(bench: Workbench) -> None:
    """Random matter: a small piece against automatic differentiation, a larger one against all pairs."""
    small, large = bench.settings.exact_sizes
    variants = [bench.with_radius, *([{}] if bench.with_radius else [])]
    cases = [(atoms, variant) for atoms in (small, large) for variant in variants]
    with bench.stage(f"exactness of random matter, {bench.model}", len(cases)) as advance:
        for atoms, variant in cases:
            matter = random_matter(atoms, seed=bench.settings.seed, device=bench.settings.device)
            network = bench.network(MATTER, **variant).double()
            said = "".join(f", {name} {value}" for name, value in variant.items())
            reference = REFERENCE if atoms == small or "dense" not in network.engines() else "dense"
            # Features of a network without a radius grow with the number of atoms: float32 is too coarse.
            dtypes = [torch.float64] if network.radius is None and bench.with_radius else GOALS
            try:
                _compare(bench, network, matter, f"random matter, {atoms} atoms{said}", reference, dtypes)
            except torch.OutOfMemoryError:
                bench.report.notes.append(f"Not enough memory for the exactness of {atoms} atoms{said}.")
                torch.cuda.empty_cache()
            advance(1)


def _compare(
    bench: Workbench,
    network: Network,
    batch: Batch,
    system: str,
    reference: str = REFERENCE,
    dtypes: Iterable[torch.dtype] = tuple(GOALS),
) -> None:
    """Energies and forces of one batch by all engines."""
    energies, forces = _evaluate(network, batch, reference)
    # "pairs" is "dense" for systems so large that "dense" is the reference.
    left_out = ("auto", REFERENCE) if reference == REFERENCE else ("auto", REFERENCE, "dense", "pairs")
    for engine in [name for name in network.engines() if name not in left_out] or ["auto"]:
        for dtype in dtypes:
            energy, own = _evaluate(copy.deepcopy(network).to(dtype), _cast(batch, dtype), engine)
            by_energy = float(((energy - energies).abs() / energies.abs()).max())
            by_forces = float((own - forces).abs().max() / forces.square().mean().sqrt())
            _add(bench, engine, system, dtype, reference, (by_energy, by_forces))


def _evaluate(network: Network, batch: Batch, engine: str) -> tuple[Tensor, Tensor]:
    """Energies and forces in float64."""
    output = Potential(network, Normalisation(), engine=engine).evaluate(batch, keep=True)
    assert output.forces is not None
    return output.energy, output.forces.double()


def _step(network: Network, frames: Batch, engine: str) -> tuple[float, Tensor]:
    """Loss and gradient of a training step on all frames."""
    stepper = Stepper([network], frames.as_member(), Loss(), engine=engine)
    order = torch.arange(len(frames), device=frames.numbers.device)[None]
    sums = stepper.run_epoch(order, len(frames), [0.0])
    return sums.per_member()[0][0] / len(frames), stepper.gradient(order)[0].double()


def _cast(batch: Batch, dtype: torch.dtype) -> Batch:
    return batch.apply(lambda x: x.to(dtype) if x.is_floating_point() else x)


def _add(
    bench: Workbench, path: str, system: str, dtype: torch.dtype, reference: str, errors: tuple[float, float]
) -> None:
    goals = [] if bench.settings.quick else [GOALS[dtype]] * 2
    checks = [
        Check(w, e, goal, True) for w, e, goal in zip(("energy", "forces"), errors, goals, strict=False)
    ]
    name = str(dtype).removeprefix("torch.")
    bench.report.exactness.append(
        Exactness(path, system, name, f"{reference}, float64", *errors, bench.model, checks)
    )
