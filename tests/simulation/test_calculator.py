"""The ASE calculator: results, caching, precision, committees, walls, and invalid input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import small_network

ase = pytest.importorskip("ase")

from geomatt import (  # noqa: E402
    Committee,
    Dataset,
    GeomAttCalculator,
    GeomAttError,
    Potential,
    Structure,
    save,
)
from geomatt.data import ethanol  # noqa: E402
from geomatt.model import Normalisation, new_network  # noqa: E402
from geomatt.model.domain import Domain  # noqa: E402
from geomatt.model.geometric_attention.config import GeometricAttentionConfig  # noqa: E402
from geomatt.model.geometric_attention.network import GeometricAttention  # noqa: E402

CONFIG = GeometricAttentionConfig(
    elements=(1, 6, 8), orders=(2, 3), layers=1, features=8, overlap_features=16, gamma=8.0, d_max=3.0,
    spacing=0.25,
)  # fmt: skip


def make(seed=0, dtype=torch.float64) -> Potential:
    torch.manual_seed(seed)
    return Potential(GeometricAttention(CONFIG).to(dtype), Normalisation(-4214.0, 0.5))


def water():
    return ase.Atoms("OH2", [[5.0, 0, 0], [5.96, 0, 0], [4.76, 0.93, 0]])


def count_calls(calculator, monkeypatch):
    calls = []
    original = calculator.calculate
    monkeypatch.setattr(calculator, "calculate", lambda *a, **k: (calls.append(1), original(*a, **k)))
    return calls


def test_agrees_with_the_potential(tmp_path):
    potential, atoms = make(), water()
    save(potential, tmp_path / "m.safetensors")
    atoms.calc = GeomAttCalculator(tmp_path / "m.safetensors")
    expected = potential.predict([Structure(atoms.numbers, atoms.positions)])[0]
    assert atoms.get_potential_energy() == expected.energy
    assert atoms.get_potential_energy(force_consistent=True) == expected.energy
    np.testing.assert_array_equal(atoms.get_forces(), expected.forces)
    np.testing.assert_allclose(atoms.get_potential_energies().sum(), expected.energy, rtol=1e-14)
    assert atoms.calc.energy_spread is None
    assert atoms.calc.forces_spread is None
    properties = atoms.calc.export_properties()  # ASE chokes here on names it does not know
    assert properties["forces"].shape == (3, 3)


def test_forces_are_derivatives_of_the_energy():
    from ase.calculators.fd import calculate_numerical_forces

    atoms = water()
    atoms.calc = GeomAttCalculator(make())
    np.testing.assert_allclose(atoms.get_forces(), calculate_numerical_forces(atoms, 1e-4), atol=1e-6)


@pytest.mark.filterwarnings("ignore:The model does not use")
def test_caching(monkeypatch):
    atoms = water()
    atoms.calc = GeomAttCalculator(make())
    calls = count_calls(atoms.calc, monkeypatch)
    atoms.get_forces()
    atoms.get_potential_energy()
    atoms.get_potential_energies()
    assert len(calls) == 1  # one evaluation answers all
    atoms.cell = [9, 9, 9]
    atoms.set_initial_charges([0.1, 0, 0])
    atoms.get_forces()
    assert len(calls) == 1  # neither enters the energy
    before = atoms.get_potential_energy()
    atoms.positions[0, 0] += 0.1
    assert atoms.get_potential_energy() != before
    atoms.numbers[0] = 6
    assert atoms.calc.calculation_required(atoms, ["energy"])
    changed = atoms.get_potential_energy()
    fresh = atoms.copy()
    fresh.calc = GeomAttCalculator(make())
    assert fresh.get_potential_energy() == changed
    del atoms[2]
    assert atoms.get_forces().shape == (2, 3)
    assert len(calls) == 4


def test_every_change_of_the_atoms_is_evaluated(monkeypatch):
    network = small_network(orders=(2, 3), bias=False)
    atoms = water()
    atoms.cell = [8, 8, 8]
    atoms.calc = GeomAttCalculator(Potential(network, Normalisation()), dtype="float64")
    calls = count_calls(atoms.calc, monkeypatch)

    def counted() -> int:
        for _ in range(2):  # asked twice, computed once
            forces = atoms.get_forces()
            fresh = atoms.copy()
            fresh.calc = GeomAttCalculator(Potential(network, Normalisation()), dtype="float64")
            np.testing.assert_allclose(forces, fresh.get_forces(), atol=1e-14)
        return len(calls)

    assert counted() == 1
    atoms.positions[1] += 1e-3  # in place
    assert counted() == 2
    atoms.positions[1] += 1e-17  # within the tolerance
    assert counted() == 2
    atoms.pbc = [True, True, False]
    assert counted() == 3
    atoms.cell[0, 0] = 7.5
    assert counted() == 4
    atoms.pbc = True
    assert counted() == 5
    atoms.cell[2, 2] = 7.5
    assert counted() == 6
    atoms.pbc = False
    assert counted() == 7
    atoms.numbers[:] = [1, 8, 1]
    assert counted() == 8
    atoms.set_momenta(np.ones((3, 3)))
    atoms.info["name"] = "water"
    assert counted() == 8
    atoms.extend(ase.Atoms("H", [[0, 0, 3.0]]))
    assert counted() == 9


def test_calculate_called_directly_keeps_its_atoms():
    first, second = water(), water()
    second.positions[0] += 0.1
    calculator = GeomAttCalculator(make())
    calculator.calculate(first)
    energy = calculator.results["energy"]
    calculator.calculate(second)
    assert calculator.results["energy"] != energy
    np.testing.assert_array_equal(calculator.get_atoms().positions, second.positions)
    second.positions[0] += 1.0  # the calculator has a copy
    assert calculator.check_state(second) == ["positions"]
    first.calc = calculator
    assert first.get_potential_energy() == energy


def test_results_are_not_shared():
    atoms = water()
    atoms.calc = GeomAttCalculator(make())
    forces = atoms.get_forces()
    kept = forces.copy()
    forces += 1.0
    np.testing.assert_array_equal(atoms.get_forces(), kept)
    old = atoms.calc.results["forces"]
    atoms.rattle(0.1, seed=1)
    atoms.get_forces()
    np.testing.assert_array_equal(old, kept)


def test_precision_leaves_the_callers_model_alone():
    potential = make(dtype=torch.float32)
    single, double = water(), water()
    single.calc = GeomAttCalculator(potential)
    double.calc = GeomAttCalculator(potential, dtype="float64")
    assert potential.dtype == torch.float32
    assert single.get_potential_energy() == pytest.approx(double.get_potential_energy(), abs=1e-5)
    assert single.get_forces().dtype == np.float64
    np.testing.assert_allclose(single.get_forces(), double.get_forces(), atol=1e-4)


def test_committee(tmp_path):
    members = [make(seed) for seed in range(3)]
    for k, member in enumerate(members):
        save(member, tmp_path / f"member_{k}" / "model.safetensors")
    atoms = water()
    expected = Committee(members).predict([Structure(atoms.numbers, atoms.positions)])[0]
    for source in (tmp_path, Committee(members)):
        atoms.calc = GeomAttCalculator(source)
        assert atoms.get_potential_energy() == pytest.approx(expected.energy, abs=1e-12)
        np.testing.assert_allclose(atoms.get_forces(), expected.forces, atol=1e-12)
        assert atoms.calc.energy_spread == pytest.approx(expected.energy_spread)
        np.testing.assert_allclose(atoms.calc.forces_spread, expected.forces_spread)
        atoms.calc.export_properties()
    atoms.calc.reset()
    assert atoms.calc.energy_spread is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_agrees_with_cpu():
    here, there = water(), water()
    here.calc, there.calc = GeomAttCalculator(make()), GeomAttCalculator(make(), device="cuda")
    assert there.get_potential_energy() == pytest.approx(here.get_potential_energy(), abs=1e-10)
    np.testing.assert_allclose(there.get_forces(), here.get_forces(), atol=1e-10)


def test_refusals():
    atoms = water()
    atoms.calc = GeomAttCalculator(make())
    atoms.get_forces()
    atoms.pbc = [True, False, False]
    with pytest.raises(GeomAttError, match="pbc to False"):
        atoms.get_forces()
    atoms.pbc = False
    atoms.get_forces()
    atoms.positions[0, 0] = np.nan
    with pytest.raises(GeomAttError, match="not finite"):
        atoms.get_forces()
    for bad, message in (
        (ase.Atoms("N2", [[0, 0, 0], [1, 0, 0]]), "not trained on"),
        (ase.Atoms(), "no atoms"),
    ):
        bad.calc = GeomAttCalculator(make())
        with pytest.raises(GeomAttError, match=message):
            bad.get_potential_energy()
    with pytest.raises(GeomAttError, match="precision"):
        GeomAttCalculator(make(), dtype="half")


def test_optimises_and_goes_through_ase_files(tmp_path):
    from ase.io import read
    from ase.optimize import BFGS

    atoms = water()
    atoms.calc = GeomAttCalculator(make())
    start = atoms.get_potential_energy()
    BFGS(atoms, logfile=None).run(fmax=1e-4, steps=10)
    assert atoms.get_potential_energy() < start
    atoms.write(tmp_path / "a.extxyz")
    assert read(tmp_path / "a.extxyz").get_potential_energy() == pytest.approx(atoms.get_potential_energy())


def test_periodic_structures_and_their_stress():
    from ase.build import bulk

    network = small_network(orders=(2, 3), bias=False, elements=(6,))
    calculator = GeomAttCalculator(Potential(network, Normalisation(shift=-10.0, scale=2.0)), dtype="float64")
    atoms = bulk("C", "diamond", a=3.6)
    atoms.rattle(0.05, seed=1)
    atoms.calc = calculator
    energy, stress = atoms.get_potential_energy(), atoms.get_stress(voigt=False)
    cell = atoms.cell.copy()
    for axes in ((0, 0), (0, 1), (2, 2)):
        sides = []
        for sign in (1, -1):
            strain = np.eye(3)
            strain[axes] += sign * 1e-5
            strain = 0.5 * (strain + strain.T)
            atoms.set_cell(cell @ strain, scale_atoms=True)
            sides.append(atoms.get_potential_energy())
        atoms.set_cell(cell, scale_atoms=True)
        expected = (sides[0] - sides[1]) / 2e-5 / atoms.get_volume()
        assert stress[axes] == pytest.approx(expected, rel=1e-6, abs=1e-7)
    double = atoms.repeat((2, 1, 1))
    double.calc = calculator
    # The shift of the energy belongs to a structure, the rest grows with it.
    assert double.get_potential_energy() + 10.0 == pytest.approx(2 * (energy + 10.0), abs=1e-9)


@pytest.mark.parametrize("cell", [None, [10, 10, 0]], ids=["no cell", "flat cell"])
def test_a_periodic_direction_needs_a_lattice_vector(cell):
    network = small_network(orders=(2, 3), bias=False)
    atoms = water()
    atoms.pbc, atoms.cell = True, cell
    atoms.calc = GeomAttCalculator(Potential(network, Normalisation()))
    with pytest.raises(GeomAttError, match="lattice vector"):
        atoms.get_potential_energy()


def test_changed_weights_change_results():
    potential = make(dtype=torch.float32)
    structure = Structure(water().numbers, water().positions)
    before = potential.predict([structure])[0].energy
    with torch.no_grad():
        potential.network.overlaps[0].K.data.mul_(1.5)  # .data: torch's own bookkeeping does not see it
    assert abs(potential.predict([structure])[0].energy - before) > 1e-6


def test_warnings_about_composition_and_charge():
    potential = make(dtype=torch.float32)
    potential.normalisation = Normalisation(-4214.0, 0.5, composition={1: 2, 8: 1})
    potential.predict(water())  # one ASE Atoms, and what it was trained on: no warning
    with pytest.warns(UserWarning, match="H2O alone"):
        (prediction,) = potential.predict([ase.Atoms("OH", [[0, 0, 0], [0.96, 0, 0]])])
    assert np.isfinite(prediction.energy)
    with pytest.warns(UserWarning, match="charge"):
        potential.predict([Structure(water().numbers, water().positions, charge=1.0)])


def test_precision_by_name():
    assert make(dtype=torch.float32).to(dtype="float64").dtype == torch.float64
    with pytest.raises(GeomAttError, match="precision"):
        make().to(dtype="float16")


def stretched(data: Dataset, length: float):
    """Ethanol with a C–H bond of the given length."""
    first = data[0]
    positions = first.positions.copy()
    carbon, hydrogen = bonded(first)
    away = positions[hydrogen] - positions[carbon]
    positions[hydrogen] = positions[carbon] + length * away / np.linalg.norm(away)
    return ase.Atoms(first.numbers, positions)


def bonded(structure: Structure) -> tuple[int, int]:
    pairs = np.linalg.norm(structure.positions[:, None] - structure.positions[None], axis=-1)
    i, j = np.argwhere((pairs < 1.25) & (pairs > 0.5) & (structure.numbers[:, None] == 6))[0]
    return int(i), int(j)


def test_walls_act_outside_the_data_only_and_are_announced():
    data = ethanol()[:200]
    network = small_network(dtype=torch.float64)
    potential = Potential(network, Normalisation(), ranges=Domain.measure(data))
    inside, beyond = ase.Atoms(data[0].numbers, data[0].positions), stretched(data, 1.9)
    plain = GeomAttCalculator(potential, walls=False)
    walled = GeomAttCalculator(potential)
    assert walled.get_potential_energy(inside) == plain.get_potential_energy(inside)
    assert walled.wall_steps == 0
    with pytest.warns(UserWarning, match="outside its range"):
        raised = walled.get_potential_energy(beyond)
    with pytest.warns(UserWarning, match="outside its range"):
        free = plain.get_potential_energy(beyond)
    assert raised > free + 1.0
    assert walled.wall_steps == 1
    assert plain.wall_steps == 0
    carbon, hydrogen = bonded(data[0])
    pull = (walled.get_forces(beyond) - plain.get_forces(beyond))[hydrogen]
    towards = beyond.positions[carbon] - beyond.positions[hydrogen]
    assert pull @ towards > 0
    step, moved = 1e-5, []
    for sign in (1, -1):
        shifted = beyond.copy()
        shifted.positions[hydrogen, 0] += sign * step
        moved.append(walled.get_potential_energy(shifted))
    assert walled.get_forces(beyond)[hydrogen, 0] == pytest.approx(
        (moved[1] - moved[0]) / (2 * step), rel=1e-5
    )


@pytest.mark.filterwarnings("ignore:The distance between")
def test_walls_in_a_cell_remember_the_bonds_of_the_start():
    data = ethanol()[:50]
    potential = Potential(
        small_network(dtype=torch.float64, bias=False), Normalisation(), ranges=Domain.measure(data)
    )
    atoms = ase.Atoms(data[0].numbers, data[0].positions, cell=[12.0, 12, 12], pbc=True)
    walled, plain = GeomAttCalculator(potential), GeomAttCalculator(potential, walls=False)
    assert walled.get_potential_energy(atoms) == plain.get_potential_energy(atoms)
    atoms.positions = stretched(data, 3.0).positions  # no longer a bond
    assert walled.get_potential_energy(atoms) > plain.get_potential_energy(atoms) + 10.0


def test_overlapping_atoms_and_a_wrong_unit_are_announced():
    atoms = ase.Atoms("OH", [[0.0, 0, 0], [0.05, 0, 0]], calculator=GeomAttCalculator(make()))
    with pytest.warns(UserWarning, match=r"overlapping atoms: .* 0\.05 Å apart"):
        atoms.get_potential_energy()
    frame = ethanol()[0]
    atoms = ase.Atoms(frame.numbers, frame.positions / 0.529177)  # Bohr read as Å
    atoms.calc = GeomAttCalculator("md17/ethanol:pair-s")
    with pytest.warns(UserWarning, match=r"has no bonds .*unit of its positions"):
        atoms.get_potential_energy()


def test_another_isomer_is_announced_once():
    data = ethanol()[:50]
    potential = Potential(small_network(dtype=torch.float32), Normalisation(), ranges=Domain.measure(data))
    calculator = GeomAttCalculator(potential)
    numbers, positions = data[0].numbers, data[0].positions.copy()
    positions[int(np.flatnonzero(numbers == 1)[0])] += 5.0  # an atom far away
    with pytest.warns(UserWarning, match="has other bonds.*extrapolation"):
        calculator.get_potential_energy(ase.Atoms(numbers, positions))
    calculator.get_potential_energy(ase.Atoms(numbers, positions + 0.1))  # a second warning would be an error


def test_charges_and_moments_are_not_ignored_silently():
    calculator, atoms = GeomAttCalculator(make()), water()
    calculator.get_potential_energy(atoms)
    atoms.set_initial_charges([0.4, -0.8, 0.4])
    atoms.positions += 0.01
    with pytest.warns(UserWarning, match="does not use charges"):
        calculator.get_potential_energy(atoms)
    atoms.positions[0] += 0.01
    calculator.get_potential_energy(atoms)  # a second warning would be an error
    other = ase.Atoms(water().numbers, water().positions, magmoms=[0, 1.0, 0])
    with pytest.warns(UserWarning, match="magnetic moments|multiplicity"):
        GeomAttCalculator(make()).get_potential_energy(other)


def test_a_change_of_the_electrons_alone_is_computed():
    network = new_network("pair", {"channels": 4, "rounds": 1, "electrons": True}, (1, 8))
    torch.nn.init.normal_(network.electrons, generator=torch.Generator().manual_seed(0))
    potential, atoms = Potential(network, Normalisation()), water()
    atoms.calc = GeomAttCalculator(potential)
    neutral = atoms.get_potential_energy()
    atoms.info["charge"] = 1
    charged = atoms.get_potential_energy()
    assert charged != neutral
    assert charged == pytest.approx(
        potential.predict(Structure(atoms.numbers, atoms.positions, charge=1.0))[0].energy, rel=1e-6
    )
    atoms.info["charge"] = 0
    assert atoms.get_potential_energy() == neutral
    atoms.set_initial_magnetic_moments([2.0, 0, 0])
    assert atoms.get_potential_energy() not in (neutral, charged)


def test_invalid_models_and_elements_are_refused():
    with pytest.raises(GeomAttError, match="not None"):
        GeomAttCalculator(None)
    with pytest.raises(GeomAttError, match="no element"):
        GeomAttCalculator(make()).get_potential_energy(ase.Atoms("XO", [[0, 0, 0], [0, 0, 1]]))
    with pytest.raises(GeomAttError, match="holds Xe"):
        GeomAttCalculator(make()).get_potential_energy(ase.Atoms("XeO", [[0, 0, 0], [0, 0, 1]]))


def test_representation_is_one_line():
    potential = make()
    assert repr(potential).startswith("Potential(geometric-attention, ")
    assert "H C O" in repr(potential)
    assert max(len(repr(x)) for x in (potential, Committee([potential, potential]))) < 150
    assert "\n" not in repr(potential)


def test_hessian():
    potential = make()
    atoms = water()
    hessian = potential.hessian(atoms)
    assert hessian.shape == (9, 9)
    np.testing.assert_array_equal(hessian, hessian.T)
    step, energies = 1e-3, {}
    for a in (1, -1):
        for b in (1, -1):
            moved = atoms.copy()
            moved.positions[0, 1] += a * step
            moved.positions[2, 0] += b * step
            energies[a, b] = potential.predict(moved)[0].energy
    expected = (energies[1, 1] - energies[1, -1] - energies[-1, 1] + energies[-1, -1]) / (4 * step**2)
    assert hessian[1, 6] == pytest.approx(expected, rel=1e-2, abs=1e-3 * np.abs(hessian).max())
    # A shift of all atoms costs nothing.
    shift = np.tile(np.eye(3), (3, 1))
    assert np.abs(hessian @ shift).max() < 1e-4 * np.abs(hessian).max()
