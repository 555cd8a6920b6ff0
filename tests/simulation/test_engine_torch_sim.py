"""torch-sim: the results and dynamics of ASE, many systems at once, walls, and invalid input."""

from __future__ import annotations

import importlib
from functools import partial

import numpy as np
import pytest
import torch
from ase import Atoms, units
from engine_molecule import (
    ANOTHER,
    OUTSIDE,
    STEPS,
    TIMESTEP,
    charged,
    float32_potential,
    hide,
    other_element,
    overlapping,
    periodic,
    reference,
)

from geomatt import GeomAttCalculator, GeomAttError

ts = pytest.importorskip("torch_sim", reason="torch-sim is not installed (pip install 'geomatt[torch-sim]')")

from geomatt.simulation.engines import TorchSimModel  # noqa: E402

MODULE = "geomatt.simulation.engines.torch_sim"


def state_of(atoms, model):
    return ts.initialize_state(atoms, model.device, model.dtype)


def nve(model, state, steps):
    zero = torch.zeros((), dtype=torch.float64, device=model.device)
    dt = zero + TIMESTEP * units.fs
    if hasattr(ts, "nve_step"):
        state, step = ts.nve_init(state, model, kT=zero), partial(ts.nve_step, model=model, dt=dt)
    else:  # before torch-sim 0.4
        start, step = ts.nve(model, dt=dt, kT=zero)
        state = start(state)
    for _ in range(steps):
        state = step(state)
    return state


@pytest.mark.filterwarnings(OUTSIDE)
def test_results_and_dynamics_are_those_of_ase():
    known = reference()
    model = TorchSimModel(known.potential)
    found = model(state_of(known.start, model))
    assert float(found["energy"][0]) == pytest.approx(known.energy, abs=1e-9)
    np.testing.assert_allclose(found["forces"], known.forces, atol=1e-9)
    assert "stress" not in found  # the network has no radius
    model = TorchSimModel(known.potential)
    end = nve(model, state_of(known.start, model), STEPS)
    np.testing.assert_allclose(end.positions, known.end, atol=1e-7)
    assert known.wall_steps - model.wall_steps[0] in (0, 1)  # newer versions copy the state after the start


@pytest.mark.filterwarnings(OUTSIDE, ANOTHER)
def test_systems_of_different_sizes_do_not_see_each_other():
    known = reference()
    water = Atoms("OH2", [[5.0, 0, 0], [5.96, 0, 0], [4.76, 0.93, 0]])
    moved = known.start.copy()
    moved.positions += [30.0, 0, 0]
    model = TorchSimModel(known.potential, walls=False)
    found = model(state_of([known.start, water, moved], model))
    calculator = GeomAttCalculator(known.potential, walls=False)
    expected = [calculator.get_potential_energy(a) for a in (known.start, water, moved)]
    np.testing.assert_allclose(found["energy"], expected, atol=1e-9)
    forces = np.concatenate([calculator.get_forces(a) for a in (known.start, water, moved)])
    np.testing.assert_allclose(found["forces"], forces, atol=1e-9)


@pytest.mark.filterwarnings(OUTSIDE, ANOTHER)
def test_another_number_of_systems_is_evaluated():
    known = reference()
    model = TorchSimModel(known.potential)
    both = state_of([known.start, known.start], model)
    model(both)
    one = model(both[0])
    assert one["energy"].shape == (1,)
    assert len(model.wall_steps) == 1
    both.atomic_numbers[0] = 8  # in place
    changed = model(both)
    assert float(changed["energy"][0]) != pytest.approx(float(changed["energy"][1]), abs=1e-6)


@pytest.mark.filterwarnings(OUTSIDE)
def test_energies_keep_their_digits_in_single_precision():
    model = TorchSimModel(float32_potential())
    found = model(state_of(reference().start, model))
    assert model.dtype == found["energy"].dtype == found["forces"].dtype == torch.float64
    assert float(found["energy"][0]) == pytest.approx(reference().energy, abs=1e-4)


@pytest.mark.filterwarnings(OUTSIDE)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_agrees_with_cpu():
    known = reference()
    model = TorchSimModel(known.potential, device="cuda")
    end = nve(model, state_of([known.start] * 3, model), STEPS)
    np.testing.assert_allclose(end.positions.reshape(3, -1, 3)[1].cpu(), known.end, atol=1e-6)
    assert (known.wall_steps - model.wall_steps <= 1).all()


@pytest.mark.filterwarnings(OUTSIDE)
def test_walls_can_be_turned_off():
    known = reference()
    model = TorchSimModel(known.potential, walls=False)
    free = model(state_of(known.start, model))["energy"]
    assert float(free[0]) < known.energy - 1.0
    assert model.wall_steps.tolist() == [0]


def test_leaving_the_data_is_announced_once():
    known = reference()
    model = TorchSimModel(known.potential)
    with pytest.warns(UserWarning, match="outside its range") as caught:
        nve(model, state_of(known.start, model), 3)
    assert len(caught) == 1


@pytest.mark.filterwarnings(OUTSIDE)
def test_a_system_that_diverges_is_named_and_leaves_the_others_alone(monkeypatch):
    monkeypatch.setattr("geomatt.simulation.engines.many_systems.WATCH", 1)
    known = reference()
    model = TorchSimModel(known.potential)
    state = state_of([known.start] * 3, model)
    before = model(state)["energy"]
    state.positions[9:18] = torch.nan
    with pytest.warns(UserWarning, match="positions of system 1 are not finite"):
        after = model(state)["energy"]
    assert bool(after[1].isnan())
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    model(state)  # a second warning would be an error


def test_periodic_cells_and_stress():
    potential, atoms = periodic()
    atoms.calc = GeomAttCalculator(potential)
    model = TorchSimModel(potential)
    found = model(state_of([atoms, atoms], model))
    np.testing.assert_allclose(found["energy"], atoms.get_potential_energy(), atol=1e-9)
    np.testing.assert_allclose(found["stress"][1], atoms.get_stress(voigt=False), atol=1e-9)
    np.testing.assert_allclose(found["forces"][: len(atoms)], atoms.get_forces(), atol=1e-9)
    molecule = atoms.copy()
    molecule.pbc = False
    assert bool(model(state_of(molecule, model))["stress"].isnan().all())


def test_relaxes_with_torch_sims_own_runner():
    _, atoms = periodic()
    model = TorchSimModel(periodic()[0])
    before = float(model(state_of(atoms, model))["energy"][0])
    relaxed = ts.optimize(
        system=[atoms, atoms],
        model=model,
        optimizer=getattr(ts, "Optimizer", ts.optimizers).fire,
        max_steps=20,
    )
    assert (relaxed.energy < before).all()


def test_charge_and_multiplicity():
    potential, atoms = charged()
    model = TorchSimModel(potential, charge=1, multiplicity=3)
    found = model(state_of([atoms, atoms], model))
    np.testing.assert_allclose(found["energy"], atoms.get_potential_energy(), atol=1e-9)
    np.testing.assert_allclose(found["forces"][: len(atoms)], atoms.get_forces(), atol=1e-9)


@pytest.mark.filterwarnings(OUTSIDE)
def test_refusals(monkeypatch):
    known = reference()
    model = TorchSimModel(known.potential)
    with pytest.raises(GeomAttError, match="system 1 holds N, which this model was not trained on"):
        model(state_of([known.start, other_element()], model))
    boxed = known.start.copy()
    boxed.pbc = True
    with pytest.raises(GeomAttError, match=r"is periodic, but in this model.*Set pbc to False"):
        model(state_of(boxed, model))
    with pytest.raises(GeomAttError, match="System 0 has overlapping atoms"):
        model(state_of(overlapping(), model))
    lost = known.start.copy()
    lost.positions[0] = np.nan
    with pytest.raises(GeomAttError, match="not finite"):
        model(state_of(lost, model))
    hide(monkeypatch, "torch_sim", MODULE)
    with pytest.raises(GeomAttError, match=r"pip install 'geomatt\[torch-sim\]'"):
        importlib.import_module(MODULE)
