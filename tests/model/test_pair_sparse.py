"""Pair states over neighbour lists against the dense network, and cells against clusters of images."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pair_network import random_batch, small_network
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.pair_states.network import PairStates
from geomatt.model.pair_states.sparse import engine as sparse_engine
from geomatt.model.pair_states.sparse import graph as graphs
from geomatt.model.pair_states.sparse.engine import SparseEngine
from geomatt.model.pair_states.sparse.graph import structure_graph
from geomatt.model.pair_states.sparse.products import sums, torch_sums

RADIUS = 2.4
CUBE = 2.9 * torch.eye(3, dtype=torch.float64)
SKEW = torch.tensor([[2.8, 0.0, 0.3], [1.1, 2.6, 0.0], [-0.4, 0.5, 3.1]], dtype=torch.float64)
LEFT_HANDED = SKEW[[1, 0, 2]]
SMALL = 1.3 * torch.eye(3, dtype=torch.float64)  # smaller than the radius
FLAT = torch.diag(torch.tensor([3.0, 2.5, 0.0], dtype=torch.float64))  # does not repeat along z


def crystal(cell: Tensor, atoms: int, seed: int = 0) -> Batch:
    """Atoms anywhere, also outside of the cell."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (1, atoms), generator=generator)]
    positions = 6.0 * torch.randn(1, atoms, 3, generator=generator, dtype=torch.float64)
    return Batch(numbers, positions, cell=cell[None])


def cluster(batch: Batch, reach: float) -> Batch:
    """The atoms of a cell, then all images within reach of one of them, as a molecule."""
    assert batch.cell is not None
    home, cell = batch.positions[0], batch.cell[0]
    steps = [range(-9, 10) if row.any() else range(1) for row in cell]
    numbers, positions = [batch.numbers[0]], [home]
    hops = torch.tensor([hop for hop in itertools.product(*steps) if any(hop)], dtype=home.dtype)
    images = home[:, None] + hops @ cell  # (atoms, hops, 3)
    near = torch.cdist(images.flatten(0, 1), home).min(1).values.view(images.shape[:2]) <= reach
    numbers.append(batch.numbers[0][:, None].expand(near.shape)[near])
    positions.append(images[near])
    return Batch(torch.cat(numbers)[None], torch.cat(positions)[None])


def evaluate(network: PairStates, batch: Batch, engine: str = "sparse"):
    chosen = network.engine(engine)
    return chosen.evaluate(chosen.prepare(network.stacked()), batch.as_member())


@pytest.mark.parametrize(
    ("cell", "atoms"),
    [(CUBE, 3), (SKEW, 3), (LEFT_HANDED, 3), (SMALL, 1), (FLAT, 2), (20 * CUBE, 2)],
    ids=["cube", "skew", "left-handed", "smaller than the radius", "flat", "no neighbours"],
)
def test_cells_are_clusters_of_images(cell: Tensor, atoms: int) -> None:
    network, batch = small_network(radius=RADIUS), crystal(cell, atoms)
    expected = network(cluster(batch, 2 * RADIUS))[:, :atoms]  # what two rounds see
    assert torch.allclose(network(batch), expected, atol=1e-11)
    assert torch.allclose(evaluate(network, batch).atomic[0], expected, atol=1e-11)


@pytest.mark.parametrize("cell", [SKEW, FLAT, None], ids=["cell", "flat", "molecule"])
def test_the_order_of_atoms_in_memory_changes_nothing(monkeypatch, cell: Tensor | None) -> None:
    network, batch = small_network(radius=RADIUS), crystal(SKEW if cell is None else cell, 6)
    batch = Batch(batch.numbers, batch.positions / 3.0, cell=None if cell is None else batch.cell)
    expected, records = evaluate(network, batch), network.attention(batch)
    box = None if cell is None else cell.numpy()
    pbc = [False] * 3 if cell is None else cell.any(1).tolist()
    order = graphs.spatial_order(batch.positions[0].numpy(), box, pbc, 1.0)
    assert sorted(order.tolist()) == list(range(6))
    monkeypatch.setattr(graphs, "SORTED", 0)
    monkeypatch.setattr(graphs, "spatial_order", lambda *_: np.array([3, 1, 5, 0, 4, 2]))
    found = evaluate(network, batch)
    assert network.graph(batch).atom.tolist() == [3, 1, 5, 0, 4, 2]
    assert torch.allclose(found.atomic, expected.atomic, atol=1e-12)
    assert torch.allclose(found.forces, expected.forces, atol=1e-12)
    for mine, theirs in zip(network.attention(batch), records, strict=True):
        assert torch.allclose(mine.matrix, theirs.matrix, atol=1e-12)


def test_a_supercell_has_a_multiple_of_the_energy_and_the_same_stress() -> None:
    network, one = small_network(radius=RADIUS), crystal(SKEW, 2)
    moved = torch.cat([one.positions, one.positions + SKEW[0]], 1)
    double = Batch(one.numbers.repeat(1, 2), moved, cell=SKEW[None] * torch.tensor([[2.0], [1.0], [1.0]]))
    small, large = evaluate(network, one), evaluate(network, double)
    assert torch.allclose(large.energy, 2 * small.energy, rtol=1e-12)
    assert torch.allclose(large.forces[0], small.forces[0].repeat(1, 2, 1), atol=1e-11)
    assert torch.allclose(large.stress, small.stress, atol=1e-12)


def test_forces_and_stress_are_derivatives() -> None:
    network, batch, step = small_network(radius=RADIUS), crystal(SKEW, 3), 1e-5
    found = evaluate(network, batch)
    direction = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def energy(moved: Batch) -> float:
        return float(evaluate(network, moved).energy)

    def along(t: float) -> Batch:
        return Batch(batch.numbers, batch.positions + t * direction, cell=batch.cell)

    slope = (energy(along(step)) - energy(along(-step))) / (2 * step)
    assert slope == pytest.approx(-float((found.forces[0, 0] * direction).sum()), rel=1e-6)

    def deformed(t: float) -> Batch:
        change = torch.eye(3, dtype=torch.float64) + t * direction
        return Batch(batch.numbers, batch.positions @ change, cell=batch.cell @ change)

    volume = float(torch.linalg.det(SKEW).abs())
    slope = (energy(deformed(step)) - energy(deformed(-step))) / (2 * step) / volume
    assert slope == pytest.approx(float((found.stress[0, 0] * direction).sum()), rel=1e-6)
    assert torch.allclose(found.stress, found.stress.mT, atol=1e-12)


def test_loss_gradient_with_stress() -> None:
    """Of structures with and without a cell in one batch, against finite differences of the weights."""
    network = small_network(radius=RADIUS)
    cells = torch.stack([SKEW, torch.zeros_like(SKEW)])
    batch = Batch(random_batch((3, 2)).numbers, random_batch((3, 2)).positions, cell=cells).as_member()
    engine, state = network.engine("sparse"), network.stacked()
    found = engine.evaluate(state, batch, gradient=True)
    assert torch.isnan(found.stress[0, 1]).all()
    generator = torch.Generator().manual_seed(0)
    by = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in (found.energy, found.forces)]
    by_stress = torch.randn(found.stress.shape, generator=generator, dtype=torch.float64)
    by_stress[0, 1] = 0.0
    gradient = engine.gradient(found, *by, by_stress)
    change = {
        name: torch.randn((1, *p.shape), generator=generator, dtype=p.dtype)
        for name, p in network.named_parameters()
    }

    def loss(t: float) -> float:
        moved = {**state, **{name: state[name] + t * change[name] for name in change}}
        now = engine.evaluate(moved, batch)
        return float(
            (by[0] * now.energy).sum() + (by[1] * now.forces).sum() + (by_stress * now.stress)[0, 0].sum()
        )

    along = float((gradient * torch.cat([c.flatten(1) for c in change.values()], 1)).sum())
    assert math.isclose(along, (loss(1e-5) - loss(-1e-5)) / 2e-5, rel_tol=1e-6)


@given(st.integers(0, 1000))
def test_far_molecules_have_the_sum_of_their_energies_exactly(seed: int) -> None:
    network, batch = small_network(radius=RADIUS), random_batch((4, 3), seed)
    first, second = (
        Batch(batch.numbers[b, None, :n], batch.positions[b, None, :n]) for b, n in ((0, 4), (1, 3))
    )
    span = float(first.positions.abs().max() + second.positions.abs().max())
    far = torch.tensor([2.0 * span + RADIUS, 0.0, 0.0], dtype=torch.float64)
    both = Batch(
        torch.cat([first.numbers, second.numbers], 1), torch.cat([first.positions, second.positions + far], 1)
    )
    for engine in ("dense", "sparse"):
        apart = [evaluate(network, one, engine) for one in (first, second)]
        together = evaluate(network, both, engine)
        assert torch.allclose(together.atomic, torch.cat([a.atomic for a in apart], -1), atol=1e-12)
        assert torch.allclose(together.forces, torch.cat([a.forces for a in apart], 2), atol=1e-12)


def test_nothing_jumps_at_the_radius() -> None:
    """Energy, force and curvature along a scan of two molecules; a third atom sees both ends of the pair."""
    network, step = small_network(radius=RADIUS), 1e-3
    grid = torch.arange(-20, 20, dtype=torch.float64) * step + RADIUS
    positions = torch.zeros(len(grid), 3, 3, dtype=torch.float64)
    positions[:, 1, 0] = grid
    positions[:, 2, 1], positions[:, 2, 0] = 1.1, 0.9
    batch = Batch(torch.tensor([6, 8, 1]).expand(len(grid), -1), positions)
    found = evaluate(network, batch)
    force = found.forces[0, :, 1, 0]
    bend = force.diff() / step
    assert bend.diff().abs().max() < 0.05 * bend.abs().max()  # steps of the curvature
    assert force.diff().abs().max() < 0.05 * force.abs().max()


def test_sums_over_triangles_in_plain_torch_and_compiled(monkeypatch) -> None:
    batch = crystal(SKEW, 4)
    graph = structure_graph(batch.positions[0], batch.cell[0], RADIUS)
    monkeypatch.setattr(graphs, "native_triangles", lambda *_: None)
    monkeypatch.setattr(graphs, "CANDIDATES", 50)
    plain = structure_graph(batch.positions[0], batch.cell[0], RADIUS)
    for name in ("start", "left", "right", "reverse"):
        assert torch.equal(getattr(graph.triangles, name), getattr(plain.triangles, name))
    assert torch.equal(
        graph.triangles.reverse[graph.triangles.reverse.long()].long(), torch.arange(len(graph))
    )
    u, v = torch.randn(2, len(graph), 5, dtype=torch.float64)
    t = graph.triangles
    for flips in ({}, {"left_reversed": True}, {"right_reversed": True}):
        sides = [t.reverse if flips.get(name) else None for name in ("left_reversed", "right_reversed")]
        expected = torch_sums(u, v, t.start, t.left, t.right, *sides, torch.empty_like(u))
        assert torch.allclose(sums(u, v, t, **flips), expected, atol=1e-12)


def test_batches_are_split_by_the_memory_they_need(monkeypatch) -> None:
    network, batch = small_network(radius=RADIUS), random_batch((2, 9, 4, 1))
    expected = evaluate(network, batch)
    monkeypatch.setattr(sparse_engine, "SHARE", 1e-12)
    engine = SparseEngine(network)
    assert len(engine._parts(batch.as_member())) == 4
    found = engine.evaluate(network.stacked(), batch.as_member())
    assert torch.allclose(found.energy, expected.energy, atol=1e-12)
    assert torch.allclose(found.forces, expected.forces, atol=1e-12)


def test_too_large_structures_give_the_largest_number_of_atoms(monkeypatch) -> None:
    network, batch = small_network(radius=RADIUS), random_batch((9,))
    engine = SparseEngine(network)
    needed = engine.bytes_of(engine.graphs.of(batch)[0])
    monkeypatch.setattr(sparse_engine, "free_memory", lambda _: needed // 2)
    with pytest.raises(GeomAttError, match="about 4 atoms"):
        engine.evaluate(network.stacked(), batch.as_member())


def test_switches_act_on_neighbours(monkeypatch) -> None:
    network, batch = small_network(radius=RADIUS), random_batch((4, 5))
    switch = torch.rand(network.switch_layers, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    expected = network(batch, switch)
    graph = network.graph(batch)
    assert torch.allclose(network(batch, switch, graph), expected, atol=1e-11)


def test_all_pairs_and_cells_do_not_go_together() -> None:
    with pytest.raises(GeomAttError, match="radius"):
        small_network()(crystal(CUBE, 2))


def test_attention_of_cells_is_that_of_clusters() -> None:
    """For every image of a neighbour, and summed over the images."""
    network, batch = small_network(radius=RADIUS), crystal(SKEW, 3)
    records = network.attention(batch)
    around = cluster(batch, 2 * RADIUS)
    expected = network.attention(around)
    for record, wanted in zip(records, expected, strict=True):
        pairs = record.images[0]
        images = batch.positions[0, pairs.j] + torch.from_numpy(pairs.shift).double() @ SKEW
        place = torch.cdist(images, around.positions[0]).argmin(1)
        assert torch.allclose(torch.from_numpy(pairs.value), wanted.matrix[0, pairs.i, place], atol=1e-11)
        total = torch.zeros(3, 3, dtype=torch.float64)
        i, j, value = (torch.from_numpy(x) for x in (pairs.i, pairs.j, pairs.value))
        total.index_put_((i, j), value, accumulate=True)
        own = wanted.matrix[0, :3, :3].diagonal()
        assert torch.allclose(record.matrix[0], total + torch.diag(own), atol=1e-11)


@pytest.mark.parametrize("cell", [SKEW, FLAT, None], ids=["cell", "flat", "molecule"])
def test_a_graph_serves_a_moving_structure_for_some_steps(monkeypatch, cell: Tensor | None) -> None:
    network, batch = small_network(radius=RADIUS), crystal(SKEW if cell is None else cell, 4)
    batch = Batch(batch.numbers, batch.positions / 3.0, cell=None if cell is None else batch.cell)
    monkeypatch.setitem(graphs.SKIN, "cpu", 0.4)
    engine, made = network.engine("sparse"), []
    original = graphs.structure_graph
    monkeypatch.setattr(graphs, "structure_graph", lambda *a: made.append(a[2]) or original(*a))
    prepared, generator = engine.prepare(network.stacked(), keep=True), torch.Generator().manual_seed(0)
    for step in range(12):
        found = engine.evaluate(prepared, batch.as_member())
        expected = network.engine("autograd").evaluate(network.stacked(), batch.as_member())
        assert torch.allclose(found.energy, expected.energy, atol=1e-11)
        assert torch.allclose(found.forces, expected.forces, atol=1e-10)
        if cell is not None:
            assert torch.allclose(found.stress, expected.stress, atol=1e-11, equal_nan=True)
        noise = torch.randn(batch.positions.shape, generator=generator, dtype=torch.float64)
        scale = 1.0 + 0.002 * step
        box = None if batch.cell is None else scale * batch.cell
        batch = Batch(batch.numbers, scale * batch.positions + 0.02 * noise, cell=box)
    own = [reach for reach in made if reach != RADIUS]
    assert own
    assert all(reach == RADIUS + 0.4 for reach in own)
    reference = 12 if cell is not None else 0  # the readable network makes a graph of cells, too
    assert len(made) - reference < 8


@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_a_scan_of_two_molecules_is_smooth_in_float32(engine: str) -> None:
    """From 2 to 15 Å: float32 follows float64, and beyond the radius nothing changes at all."""
    network, grid = small_network(radius=5.0), torch.arange(2.0, 15.0, 0.04, dtype=torch.float64)
    one = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.76, 0.59], [0.0, -0.76, 0.59]], dtype=torch.float64)
    positions = torch.cat([one.expand(len(grid), -1, -1), one + grid[:, None, None] * torch.eye(3)[0]], 1)
    batch = Batch(torch.tensor([8, 1, 1, 8, 1, 1]).expand(len(grid), -1), positions)
    exact = evaluate(network, batch, engine)
    single = small_network(radius=5.0).to(torch.float32)
    short = evaluate(single, batch.apply(lambda x: x.float() if x.is_floating_point() else x), engine)
    force, noise = exact.forces[0, :, 3:, 0].sum(-1), 1e-5 * exact.forces.abs().max()
    assert (short.energy - exact.energy).abs().max() < 1e-5 * exact.energy.abs().max()
    assert (short.forces - exact.forces).abs().max() < noise
    assert not (short.forces[0, grid > 5.0, 3:, 0].sum(-1).abs() > noise).any()
    bend = force.diff() / 0.04
    assert bend.diff().abs().max() < 0.5 * bend.abs().max()  # a jump would be the whole of it
    far = exact.energy[0, grid > 5.0]
    assert torch.equal(far, far[:1].expand_as(far)) or (far - far[0]).abs().max() < 1e-13


def test_members_do_not_share_what_their_forces_need() -> None:
    networks = [small_network(seed, radius=RADIUS) for seed in (0, 1)]
    batches = [random_batch((4, 3), seed) for seed in (2, 3)]
    state = {n: torch.cat([own.stacked()[n] for own in networks]) for n in networks[0].stacked()}
    together = networks[0].engine("sparse").evaluate(state, Batch.stack(batches))
    for m, (network, batch) in enumerate(zip(networks, batches, strict=True)):
        alone = evaluate(network, batch, "autograd")
        assert torch.allclose(together.energy[m], alone.energy[0], atol=1e-12)
        assert torch.allclose(together.forces[m], alone.forces[0], atol=1e-12)
