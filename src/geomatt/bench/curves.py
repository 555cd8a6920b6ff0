"""The suite `curves`: the fast engine learns the same as automatic differentiation.

Same seed, data, order of batches, loss and optimiser; validation errors after every epoch. Rounding differs,
so the weights differ after some epochs, but the curves must agree.
"""

from __future__ import annotations

import numpy as np
import torch

from geomatt.bench.report import Check, Curve
from geomatt.bench.settings import LITERAL
from geomatt.bench.workbench import Workbench
from geomatt.data import Batch, collate, ethanol
from geomatt.model import Normalisation
from geomatt.training import Loss, Stepper, normalised
from geomatt.units import from_ev

LEARNING_RATE, BATCH, UNIT = 1e-3, 10, "kcal/mol"
LAST = 5  # epochs whose mean is compared in the end
GOAL = 1.05  # ratio of the errors by then


def curves_suite(bench: Workbench) -> None:
    """Train the embedded ethanol twice, from the same weights; of several networks only the first."""
    if bench.report.curves:
        return
    settings = bench.settings
    epochs, frames, held_out = settings.curve_epochs, *settings.curve_frames
    data = ethanol()
    seen = data.select(np.random.default_rng(settings.seed).permutation(len(data))[: frames + held_out])
    normalisation = Normalisation.fit(seen)
    scale = normalisation.scale * from_ev(UNIT)

    def targets(indices: range) -> Batch:
        batch = collate([seen[i] for i in indices], torch.float32, settings.device)
        return normalised(batch, normalisation).as_member()

    training, validation = targets(range(frames)), targets(range(frames, frames + held_out))
    rates, ends = [LEARNING_RATE] * -(-frames // BATCH), []
    for name, engine in ((bench.model, "auto"), (LITERAL, "autograd")):
        stepper = Stepper([bench.network(tuple(data.elements))], training, Loss(), engine=engine)
        generator = torch.Generator().manual_seed(settings.seed)
        energy, forces = [], []
        with bench.stage(f"{epochs} epochs, {name}", epochs) as advance:
            for _ in range(epochs):
                stepper.run_epoch(torch.randperm(frames, generator=generator)[None], BATCH, rates)
                _, energy_sum, force_sum, count, components = stepper.validate(validation).per_member()[0]
                energy.append(scale * energy_sum / count)
                forces.append(scale * force_sum / components)
                advance(1)
        bench.report.curves.append(Curve(name, UNIT, tuple(energy), tuple(forces)))
        ends.append(float(np.mean(forces[-LAST:])))
    if not settings.quick:
        what = f"force error, last {LAST} epochs, over {LITERAL}'s"
        bench.report.curve_check = Check(what, ends[0] / ends[1], GOAL, True, "×")
