"""The evaluation at linear cost against the literal network and the oracle."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from oracle import oracle_energy_and_forces

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.geometric_attention.sparse.engine import (
    BLOCK_BYTES,
    interaction_radius,
    pair_layout,
    sparse_atomic_energies,
    sparse_energy_and_forces,
)
from geomatt.model.geometric_attention.sparse.layout import PairLayout
from geomatt.model.neighbours import NeighbourList, neighbour_list

SMALL = {"features": 12, "overlap_features": 16, "layers": 2}
CONFIGS = {
    "paper": {},
    "no bias": {"bias": False},
    "orders": {"orders": (2, 3, 4, 5), "overlap_features": 32},
    "one order": {"orders": (3,), "features": 16, "overlap_features": 8},
    "few features": {"features": 3, "overlap_features": 8},  # features are carried from the first layer on
    "features later": {
        "features": 12,
        "overlap_features": 8,
        "layers": 4,
    },  # coefficients first, then features
    "short": {
        "d_max": 2.0,
        "spacing": 0.1,
        "gamma": 10.0,
        "overlap_features": 16,
        "features": 1,
        "layers": 1,
    },
}


def network(dtype=torch.float64, loud=2.0, elements=(1, 6, 7, 8), **options):
    """A network whose attention matters: fresh ones are dominated by the embedding."""
    torch.manual_seed(0)
    net = GeometricAttention(GeometricAttentionConfig(elements, **options)).to(dtype)
    with torch.no_grad():
        net.softplus_shift.fill_(math.log(2.0))  # a fresh network has it in float32
        for parameter in net.overlaps.parameters():
            parameter.mul_(loud)
    return net


def cloud(atoms, seed=0, density=0.1, elements=(1, 6, 7, 8)):
    rng = np.random.default_rng(seed)
    side = int(np.ceil(atoms ** (1 / 3)))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3)[:atoms] * density ** (-1 / 3)
    positions = grid + rng.normal(0, 0.3, (atoms, 3))
    return torch.from_numpy(rng.choice(elements, atoms)), torch.from_numpy(positions)


def dense(net, numbers, positions):
    r = positions.detach()[None].to(net.mu.dtype).requires_grad_()
    atomic = net(Batch(numbers[None], r))[0]
    (gradient,) = torch.autograd.grad(atomic.sum(), r)
    return atomic.detach(), -gradient[0]


def assert_same(result, atomic, forces, energy_tolerance, force_tolerance):
    assert (result.atomic_energies - atomic).abs().max() <= energy_tolerance * atomic.abs().max()
    assert (result.forces - forces).abs().max() <= force_tolerance * forces.abs().max()


@pytest.mark.parametrize("name", CONFIGS)
def test_equals_the_oracle(name):
    net = network(**CONFIGS[name])
    numbers, positions = cloud(6)
    energy, forces, _ = oracle_energy_and_forces(net.state_dict(), net.config, numbers, positions)
    result = sparse_energy_and_forces(net, numbers, positions)
    assert float(result.atomic_energies.sum()) == pytest.approx(float(energy), rel=1e-10)
    assert (result.forces - forces).abs().max() <= 1e-10 * forces.abs().max()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("atoms", [1, 2, 40])
def test_equals_the_dense_network(name, atoms):
    net = network(**CONFIGS[name])
    numbers, positions = cloud(atoms)
    atomic, forces = dense(net, numbers, positions)
    assert_same(sparse_energy_and_forces(net, numbers, positions), atomic, forces, 1e-12, 1e-11)


@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_dense_network_at_300_atoms(bias):
    """Much larger than the radius; few overlap functions keep the dense network cheap."""
    net = network(bias=bias, overlap_features=8, features=32, spacing=0.1)
    numbers, positions = cloud(300)
    atomic, forces = dense(net, numbers, positions)
    assert_same(sparse_energy_and_forces(net, numbers, positions), atomic, forces, 1e-11, 1e-10)


@pytest.mark.parametrize("bias", [True, False])
def test_float32(bias):
    """Within 1e-4 of the scale of the forces of float64."""
    net = network(loud=1.0, bias=bias)
    numbers, positions = cloud(100)
    atomic, forces = dense(net, numbers, positions)
    for given in (positions, positions.float()):
        result = sparse_energy_and_forces(copy.deepcopy(net).float(), numbers, given)
        assert result.atomic_energies.dtype == torch.float32
        assert result.forces.dtype == given.dtype
        assert_same(result, atomic, forces, 1e-4, 1e-4)


def test_blocks_do_not_matter(monkeypatch):
    net, (numbers, positions) = network(**SMALL), cloud(80)
    whole = sparse_energy_and_forces(net, numbers, positions)
    monkeypatch.setitem(BLOCK_BYTES, "cpu", 10_000)
    assert len(pair_layout(net, numbers, positions).blocks) > 20
    assert_same(
        sparse_energy_and_forces(net, numbers, positions), whole.atomic_energies, whole.forces, 1e-13, 1e-12
    )


def test_order_of_atoms_does_not_matter():
    net, (numbers, positions) = network(**SMALL), cloud(50)
    shuffle = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    result = sparse_energy_and_forces(net, numbers[shuffle], positions[shuffle])
    whole = sparse_energy_and_forces(net, numbers, positions)
    assert_same(result, whole.atomic_energies[shuffle], whole.forces[shuffle], 1e-13, 1e-12)


def test_same_numbers_every_time():
    net, (numbers, positions) = network(torch.float32, loud=1.0), cloud(100)
    first, second = (sparse_energy_and_forces(net, numbers, positions) for _ in range(2))
    assert torch.equal(first.atomic_energies, second.atomic_energies)
    assert torch.equal(first.forces, second.forces)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gpu_agrees_with_cpu(dtype):
    """The numbers of the CPU, and the same ones every time."""
    net, (numbers, positions) = network(dtype, loud=1.0), cloud(300)
    expected = sparse_energy_and_forces(net, numbers, positions)
    net, numbers, positions = net.cuda(), numbers.cuda(), positions.cuda()
    first, second = (sparse_energy_and_forces(net, numbers, positions) for _ in range(2))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    assert (first.forces.cpu() - expected.forces).abs().max() <= tolerance * expected.forces.abs().max()
    assert torch.equal(first.forces, second.forces)
    assert torch.equal(first.atomic_energies, second.atomic_energies)


def test_forces_by_finite_differences():
    net, (numbers, positions) = network(**SMALL), cloud(30)
    forces = sparse_energy_and_forces(net, numbers, positions).forces
    step = 1e-4
    for atom, axis in [(0, 0), (13, 1), (29, 2)]:
        moved = torch.zeros_like(positions)
        moved[atom, axis] = step
        with torch.no_grad():
            up, down = (sparse_atomic_energies(net, numbers, positions + s * moved).sum() for s in (1, -1))
        assert float(-(up - down) / (2 * step)) == pytest.approx(
            float(forces[atom, axis]), rel=1e-5, abs=1e-9
        )


def test_gradients_of_parameters():
    """Atomic energies are differentiable by the parameters, too."""
    net, (numbers, positions) = network(orders=(2, 3, 4, 5), **SMALL), cloud(25)
    weights = torch.randn(25, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameters = dict(net.named_parameters())
    expected = torch.autograd.grad(
        (weights * net(Batch(numbers[None], positions[None]))[0]).sum(), parameters.values()
    )
    found = torch.autograd.grad(
        (weights * sparse_atomic_energies(net, numbers, positions)).sum(), parameters.values()
    )
    for name, a, b in zip(parameters, found, expected, strict=True):
        assert (a - b).abs().max() <= 1e-11 * max(float(b.abs().max()), 1e-3), name


def test_isolated_and_coincident_atoms_have_finite_forces():
    net = network(**SMALL)
    numbers = torch.tensor([1, 6, 8, 8])
    positions = torch.tensor([[0.0, 0, 0], [50.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0]], dtype=torch.float64)
    atomic, forces = dense(net, numbers, positions)
    assert_same(sparse_energy_and_forces(net, numbers, positions), atomic, forces, 1e-12, 1e-12)


def test_lists_and_layouts_can_be_reused():
    """With a skin a list serves several steps of a simulation."""
    net, (numbers, positions) = network(**SMALL), cloud(80)
    radius = interaction_radius(net.config, torch.float64)
    found = neighbour_list(positions.numpy(), None, None, radius + 1.0)
    layout = pair_layout(net, numbers, positions, found)
    moved = positions + 0.2 * torch.sin(positions)
    expected = sparse_energy_and_forces(net, numbers, moved)
    for reused in (found, layout):
        result = sparse_energy_and_forces(net, numbers, moved, neighbours=reused)
        assert_same(result, expected.atomic_energies, expected.forces, 1e-12, 1e-11)


@pytest.mark.parametrize("forces", [True, False])
def test_an_engine_is_given_the_neighbours(forces):
    """Structures of different sizes; pairs are counted in both directions, atoms with themselves."""
    net, (numbers, positions) = network(**SMALL), cloud(40)
    numbers = torch.stack([numbers, torch.where(torch.arange(40) < 3, numbers, 0)])
    batch = Batch(numbers, torch.stack([positions, positions])).as_member()
    engine = net.engine("sparse").chosen(net.stacked(), batch)
    prepared = engine.prepare(net.stacked())
    found = engine.neighbours(prepared, batch)
    radius = interaction_radius(net.config, torch.float64)
    lists = [neighbour_list(positions[:n].numpy(), None, None, radius) for n in (40, 3)]
    assert found.pairs == sum(map(len, lists)) + 43
    expected = engine.evaluate(prepared, batch, forces=forces)
    given = engine.evaluate(prepared, batch, forces=forces, neighbours=found)
    assert torch.equal(given.atomic, expected.atomic)
    assert not forces or torch.equal(given.forces, expected.forces)
    assert net.engine("autograd").neighbours(None, batch) is None


def test_lists_that_are_too_short_or_one_sided_are_refused():
    net, (numbers, positions) = network(**SMALL), cloud(10)
    short = neighbour_list(positions.numpy(), None, None, 3.0)
    with pytest.raises(GeomAttError, match="needs 6"):
        sparse_energy_and_forces(net, numbers, positions, neighbours=short)
    whole = neighbour_list(positions.numpy(), None, None, 7.0)
    half = whole.i < whole.j
    one_sided = NeighbourList(whole.i[half], whole.j[half], whole.shift[half], 7.0)
    with pytest.raises(GeomAttError, match="both directions"):
        sparse_energy_and_forces(net, numbers, positions, neighbours=one_sided)


def test_unknown_elements_are_refused():
    with pytest.raises(GeomAttError, match=r"knows atomic numbers \[1, 6, 7, 8\]"):
        sparse_energy_and_forces(network(**SMALL), torch.tensor([1, 79]), torch.zeros(2, 3))


def test_radius_follows_precision():
    config = GeometricAttentionConfig((1,))
    assert interaction_radius(config, torch.float64) == pytest.approx(6.364, abs=1e-3)
    assert interaction_radius(config, torch.float32) == pytest.approx(5.963, abs=1e-3)


def test_energy_does_not_jump_where_a_pair_enters_the_list():
    net = network(**SMALL)
    radius = interaction_radius(net.config, torch.float64)
    energies = []
    for d in (radius - 1e-9, radius + 1e-9):
        positions = torch.tensor([[0.0, 0.0, 0.0], [d, 0.0, 0.0]], dtype=torch.float64)
        with torch.no_grad():
            energies.append(float(sparse_atomic_energies(net, torch.tensor([6, 8]), positions).sum()))
    assert energies[0] == pytest.approx(energies[1], abs=1e-14)


def test_warns_where_magnitudes_leave_float32():
    numbers, positions = cloud(400)
    options = {"features": 16, "overlap_features": 16, "loud": 6.0}
    with pytest.warns(UserWarning, match="Use float64, or a model trained with `bias` False"):
        sparse_energy_and_forces(network(torch.float32, **options), numbers, positions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse_energy_and_forces(network(torch.float32, bias=False, **options), numbers, positions)


def test_layout_links_every_edge_with_its_reverse():
    _, positions = cloud(70)
    found = neighbour_list(positions.numpy(), None, None, 5.0)
    layout = PairLayout.build(found, 70, block_pairs=200)
    real = ~layout.empty
    assert int(real.sum()) == len(found) + 70
    assert torch.equal(layout.owner[layout.reverse], layout.neighbour)
    assert torch.equal(layout.neighbour[layout.reverse], layout.owner)
    assert torch.equal(layout.reverse[layout.reverse], torch.arange(len(layout.reverse)))
    first = torch.tensor([b.edges.start + n * b.width for b in layout.blocks for n in range(b.size)])
    assert torch.equal(layout.neighbour[first], torch.arange(70))
    assert torch.equal(layout.order[layout.place], torch.arange(70))
