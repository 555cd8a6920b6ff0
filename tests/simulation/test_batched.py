"""Batched dynamics: integrators against analytic results and ASE, observers, failures, restart."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from geomatt import GeomAttError, Structure
from geomatt.data import ethanol
from geomatt.data.batch import Batch
from geomatt.elements import ATOMIC_MASSES
from geomatt.model.domain import Bonds, Domain, PairLimits, Walls
from geomatt.model.interface import Network, NetworkConfig
from geomatt.simulation.batched import BatchedDynamics
from geomatt.simulation.ensembles import DynamicsConfig
from geomatt.simulation.forces import centred, engine_forces
from geomatt.simulation.monitor import BINS, density, frame_histogram, histogram_error
from geomatt.simulation.replicas import Group, Replica
from geomatt.simulation.starts import maxwell_boltzmann, rigid_motions
from geomatt.simulation.watchdog import Watch
from geomatt.units import BOLTZMANN, FEMTOSECOND

HYDROGEN = ATOMIC_MASSES[0]


class Repulsion(Network):
    """Atoms that repel each other: the smallest network the interface allows."""

    kind = "test-repulsion"
    Config = NetworkConfig
    parts = {"readout": ("weight",)}  # noqa: RUF012

    def __init__(self, config, dtype=torch.float32):
        super().__init__(config, dtype)
        self.weight = nn.Parameter(1.0 + torch.rand(len(config.elements)))
        self.to(dtype)

    def atomic_energies(self, batch):
        weight = (batch.numbers[..., None] == self.elements).to(self.weight.dtype) @ self.weight  # (B, N)
        vectors = batch.positions[:, :, None] - batch.positions[:, None]
        return (weight[:, :, None] * weight[:, None] * torch.exp(-vectors.square().sum(-1))).sum(-1)

    @classmethod
    def make(cls, seed, dtype=torch.float32):
        torch.manual_seed(seed)
        return cls(NetworkConfig((1, 6, 8)), dtype)


def well(stiffness):
    """Independent atoms, each held at the origin by springs, which may differ along the axes."""

    def forces(positions):
        return 0.5 * (stiffness * positions.square()).sum((1, 2)), -stiffness * positions

    return forces


def springs(lengths, stiffness=20.0):
    """Springs between all pairs of one molecule, at rest at these distances."""
    rest = torch.from_numpy(lengths)

    def forces(positions):
        vectors = positions[:, :, None] - positions[:, None]
        distance = vectors.square().sum(-1).clamp(min=1e-20).sqrt()
        strain = (distance - rest) * (rest > 0)
        pull = stiffness * strain / distance
        return 0.25 * stiffness * strain.square().sum((1, 2)), -(pull[..., None] * vectors).sum(2)

    return forces


def tetrahedron():
    positions = np.array([[0.0, 0, 0], [1.1, 0, 0], [0.55, 0.95, 0], [0.55, 0.32, 0.9]])
    return np.array([6, 1, 1, 8]), positions, np.linalg.norm(positions[:, None] - positions, axis=-1)


def molecule_group(seeds=(0,), **changes):
    numbers, positions, lengths = tetrahedron()
    replicas = [Replica(numbers, positions, seed, **changes) for seed in seeds]
    return Group(replicas, springs(lengths))


# --- integrators -------------------------------------------------------------------------------------------


def test_verlet_on_a_harmonic_well_is_second_order():
    """The energy error of velocity Verlet falls with the square of the time step."""
    errors = []
    for step in (0.4, 0.2, 0.1):
        start = Replica(np.array([1]), np.array([[0.1, 0.0, -0.05]]), velocities=np.zeros((1, 3)))
        config = DynamicsConfig(ensemble="nve", timestep_fs=step, free=False, interval=1)
        energy = BatchedDynamics([Group([start], well(20.0))], config).run(int(40 / step))
        conserved = energy.records.conserved_energy[:, 0]
        errors.append(np.abs(conserved - conserved[0]).max())
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(4.0, rel=0.05)


def test_verlet_follows_the_exact_oscillation():
    config = DynamicsConfig(ensemble="nve", timestep_fs=0.01, free=False, interval=100)
    start = Replica(np.array([1]), np.array([[0.1, 0.0, 0.0]]), velocities=np.zeros((1, 3)))
    dynamics = BatchedDynamics([Group([start], well(20.0))], config)
    dynamics.run(2000)
    angle = np.sqrt(20.0 / HYDROGEN) * 20.0 * FEMTOSECOND
    assert float(dynamics.state.positions[0, 0, 0]) == pytest.approx(0.1 * np.cos(angle), abs=1e-6)


def test_reversing_velocities_leads_back():
    for ensemble in ("nve", "nose-hoover"):
        config = DynamicsConfig(ensemble=ensemble, interval=10)
        dynamics = BatchedDynamics([molecule_group()], config)
        start = dynamics.state.positions.clone()
        dynamics.run(200)
        assert (dynamics.state.positions - start).abs().max() > 0.01
        dynamics.state.velocities.neg_()
        dynamics.state.thermostat_velocity.neg_()
        dynamics.run(200)
        torch.testing.assert_close(dynamics.state.positions, start, atol=1e-9, rtol=0)


@pytest.mark.parametrize("ensemble", ["langevin", "nose-hoover"])
def test_canonical_distribution_in_a_harmonic_well(ensemble):
    """Coordinates are normal with the variance of equipartition; the kinetic energy is gamma distributed."""
    stiffness, temperature = torch.tensor([6.0, 11.0, 19.0]).double(), 300.0
    config = DynamicsConfig(
        ensemble=ensemble, temperature_K=temperature, free=False, friction=0.1, damping_fs=3.0
    )
    group = Group([Replica(np.array([1]), np.zeros((1, 3)), seed) for seed in range(128)], well(stiffness))
    seen: list[np.ndarray] = []
    dynamics = BatchedDynamics([group], config, keep_frames=True)
    outcome = dynamics.run(4000, on_part=lambda part: seen.append(part.positions))
    positions, temperatures = np.concatenate(seen)[100:, :, 0], outcome.records.temperature_K[100:]
    assert temperatures.mean() == pytest.approx(temperature, rel=0.02)
    assert temperatures.var() / temperatures.mean() ** 2 == pytest.approx(2.0 / 3.0, rel=0.06)
    expected = BOLTZMANN * temperature / stiffness.numpy()
    np.testing.assert_allclose(positions.var((0, 1)), expected, rtol=0.06)
    kurtosis = (positions**4).mean((0, 1)) / (positions**2).mean((0, 1)) ** 2
    np.testing.assert_allclose(kurtosis, 3.0, rtol=0.08)


def test_thermostats_keep_the_conserved_energy_to_second_order():
    """A single thermostat, which is Nosé and Hoover's own, oscillates more than a chain of them."""
    spreads = {}
    for chain in (1, 3):
        errors = []
        for step in (0.4, 0.2):
            config = DynamicsConfig(
                chain=chain, temperature_K=300.0, timestep_fs=step, interval=round(2 / step)
            )  # observed at the same times
            outcome = BatchedDynamics([molecule_group(seeds=range(8))], config).run(int(200 / step))
            conserved = outcome.records.conserved_energy
            errors.append(np.abs(conserved - conserved[0]).max())
            spreads[chain] = outcome.records.temperature_K.std()
        assert errors[1] < 4e-3
        assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.2)
    assert spreads[1] > 1.2 * spreads[3]


def test_bussi_thermostat():
    """The kinetic energy is gamma distributed, and the heat it takes is counted."""
    config = DynamicsConfig(ensemble="bussi", temperature_K=300.0, damping_fs=20.0, timestep_fs=0.25)
    dynamics = BatchedDynamics([molecule_group(seeds=range(48))], config)
    assert dynamics.matter.freedom.tolist() == [6.0] * 48
    outcome = dynamics.run(4000)
    temperatures = outcome.records.temperature_K[100:]
    assert temperatures.mean() == pytest.approx(300.0, rel=0.03)
    assert temperatures.var() / temperatures.mean() ** 2 == pytest.approx(2.0 / 6.0, rel=0.1)
    conserved = outcome.records.conserved_energy
    assert np.abs(conserved - conserved[0]).max() < 3e-3
    assert float(dynamics.state.thermostat[0].abs().min()) > 0
    centre = (dynamics.matter.masses * dynamics.state.velocities).sum(1)
    assert centre.abs().max() < 1e-10


def test_langevin_counts_the_heat():
    """Energy and heat given to the bath are conserved to second order in the time step."""
    errors = []
    for step in (0.4, 0.2):
        config = DynamicsConfig(
            ensemble="langevin",
            temperature_K=300.0,
            timestep_fs=step,
            friction=0.02,
            interval=round(2 / step),
        )
        outcome = BatchedDynamics([molecule_group(seeds=range(8))], config).run(int(200 / step))
        conserved = outcome.records.conserved_energy
        errors.append(np.abs(conserved - conserved[0]).max())
    assert errors[1] < 6e-3
    assert errors[0] > 2 * errors[1]


@pytest.mark.parametrize("ensemble", ["langevin", "nose-hoover"])
def test_a_free_molecule_has_the_right_temperature(ensemble):
    """Counting 3 N degrees of freedom would be wrong by a third to a half for four atoms."""
    config = DynamicsConfig(ensemble=ensemble, temperature_K=300.0, friction=0.05, interval=10)
    dynamics = BatchedDynamics([molecule_group(seeds=range(32))], config)
    assert dynamics.matter.freedom.tolist() == [9.0 if ensemble == "langevin" else 6.0] * 32
    outcome = dynamics.run(4000)
    assert outcome.records.temperature_K[150:].mean() == pytest.approx(300.0, rel=0.03)
    mass = ATOMIC_MASSES[tetrahedron()[0] - 1][:, None]
    centre = (mass * dynamics.state.positions.numpy()).sum(1) / mass.sum()
    np.testing.assert_allclose(centre, np.broadcast_to(centre[0], centre.shape), atol=1e-9)
    if ensemble == "nose-hoover":  # no rotation either
        arms = dynamics.state.positions.numpy() - centre[:, None]
        spin = np.cross(arms, mass * dynamics.state.velocities.numpy()).sum(1)
        assert np.abs(spin).max() < 1e-8


def test_initial_velocities():
    numbers, positions, _ = tetrahedron()
    masses = ATOMIC_MASSES[numbers - 1]
    held = rigid_motions(masses, positions, rotations=True)
    assert held.shape == (12, 6)
    np.testing.assert_allclose(held.T @ held, np.eye(6), atol=1e-12)
    assert rigid_motions(masses[:2], positions[:2], rotations=True).shape[1] == 5  # a straight molecule
    assert rigid_motions(masses[:1], positions[:1], rotations=True).shape[1] == 3
    drawn = np.stack([maxwell_boltzmann(masses, positions, 300.0, s, held=held) for s in range(400)])
    np.testing.assert_allclose((masses[:, None] * drawn).sum(1), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.cross(positions, masses[:, None] * drawn).sum(1), 0.0, atol=1e-12)
    kinetic = (masses[:, None] * drawn**2).sum((1, 2))
    assert kinetic.mean() == pytest.approx(6 * BOLTZMANN * 300.0, rel=0.1)
    again = maxwell_boltzmann(masses, positions, 300.0, 7, held=held)
    np.testing.assert_array_equal(again, drawn[7])


def test_same_trajectory_as_ase():
    ase = pytest.importorskip("ase")
    from ase.calculators.calculator import Calculator, all_changes
    from ase.md.verlet import VelocityVerlet

    network = Repulsion.make(0, torch.float64)
    numbers, random = torch.tensor([6, 1, 8, 1, 1, 6]), np.random.default_rng(0)
    positions, velocities = torch.from_numpy(random.normal(size=(6, 3))), 0.02 * random.normal(size=(6, 3))
    engine, state = network.engine(), network.stacked()

    def energy_and_forces(where):
        found = engine.evaluate(state, Batch(numbers.expand(len(where), -1), where).as_member())
        return found.energy[0], found.forces[0]

    class Model(Calculator):
        implemented_properties = ["energy", "forces"]  # noqa: RUF012

        def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
            super().calculate(atoms, properties, system_changes)
            energy, forces = energy_and_forces(torch.from_numpy(self.atoms.positions)[None])
            self.results = {"energy": float(energy), "forces": forces[0].numpy()}

    atoms = ase.Atoms(
        numbers.numpy(), positions.numpy(), masses=ATOMIC_MASSES[numbers - 1], calculator=Model()
    )
    atoms.set_velocities(velocities)
    VelocityVerlet(atoms, 0.25 * FEMTOSECOND).run(100)
    replica = Replica(numbers.numpy(), positions.numpy(), velocities=velocities)
    config = DynamicsConfig(ensemble="nve", timestep_fs=0.25)
    dynamics = BatchedDynamics([Group([replica, replica], energy_and_forces)], config)
    dynamics.run(100)
    assert np.abs(atoms.positions - positions.numpy()).max() > 0.05
    for found in dynamics.state.positions.numpy():
        np.testing.assert_allclose(found, atoms.positions, atol=1e-9, rtol=0)
    np.testing.assert_allclose(
        dynamics.state.velocities[0].numpy(), atoms.get_velocities(), atol=1e-9, rtol=0
    )


# --- groups ------------------------------------------------------------------------------------------------


def test_groups_of_different_molecules_do_not_disturb_each_other():
    numbers, positions, lengths = tetrahedron()
    small = Group([Replica(numbers[:2], positions[:2], 3)], springs(lengths[:2, :2]))
    for ensemble in ("nve", "nose-hoover", "langevin"):
        config = DynamicsConfig(ensemble=ensemble)
        both = BatchedDynamics([molecule_group(seeds=(1, 2)), small], config)
        both.run(50)
        alone = BatchedDynamics([small], config)
        alone.run(50)
        torch.testing.assert_close(both.state.positions[2, :2], alone.state.positions[0], atol=1e-12, rtol=0)
        first = BatchedDynamics([molecule_group(seeds=(2,))], config)
        first.run(50)
        torch.testing.assert_close(both.state.positions[1], first.state.positions[0], atol=1e-12, rtol=0)
        assert (both.state.positions[2, 2:] == 0).all()


def test_forces_of_a_batch_and_of_an_engine():
    """Both helpers agree, and a float32 model is given positions that are centred first."""
    networks = [Repulsion.make(seed) for seed in (0, 1)]
    frames = ethanol()[:4]
    numbers = torch.from_numpy(np.stack([f.numbers for f in frames]))
    positions = torch.from_numpy(np.stack([f.positions for f in frames])) + 100.0
    engine = networks[0].engine()
    state = {n: torch.cat([net.stacked()[n] for net in networks]) for n in networks[0].stacked()}
    offset, scale = torch.tensor([[1.0, 1.0], [2.0, 2.0]]).double(), torch.tensor([0.5, 2.0])
    forces = engine_forces(
        engine, engine.prepare(state), numbers.reshape(2, 2, 9), torch.float32, offset, scale
    )
    energy, found = forces(positions)
    assert found.shape == (4, 9, 3)
    for m, network in enumerate(networks):
        rows = slice(2 * m, 2 * m + 2)
        batch = Batch(numbers[rows], centred(positions[rows], numbers[rows]).float())
        alone = network.engine().evaluate(network.stacked(), batch.as_member())
        expected = offset[m] + scale[m] * alone.energy[0]
        torch.testing.assert_close(energy[rows], expected.double(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[rows], (scale[m] * alone.forces[0]).double(), atol=1e-5, rtol=1e-5)
    padded = centred(torch.ones(1, 3, 3), torch.tensor([[1, 1, 0]]))
    assert (padded == 0).all()


# --- observers and failures --------------------------------------------------------------------------------


def test_records_histogram_and_bonds():
    bonds = Bonds(np.array([[0, 1], [0, 2]]), np.array([1.1, 1.0]))
    group = molecule_group(seeds=(0, 1), bonds=bonds)
    dynamics = BatchedDynamics([group], DynamicsConfig(ensemble="nve", interval=5), keep_frames=True)
    seen: list[np.ndarray] = []
    outcome = dynamics.run(100, on_part=lambda part: seen.append(part.positions))
    kept = np.concatenate(seen)
    assert kept.shape == (21, 2, 4, 3)
    np.testing.assert_allclose(outcome.records.time_fs, np.arange(21) * 2.5)
    for r in range(2):
        np.testing.assert_array_equal(outcome.histogram[r], frame_histogram(kept[:, r]))
        off = [np.linalg.norm(kept[:, r, 0] - kept[:, r, 1], axis=-1) - 1.1,
               np.linalg.norm(kept[:, r, 0] - kept[:, r, 2], axis=-1) - 1.0]  # fmt: skip
        assert outcome.worst_bond[r] == pytest.approx(np.abs(off).max())
    assert outcome.intact.all()
    assert outcome.survived_ps.tolist() == [0.05, 0.05]
    assert np.abs(outcome.drift).max() < 5.0
    assert outcome.rows()[1]["seed"] == 1
    assert density(outcome.histogram).sum() * 0.02 == pytest.approx(2.0)
    assert histogram_error(outcome.histogram[0], outcome.histogram[0]) == 0.0
    far = np.zeros(BINS + 1, dtype=int)
    far[-2] = 1
    assert histogram_error(far, outcome.histogram[0]) == pytest.approx(2.0)


def test_a_failed_replica_stops_and_leaves_the_others_alone():
    calm, group = molecule_group(seeds=(0,)), molecule_group(seeds=(0, 1, 2))

    def breaking(positions):
        """The second replica meets a force that is not a number, the third one that is far too large."""
        energy, forces = group.forces(positions)
        far = (positions[:, 1] - positions[:, 0]).norm(dim=-1) > 1.11
        bad = torch.tensor([1.0, torch.nan, 1e12]).double()
        return energy, torch.where(far[:, None, None], forces * bad[:, None, None], forces)

    for ensemble in ("nve", "nose-hoover", "langevin"):
        config = DynamicsConfig(ensemble=ensemble, interval=5)
        dynamics = BatchedDynamics([Group(group.replicas, breaking)], config)
        outcome = dynamics.run(200)
        alone = BatchedDynamics([calm], config)
        alone.run(200)
        torch.testing.assert_close(dynamics.state.positions[0], alone.state.positions[0], atol=1e-10, rtol=0)
        assert outcome.intact.tolist() == [True, False, False]
        assert "too far" in outcome.failures[1]
        assert (outcome.survived_ps[1:] < 0.1).all()
        assert torch.isfinite(dynamics.state.positions).all()
        assert (dynamics.state.velocities[1:] == 0).all()
        assert np.isfinite(outcome.mean_temperature[0])
        assert np.isnan(outcome.records.temperature_K[-1, 1:]).all()
        before = dynamics.state.positions[1:].clone()
        counts = outcome.histogram.sum(1)
        later = dynamics.run(300)
        assert (dynamics.state.positions[1:] == before).all()
        assert (later.histogram.sum(1) - counts).tolist() == [360, 0, 0]


def test_forces_that_are_wrong_from_the_start():
    group = molecule_group(seeds=(0, 1))

    def broken(positions):
        energy, forces = group.forces(positions)
        return energy, forces * torch.tensor([torch.inf, 1.0])[:, None, None]

    outcome = BatchedDynamics([Group(group.replicas, broken)]).run(20)
    assert outcome.intact.tolist() == [False, True]
    assert outcome.survived_ps[0] == 0.0


def test_a_broken_bond_is_a_failure():
    numbers, positions, _ = tetrahedron()
    bonds = Bonds(np.array([[0, 1]]), np.array([1.1]))

    def apart(where):  # nothing holds the atoms together
        return torch.zeros(len(where)).double(), torch.zeros_like(where)

    velocities = np.zeros((4, 3))
    velocities[1, 0] = 0.01 / FEMTOSECOND  # 0.01 Å per fs
    replica = Replica(numbers, positions, velocities=velocities, bonds=bonds)
    outcome = BatchedDynamics([Group([replica], apart)], DynamicsConfig(ensemble="nve")).run(200)
    assert outcome.failures == ["a bond broke"]
    assert outcome.survived_ps[0] == pytest.approx(0.05, abs=0.006)  # 0.5 Å after 50 fs
    watched = DynamicsConfig(ensemble="nve", bond_limit=None)
    outcome = BatchedDynamics([Group([replica], apart)], watched).run(200)
    assert outcome.intact.all()
    assert outcome.worst_bond[0] == pytest.approx(1.0, abs=0.01)


def test_walls_hold_a_molecule_together():
    numbers, positions, lengths = tetrahedron()
    blocked = np.eye(4, dtype=bool)
    limits = PairLimits(np.where(blocked, -np.inf, lengths - 0.1), np.where(blocked, np.inf, lengths + 0.1))
    bonds = Bonds(np.argwhere(np.triu(~blocked)), lengths[np.triu(~blocked)])

    def nothing(where):
        return torch.zeros(len(where)).double(), torch.zeros_like(where)

    replicas = [Replica(numbers, positions, seed, bonds=bonds, limits=limits) for seed in (0, 1)]
    replicas.append(Replica(numbers, positions, 0, bonds=bonds))
    dynamics = BatchedDynamics(
        [Group(replicas, nothing)], DynamicsConfig(ensemble="nve", temperature_K=300.0)
    )
    outcome = dynamics.run(4000)
    assert outcome.intact.tolist() == [True, True, False]
    assert (outcome.wall_share[:2] > 0.05).all()
    assert outcome.wall_share[2] == 0.0
    assert outcome.wall_use[2] == []
    use = outcome.wall_use[0][0]
    assert 0.1 < use.worst < 0.5
    assert use.names in {f"{a}–{b}" for a in ("C0", "H1", "H2") for b in ("H1", "H2", "O3")}
    conserved = outcome.records.conserved_energy[:, :2]
    assert np.abs(conserved - conserved[0]).max() < 2e-3  # walls are part of the energy


def test_replicas_from_a_models_domain():
    data = ethanol()[:30]
    domain = Domain(Domain.measure(data).ranges, Walls(stiffness=10.0))
    replica = Replica.of(data[0], 3, domain, name="ethanol")
    assert replica.limits is not None
    assert replica.limits.exist
    assert replica.bonds is not None
    assert len(replica.bonds.pairs) == 8
    assert Replica.of(data[0], 3, domain, walls=False).limits is None
    plain = Replica.of(Structure(data[0].numbers, data[0].positions))
    assert plain.bonds is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("ensemble", ["nve", "langevin", "nose-hoover", "bussi"])
def test_a_cuda_graph_gives_the_same_run(ensemble):
    numbers, positions, lengths = tetrahedron()
    blocked = np.eye(4, dtype=bool)
    limits = PairLimits(np.where(blocked, -np.inf, lengths), np.where(blocked, np.inf, lengths))
    bonds = Bonds(np.array([[0, 1]]), np.array([1.1]))
    rest = torch.from_numpy(lengths).cuda()

    def forces(where):
        vectors = where[:, :, None] - where[:, None]
        distance = vectors.square().sum(-1).clamp(min=1e-20).sqrt()
        strain = (distance - rest) * (rest > 0)
        return 5.0 * strain.square().sum((1, 2)), -(20.0 * strain / distance)[..., None].mul(vectors).sum(2)

    runs = []
    for capture in (True, False):
        replicas = [Replica(numbers, positions, seed, bonds=bonds, limits=limits) for seed in (0, 1)]
        config = DynamicsConfig(ensemble=ensemble)
        dynamics = BatchedDynamics(
            [Group(replicas, forces)], config, device="cuda", capture=capture, watch=Watch(), keep_frames=True
        )
        runs.append((dynamics, dynamics.run(100)))
    torch.testing.assert_close(runs[0][0].state.positions, runs[1][0].state.positions, atol=1e-10, rtol=0)
    np.testing.assert_array_equal(runs[0][1].histogram, runs[1][1].histogram)
    np.testing.assert_allclose(runs[0][1].records.conserved_energy, runs[1][1].records.conserved_energy)
    assert runs[0][0].steps == 100


# --- restart and bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ensemble", ["nve", "langevin", "nose-hoover", "bussi"])
def test_restart_is_exact(tmp_path, ensemble):
    numbers, positions, lengths = tetrahedron()
    blocked = np.eye(4, dtype=bool)
    limits = PairLimits(np.where(blocked, -np.inf, lengths), np.where(blocked, np.inf, lengths))
    bonds = Bonds(np.array([[0, 1]]), np.array([1.1]))

    def make(**changes):
        config = dataclasses.replace(DynamicsConfig(ensemble=ensemble), **changes)
        return BatchedDynamics([molecule_group(seeds=(0, 5), limits=limits, bonds=bonds)], config)

    whole = make()
    expected = whole.run(200)
    first = make()
    first.run(100)
    first.save(tmp_path / "md.safetensors")
    second = make()
    second.restore(tmp_path / "md.safetensors")
    assert second.steps == 100
    outcome = second.run(100)
    for name, value in whole.state.tensors().items():
        assert torch.equal(value, second.state.tensors()[name]), name
    for name, value in whole.monitor.tensors().items():
        assert torch.equal(value, second.monitor.tensors()[name]), name
    np.testing.assert_array_equal(outcome.records.conserved_energy, expected.records.conserved_energy)
    np.testing.assert_array_equal(outcome.records.time_fs, expected.records.time_fs)
    assert repr(outcome.rows()) == repr(expected.rows())
    with pytest.raises(GeomAttError, match="timestep_fs"):
        make(timestep_fs=0.25).restore(tmp_path / "md.safetensors")
    other = BatchedDynamics([Group([Replica(numbers[:2], positions[:2])], springs(lengths[:2, :2]))])
    with pytest.raises(GeomAttError, match="other molecules"):
        other.restore(tmp_path / "md.safetensors")


@pytest.mark.parametrize("ensemble", ["nose-hoover", "langevin"])
def test_only_random_numbers_bind_a_restart_to_a_kind_of_device(tmp_path, ensemble):
    dynamics = BatchedDynamics([molecule_group()], DynamicsConfig(ensemble=ensemble))
    dynamics.run(10)
    dynamics.save(tmp_path / "here")
    with safe_open(tmp_path / "here", "pt") as file:
        texts, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = json.loads(texts["geomatt-dynamics"]) | {"device": "cuda"}
    tensors["generators"] = torch.zeros(len(tensors["generators"]), 16, dtype=torch.uint8)
    save_file(tensors, tmp_path / "there", texts | {"geomatt-dynamics": json.dumps(about)})
    moved = BatchedDynamics([molecule_group()], DynamicsConfig(ensemble=ensemble))
    if ensemble == "langevin":
        with pytest.raises(GeomAttError, match="other device"):
            moved.restore(tmp_path / "there")
        return
    moved.restore(tmp_path / "there")
    assert torch.equal(moved.state.positions, dynamics.state.positions)


def test_invalid_restart_files(tmp_path):
    dynamics = BatchedDynamics([molecule_group()])
    with pytest.raises(GeomAttError, match="Cannot read"):
        dynamics.restore(tmp_path / "absent")
    (tmp_path / "text").write_text("no tensors at all")
    with pytest.raises(GeomAttError, match="damaged"):
        dynamics.restore(tmp_path / "text")
    dynamics.save(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    (tmp_path / "half").write_bytes(content[: len(content) // 2])
    with pytest.raises(GeomAttError, match="damaged"):
        dynamics.restore(tmp_path / "half")


@pytest.mark.parametrize(
    "bad",
    [
        {"ensemble": "npe"}, {"timestep_fs": 0.0}, {"timestep_fs": float("nan")}, {"temperature_K": -1.0},
        {"temperature_K": 0.0}, {"friction": -1.0}, {"chain": 0}, {"interval": 0}, {"damping_fs": np.inf},
    ],
)  # fmt: skip
def test_bad_settings_of_dynamics(bad):
    with pytest.raises(GeomAttError):
        DynamicsConfig(**bad)


def test_bad_runs():
    with pytest.raises(GeomAttError, match="nothing to simulate"):
        BatchedDynamics([])
    with pytest.raises(GeomAttError, match="multiple"):
        BatchedDynamics([molecule_group()]).run(15)
    numbers, positions, _ = tetrahedron()
    with pytest.raises(GeomAttError, match="not finite"):
        BatchedDynamics([Group([Replica(numbers, positions * np.nan)], well(1.0))])


def test_masses_agree_with_ase():
    data = pytest.importorskip("ase.data")
    np.testing.assert_allclose(ATOMIC_MASSES, data.atomic_masses[1:], rtol=1e-6)
