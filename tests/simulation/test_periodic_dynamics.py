"""Dynamics of periodic cells: against ASE, constant pressure, restart, and the folder of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import small_network

from geomatt import Dataset, GeomAttError, Potential, Structure
from geomatt.data import collate, read
from geomatt.elements import ATOMIC_MASSES
from geomatt.files import sha256
from geomatt.model import Normalisation
from geomatt.model.domain import Domain
from geomatt.simulation.batched import BatchedDynamics
from geomatt.simulation.ensembles import DynamicsConfig
from geomatt.simulation.forces import PeriodicForces
from geomatt.simulation.md import run_dynamics
from geomatt.simulation.pressure import BAR, Barostat
from geomatt.simulation.replicas import Group, Replica
from geomatt.simulation.settings import MDSettings, RelaxSettings
from geomatt.units import BOLTZMANN, FEMTOSECOND


def crystal() -> Structure:
    rng = np.random.default_rng(3)
    cell = np.array([[4.2, 0.3, -0.2], [0.8, 4.0, 0.1], [-0.5, 0.6, 4.5]])
    grid = np.array([[x, y, z] for x in (0, 0.5) for y in (0, 0.5) for z in (0, 0.5)])[:6]
    positions = (grid + rng.normal(size=grid.shape) * 0.02) @ cell
    return Structure(np.array([1, 6, 8, 1, 6, 8]), positions, cell=cell, pbc=(True, True, True))


def make() -> Potential:
    network = small_network(bias=False)
    return Potential(network, Normalisation(-10.0, 0.02))


def test_same_trajectory_as_ase():
    ase = pytest.importorskip("ase")
    from ase.md.verlet import VelocityVerlet

    from geomatt.simulation import GeomAttCalculator

    start, model = crystal(), make()
    velocities = 0.02 * np.random.default_rng(0).normal(size=(6, 3))
    atoms = ase.Atoms(
        start.numbers, start.positions, cell=start.cell, pbc=True, calculator=GeomAttCalculator(model)
    )
    atoms.set_masses(ATOMIC_MASSES[start.numbers - 1])
    atoms.set_velocities(velocities)
    VelocityVerlet(atoms, 0.5 * FEMTOSECOND).run(20)
    replica = replace(Replica.of(start), velocities=velocities)
    forces = PeriodicForces(model, collate([start], torch.float64, "cpu"))
    dynamics = BatchedDynamics([Group([replica], forces)], DynamicsConfig(ensemble="nve", free=False))
    dynamics.run(20)
    np.testing.assert_allclose(dynamics.state.positions[0].numpy(), atoms.positions, atol=1e-9, rtol=0)
    kinetic = 2 * atoms.get_kinetic_energy() / atoms.get_volume() / 3
    expected = kinetic - atoms.get_stress(voigt=False).trace() / 3
    assert float(dynamics.matter.pressure(dynamics.state)[0]) == pytest.approx(expected, rel=1e-6)


def test_an_ideal_gas_keeps_the_right_distribution_of_volumes():
    """N independent atoms at pressure P have volumes of the gamma distribution with ⟨V⟩ = (N + 1) kT / P."""
    atoms, kT, pressure = 16, BOLTZMANN * 300.0, 20_000.0
    expected = (atoms + 1) * kT / (pressure * BAR)
    rng = np.random.default_rng(0)

    def nothing(positions, cell):
        return torch.zeros(len(positions)).double(), torch.zeros_like(positions), torch.zeros_like(cell)

    sides = (expected * rng.gamma(atoms + 1, size=200) / (atoms + 1)) ** (1 / 3)
    replicas = [
        Replica(np.full(atoms, 8), rng.uniform(0, side, (atoms, 3)), seed, cell=side * np.eye(3))
        for seed, side in enumerate(sides)
    ]
    config = DynamicsConfig(
        ensemble="npt", temperature_K=300.0, friction=0.05, timestep_fs=0.5, bond_limit=None, interval=100
    )
    barostat = Barostat(pressure, pressure_time=400.0, compressibility=1 / pressure)
    dynamics = BatchedDynamics([Group(replicas, nothing)], config, barostat=barostat)
    assert dynamics.matter.freedom.tolist() == [3.0 * atoms - 3.0] * 200  # the centre of mass rests
    outcome = dynamics.run(1600)
    volume = outcome.records.volume[8:]  # after a relaxation time
    assert outcome.intact.all()
    assert volume.mean() == pytest.approx(expected, rel=0.025)
    assert volume.var() / volume.mean() ** 2 == pytest.approx(1 / (atoms + 1), rel=0.12)
    assert outcome.records.temperature_K[5:].mean() == pytest.approx(300.0, rel=0.02)
    assert np.corrcoef(outcome.records.volume[0], volume[-1])[0, 1] < 0.5  # they have moved
    conserved = outcome.records.conserved_energy
    assert np.abs(conserved - conserved[0]).max() < 1e-8  # all changes come from bath and barostat


def test_a_periodic_run_and_its_restart(tmp_path):
    settings = MDSettings(
        temperature=100.0, time=0.01, interval=2, ensemble="npt", pressure=1000.0, replicas=2,
        stop_on="never", pressure_time=100.0,
    )  # fmt: skip
    whole = run_dynamics(make(), crystal(), settings, tmp_path / "whole")
    run_dynamics(make(), crystal(), replace(settings, time=0.005), tmp_path / "cut")
    run_dynamics(make(), crystal(), settings, tmp_path / "cut", resume=True)
    for r in range(2):
        name = f"trajectory_{r}.extxyz"
        assert sha256(tmp_path / "whole" / name) == sha256(tmp_path / "cut" / name)
    frames = read(tmp_path / "whole" / "trajectory_0.extxyz", energy_unit="eV")
    assert all(all(s.pbc) for s in frames)
    sizes = [abs(np.linalg.det(s.cell)) for s in frames]
    assert len(set(sizes)) == 3  # the cell changes every ten steps
    np.testing.assert_allclose(sizes, whole.outcome.records.volume[:, 0], rtol=1e-9)
    row = whole.outcome.rows()[0]
    assert np.isfinite(row["mean_pressure_bar"])
    predicted = make().predict(list(frames[:3]))
    np.testing.assert_allclose([p.energy for p in predicted], frames.energies[:3], atol=1e-6)


def test_walls_and_ranges_of_a_cell(tmp_path):
    model, start = make(), crystal()
    molecule = Structure(start.numbers, start.positions)
    model.ranges = Domain.measure(Dataset.from_structures([replace(molecule, energy=0.0)] * 2))
    settings = MDSettings(temperature=300.0, time=0.01, interval=5, ensemble="langevin", stop_on="never")
    report = run_dynamics(model, start, settings, tmp_path / "run")
    assert report.steps == 20


def test_bad_periodic_input(tmp_path):
    half = replace(crystal(), pbc=(True, True, False))
    with pytest.raises(GeomAttError, match="some directions only"):
        run_dynamics(make(), half, MDSettings(), tmp_path / "half")
    molecule = Structure(crystal().numbers, crystal().positions)
    with pytest.raises(GeomAttError, match="no pressure"):
        run_dynamics(make(), molecule, MDSettings(ensemble="npt"), tmp_path / "molecule")
    with pytest.raises(GeomAttError, match="cannot be simulated together"):
        BatchedDynamics([Group([Replica.of(crystal()), Replica.of(molecule)], lambda x, c: None)])
    for bad in ({"pressure_time": 0.0}, {"compressibility": -1.0}, {"pressure": np.nan}):
        with pytest.raises(GeomAttError, match=next(iter(bad))):
            Barostat(**bad)


def test_relaxing_a_cell_lowers_its_stress():
    pytest.importorskip("ase")
    from geomatt.simulation.relaxation import relax

    model = make()
    result = relax(model, crystal(), RelaxSettings(cell=True, steps=8, fmax=1e-4))
    assert result.energies[-1] < result.energies[0]
    assert result.fmax[-1] < result.fmax[0]
    assert not np.allclose(result.end.cell, crystal().cell)
