"""The suite `curves`: the fast path learns what the literal equations learn.

Same seed, data, order of batches, loss and Adam; validation errors after every epoch. Rounding differs, so
the weights part after some epochs, but the curves must not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch

from geomatt.bench.literal import literal_energies_and_forces
from geomatt.bench.result import Bench, Check, Curve
from geomatt.bench.settings import Settings
from geomatt.bench.stage import Stage
from geomatt.bench.training import new_network
from geomatt.data.batch import collate
from geomatt.data.public.embedded import ethanol
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.normalisation import Normalisation
from geomatt.training.loss import Loss
from geomatt.training.step import ErrorSums, Stepper, Targets
from geomatt.training.trainer import epoch_order
from geomatt.units import from_ev

LEARNING_RATE, BATCH, UNIT = 1e-3, 10, "kcal/mol"
LAST = 5  # epochs whose mean is compared in the end
GOAL = 1.05  # ratio of the errors by then
VALIDATED = 100  # structures at once

Epoch = Callable[[int], ErrorSums]  # trains an epoch, then validates


def curves_suite(bench: Bench, settings: Settings, stage: Stage) -> None:
    """Train the embedded ethanol twice, from the same weights."""
    epochs, frames, held_out = settings.curve_epochs, *settings.curve_frames
    chosen = np.random.default_rng(settings.seed).permutation(len(data := ethanol()))[: frames + held_out]
    seen = data.select(chosen)
    normalisation = Normalisation.fit(seen)
    scale = normalisation.scale * from_ev(UNIT)

    def targets(indices: range) -> Targets:
        batch = collate([seen[i] for i in indices], torch.float32, settings.device)
        return Targets.from_batch(batch, normalisation)

    training, validation = targets(range(frames)), targets(range(frames, frames + held_out))
    network = new_network(settings.config(tuple(data.elements)), settings.device, settings.seed)
    contenders = {
        "geomatt": _fast(copy.deepcopy(network), training, validation, settings.seed),
        "literal": _literal(copy.deepcopy(network), training, validation, settings.seed),
    }
    for name, run in contenders.items():
        energy, forces = [], []
        with stage(f"{epochs} epochs, {name}", epochs) as advance:
            for epoch in range(epochs):
                ((_, energy_sum, force_sum, structures, components),) = run(epoch).per_member()
                energy.append(scale * energy_sum / structures)
                forces.append(scale * force_sum / components)
                advance(1)
        bench.curves.append(Curve(name, UNIT, tuple(energy), tuple(forces)))
    if not settings.quick:
        ours, literal = (float(np.mean(curve.forces[-LAST:])) for curve in bench.curves)
        bench.curve_check = Check(
            f"force error, last {LAST} epochs, over literal's", ours / literal, GOAL, True, "×"
        )


def _fast(network: GeometricAttention, training: Targets, validation: Targets, seed: int) -> Epoch:
    stepper = Stepper([network], training, Loss())

    def run(epoch: int) -> ErrorSums:
        order = epoch_order(training.count, seed, epoch)[None]
        stepper.run_epoch(order, BATCH, [LEARNING_RATE] * -(-training.count // BATCH))
        return stepper.validate(validation)

    return run


def _literal(network: GeometricAttention, training: Targets, validation: Targets, seed: int) -> Epoch:
    optimiser, loss = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE), Loss()
    device = training.energy.device

    def errors(targets: Targets, rows: torch.Tensor, learn: bool) -> tuple[torch.Tensor, ...]:
        part = targets.rows(rows[None])
        assert part.forces is not None
        # One molecule: the same atoms in every structure.
        energy, forces = literal_energies_and_forces(
            network, part.numbers[0, 0], part.positions[0], create_graph=learn
        )
        return (energy - part.energy[0])[None], (forces - part.forces[0])[None], part.numbers

    def run(epoch: int) -> ErrorSums:
        for rows in epoch_order(training.count, seed, epoch).to(device).split(BATCH):
            energy, forces, numbers = errors(training, rows, learn=True)
            optimiser.zero_grad()
            loss(energy, forces, (numbers > 0).sum(-1)).sum().backward()
            optimiser.step()
        sums = ErrorSums(1, device)
        for rows in torch.arange(validation.count, device=device).split(VALIDATED):
            energy, forces, numbers = errors(validation, rows, learn=False)
            sums.add(loss(energy, forces, (numbers > 0).sum(-1)), energy, forces, numbers)
            sums.structures += len(rows)
        return sums

    return run
