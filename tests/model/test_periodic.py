"""Periodic cells: the sum over images, forces and stress."""

import itertools

import numpy as np
import pytest
import torch

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.autograd import AutogradEngine
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.geometric_attention.sparse.engine import (
    interaction_radius,
    sparse_atomic_energies,
    sparse_energy_and_forces,
)

PERIODIC = (True, True, True)


@pytest.fixture
def net():
    torch.manual_seed(0)
    network = GeometricAttention(
        GeometricAttentionConfig((1, 6, 8), features=24, overlap_features=32, bias=False)
    ).double()
    with torch.no_grad():
        for parameter in network.overlaps.parameters():
            parameter.mul_(2.0)
    return network


@pytest.fixture
def crystal():
    """Seven atoms in a triclinic cell smaller than the radius."""
    rng = np.random.default_rng(3)
    cell = np.array([[4.2, 0.3, -0.2], [0.8, 4.0, 0.1], [-0.5, 0.6, 4.5]])
    positions = rng.uniform(0, 1, (7, 3)) @ cell
    return torch.tensor([1, 6, 8, 1, 6, 8, 8]), torch.from_numpy(positions), torch.from_numpy(cell)


def repeat(numbers, positions, cell, times):
    shifts = torch.tensor(list(itertools.product(*[range(n) for n in times])), dtype=torch.float64)
    moved = (positions[None] + (shifts @ cell)[:, None]).reshape(-1, 3)
    return numbers.repeat(len(shifts)), moved, cell * torch.tensor(times, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("times", [(2, 2, 2), (1, 3, 1)])
def test_energy_is_extensive(net, crystal, times):
    one = sparse_energy_and_forces(net, *crystal, PERIODIC, stress=True)
    many = sparse_energy_and_forces(net, *repeat(*crystal, times), PERIODIC, stress=True)
    cells = int(np.prod(times))
    torch.testing.assert_close(
        many.atomic_energies, one.atomic_energies.repeat(cells), rtol=1e-11, atol=1e-11
    )
    torch.testing.assert_close(many.forces, one.forces.repeat(cells, 1), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(many.stress, one.stress, rtol=1e-9, atol=1e-12)


def test_periodic_energy_equals_explicit_sum_over_images(net, crystal):
    """The middle cell of a finite crystal: with one layer of order 3 an atom sees twice the radius."""
    torch.manual_seed(0)
    config = GeometricAttentionConfig((1, 6, 8), orders=(2, 3), layers=1, d_max=2.5, features=8, bias=False)
    small = GeometricAttention(config).double()
    reach = 2 * interaction_radius(config, torch.float64)
    numbers, positions, cell = crystal
    many, moved, _ = repeat(numbers, positions, cell, (7, 7, 7))
    moved = moved - torch.tensor([3.0, 3.0, 3.0], dtype=torch.float64) @ cell
    near = torch.cdist(positions, moved).min(0).values <= reach
    middle = torch.cdist(positions, moved[near]).argmin(1)
    finite = small(Batch(many[near][None], moved[near][None]))[0][middle]
    periodic = sparse_atomic_energies(small, *crystal[:2], None, cell, PERIODIC)
    torch.testing.assert_close(periodic, finite, rtol=1e-11, atol=1e-12)


def test_translation_and_wrapping_change_nothing(net, crystal):
    numbers, positions, cell = crystal
    expected = sparse_energy_and_forces(net, numbers, positions, cell, PERIODIC, stress=True)
    hops = torch.randint(-3, 4, (7, 3), generator=torch.Generator().manual_seed(0)).double()
    for moved in (positions + torch.tensor([1.3, -2.9, 40.0]), positions + hops @ cell):
        result = sparse_energy_and_forces(net, numbers, moved, cell, PERIODIC, stress=True)
        torch.testing.assert_close(result.atomic_energies, expected.atomic_energies, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(result.forces, expected.forces, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(result.stress, expected.stress, rtol=1e-9, atol=1e-12)


def test_forces_by_finite_differences(net, crystal):
    numbers, positions, cell = crystal
    forces = sparse_energy_and_forces(net, *crystal, PERIODIC).forces
    assert forces.sum(0).abs().max() < 1e-12
    step = 1e-4
    for atom, axis in [(0, 0), (3, 1), (6, 2)]:
        moved = torch.zeros_like(positions)
        moved[atom, axis] = step
        with torch.no_grad():
            up, down = (
                sparse_atomic_energies(net, numbers, positions + s * moved, None, cell, PERIODIC).sum()
                for s in (1, -1)
            )
        assert float(-(up - down) / (2 * step)) == pytest.approx(float(forces[atom, axis]), rel=1e-5)


def test_stress_by_finite_differences(net, crystal):
    numbers, positions, cell = crystal
    result = sparse_energy_and_forces(net, *crystal, PERIODIC, stress=True)
    volume, step = float(torch.linalg.det(cell)), 1e-5

    def energy(strain):
        deform = torch.eye(3, dtype=torch.float64) + strain
        atomic = sparse_atomic_energies(net, numbers, positions @ deform, None, cell @ deform, PERIODIC)
        return float(atomic.detach().sum())

    for a, b in itertools.product(range(3), repeat=2):
        strain = torch.zeros(3, 3, dtype=torch.float64)
        strain[a, b] += step / 2
        strain[b, a] += step / 2
        slope = (energy(strain) - energy(-strain)) / (2 * step)
        assert float(result.stress[a, b]) == pytest.approx(slope / volume, rel=1e-5, abs=1e-9)
    torch.testing.assert_close(result.stress, result.stress.T)


def test_molecule_in_a_large_box(net):
    numbers = torch.tensor([6, 8, 1, 1])
    positions = torch.tensor(
        [[0.0, 0, 0], [1.2, 0, 0], [-0.6, 0.9, 0], [-0.6, -0.9, 0.1]], dtype=torch.float64
    )
    box = 20.0 * torch.eye(3, dtype=torch.float64)
    free = sparse_energy_and_forces(net, numbers, positions)
    boxed = sparse_energy_and_forces(net, numbers, positions, box, PERIODIC)
    torch.testing.assert_close(boxed.atomic_energies, free.atomic_energies, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(boxed.forces, free.forces, rtol=1e-10, atol=1e-13)


def test_a_slab_repeats_along_two_directions_only(net, crystal):
    numbers, positions, cell = crystal
    slab = sparse_energy_and_forces(net, *crystal, (True, True, False))
    apart = cell.clone()
    apart[2] = torch.linalg.cross(cell[0], cell[1]) * 3  # a cell so high that images do not meet
    high = sparse_energy_and_forces(net, numbers, positions, apart, PERIODIC)
    torch.testing.assert_close(slab.atomic_energies, high.atomic_energies, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(slab.forces, high.forces, rtol=1e-10, atol=1e-12)


def test_float32_is_accurate_far_from_the_origin(net, crystal):
    """Positions in float64 lose nothing, however far they have drifted."""
    numbers, positions, cell = crystal
    expected = sparse_energy_and_forces(net, *crystal, PERIODIC)
    net.float()
    result = sparse_energy_and_forces(net, numbers, positions + 1e4, cell, PERIODIC)
    assert (result.forces - expected.forces).abs().max() <= 1e-4 * expected.forces.abs().max()


def test_bias_is_refused(crystal):
    biased = GeometricAttention(GeometricAttentionConfig((1, 6, 8), features=4, overlap_features=8)).double()
    with pytest.raises(GeomAttError, match="acts at any distance"):
        sparse_energy_and_forces(biased, *crystal, PERIODIC)


def test_stress_needs_a_volume(net, crystal):
    with pytest.raises(GeomAttError, match="volume"):
        sparse_energy_and_forces(net, *crystal[:2], stress=True)


def test_network_sums_over_images_as_the_neighbour_lists_do(net, crystal):
    """Energies, forces and stress of the readable network by automatic differentiation, and attention."""
    numbers, positions, cell = crystal
    expected = sparse_energy_and_forces(net, *crystal, PERIODIC, stress=True)
    batch = Batch(numbers[None], positions[None], cell=cell[None])
    found = AutogradEngine(net).evaluate(net.stacked(), batch.as_member())
    torch.testing.assert_close(found.atomic[0, 0], expected.atomic_energies, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.forces[0, 0], expected.forces, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.stress[0, 0], expected.stress, rtol=1e-8, atol=1e-10)
    records = net.attention(batch)
    assert len(records) == 3 * net.config.layers
    second = next(r.matrix[0] for r in records if r.order == 2)
    torch.testing.assert_close(second, second.mT)


def test_loss_gradient_of_periodic_structures(net, crystal):
    """With stress, against finite differences of the weights."""
    numbers, positions, cell = crystal
    batch = Batch(numbers[None], positions[None], cell=cell[None]).as_member()
    engine, state = net.engine(), net.stacked()
    found = engine.evaluate(engine.prepare(state), batch, gradient=True)
    generator = torch.Generator().manual_seed(0)
    by = [
        torch.randn(x.shape, generator=generator, dtype=torch.float64)
        for x in (found.energy, found.forces, found.stress)
    ]
    gradient = engine.gradient(found, *by)
    change = {
        name: torch.randn((1, *p.shape), generator=generator, dtype=p.dtype)
        for name, p in net.named_parameters()
    }

    def loss(t):
        moved = {**state, **{name: state[name] + t * change[name] for name in change}}
        now = engine.evaluate(engine.prepare(moved), batch)
        values = (now.energy, now.forces, now.stress)
        return sum(float((slope * value).sum()) for slope, value in zip(by, values, strict=True))

    along = float((gradient * torch.cat([c.flatten(1) for c in change.values()], 1)).sum())
    assert along == pytest.approx((loss(1e-6) - loss(-1e-6)) / 2e-6, rel=1e-5)


def test_members_are_evaluated_together_in_cells(net, crystal):
    """As a validation of several members does on a GPU."""
    numbers, positions, cell = (x[None] for x in crystal)
    other = GeometricAttention(net.config).double()
    weights = {name: torch.stack([a, other.tensors()[name]]) for name, a in net.tensors().items()}
    both = Batch(numbers, positions, cell=cell).apply(lambda x: torch.stack([x, x]))
    engine = net.engine()
    found = engine.evaluate(engine.prepare(weights), both, gradient=False)
    for m, network in enumerate((net, other)):
        alone = sparse_energy_and_forces(network, *crystal, PERIODIC, stress=True)
        assert torch.equal(found.atomic[m, 0], alone.atomic_energies)
        assert torch.equal(found.forces[m, 0], alone.forces)
        assert torch.equal(found.stress[m, 0], alone.stress)
