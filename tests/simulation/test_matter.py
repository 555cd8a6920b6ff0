"""Structures a user may give to networks with a radius: every kind of cell, and molecules that part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geomatt import GeomAttError, Potential
from geomatt.data.batch import Batch
from geomatt.model import Network, Normalisation, new_network

ase = pytest.importorskip("ase")

from geomatt.simulation import GeomAttCalculator  # noqa: E402

RADIUS = 4.0
NETWORKS = {
    "pair": {"radius": RADIUS, "channels": 8, "rounds": 2},
    "geomatt": {"bias": False, "layers": 2, "features": 8, "overlap_features": 16, "d_max": 3.0},
}
SKEW = np.array([[4.8, 0.0, 0.3], [2.1, 4.6, 0.0], [-0.4, 0.5, 5.1]])
CELLS = {  # lattice vectors, pbc, atoms
    "cube": (5.0 * np.eye(3), (1, 1, 1), 6),
    "smaller than the radius": (np.diag([2.0, 2.5, 3.0]), (1, 1, 1), 2),
    "far smaller than the radius": (np.diag([1.1, 1.2, 1.3]), (1, 1, 1), 1),
    "flat": (np.array([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.2, 0.1, 0.9]]), (1, 1, 1), 2),
    "nearly parallel vectors": (np.array([[5.0, 0, 0], [4.9, 1.0, 0], [0, 0, 5.0]]), (1, 1, 1), 2),
    "left-handed": (SKEW[[1, 0, 2]], (1, 1, 1), 4),
    "slab": (SKEW, (1, 1, 0), 4),
    "slab across y": (SKEW, (1, 0, 1), 4),
    "wire": (SKEW, (0, 1, 0), 4),
    "slab without a third vector": (np.diag([4.0, 4.0, 0.0]), (1, 1, 0), 3),
    "no neighbours": (30.0 * np.eye(3), (1, 1, 1), 1),
}


def network(kind: str = "pair") -> Network:
    return new_network(kind, NETWORKS[kind], (1, 8)).double()


def calculated(atoms, kind: str = "pair"):
    atoms.calc = GeomAttCalculator(Potential(network(kind), Normalisation()))
    return atoms


def cell_of(name: str):
    """Atoms anywhere, most of them outside of the cell."""
    cell, pbc, count = CELLS[name]
    rng = np.random.default_rng(count)
    place = rng.uniform(-3, 3, (count, 3)) @ (cell + np.diag(4.0 * ~cell.any(1)))
    return ase.Atoms(rng.choice([1, 8], count), place, cell=cell, pbc=np.array(pbc, dtype=bool))


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("name", CELLS)
def test_a_supercell_has_the_same_atoms(name: str, kind: str) -> None:
    one = calculated(cell_of(name), kind)
    copies = [3 if periodic else 1 for periodic in one.pbc]
    many = calculated(cell_of(name).repeat(copies), kind)
    energy, forces = one.get_potential_energy(), one.get_forces()
    assert np.isfinite(forces).all()
    assert many.get_potential_energy() == pytest.approx(np.prod(copies) * energy, abs=1e-10)
    np.testing.assert_allclose(many.get_forces()[: len(one)], forces, atol=1e-10)
    if one.pbc.all():
        np.testing.assert_allclose(many.get_stress(), one.get_stress(), atol=1e-10)
    inside = cell_of(name)
    inside.wrap()
    inside = calculated(inside, kind)
    assert inside.get_potential_energy() == pytest.approx(energy, abs=1e-10)
    np.testing.assert_allclose(inside.get_forces(), forces, atol=1e-10)


def drifted(cells: float):
    atoms = cell_of("left-handed")
    atoms.positions[0] += cells * atoms.cell.array[1]
    return atoms


@pytest.mark.parametrize(("kind", "cells"), [("pair", 1e3), ("pair", 1e6), ("geomatt", 1e3)])
def test_an_atom_that_drifted_through_many_cells(kind: str, cells: float) -> None:
    near, far = calculated(drifted(0), kind), calculated(drifted(cells), kind)
    # float64 has so many digits left at this distance.
    assert far.get_potential_energy() == pytest.approx(near.get_potential_energy(), abs=1e-13 * cells + 1e-10)
    np.testing.assert_allclose(far.get_forces(), near.get_forces(), atol=1e-12 * cells + 1e-10)


def test_too_far_for_the_numbers_of_pairs() -> None:
    with pytest.raises(GeomAttError, match="Wrap them"):
        calculated(drifted(1e6), "geomatt").get_potential_energy()


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(
    ("cell", "match"),
    [
        (np.diag([4.0, 4.0, 0.0]), "without a lattice vector"),
        (np.array([[4.0, 0, 0], [0, 4.0, 0], [4.0, 4.0, 0]]), "no volume"),
        (np.diag([4.0, np.nan, 4.0]), "not finite"),
        (np.diag([4.0, np.inf, 4.0]), "not finite"),
    ],
)
def test_cells_that_are_none(kind: str, cell: np.ndarray, match: str) -> None:
    atoms = calculated(ase.Atoms("OH", [[0, 0, 0], [0, 0, 1.0]], cell=cell, pbc=True), kind)
    with pytest.raises(GeomAttError, match=match):
        atoms.get_potential_energy()


WATER = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.76, 0.59], [0.0, -0.76, 0.59]], dtype=torch.float64)


def pair_of_waters(apart: torch.Tensor) -> Batch:
    """Two molecules at these distances along x."""
    second = WATER + apart[:, None, None] * torch.eye(3, dtype=torch.float64)[0]
    positions = torch.cat([WATER.expand(len(apart), -1, -1), second], 1)
    return Batch(torch.tensor([8, 1, 1, 8, 1, 1]).expand(len(apart), -1), positions)


def evaluate(model: Network, batch: Batch, engine: str):
    chosen = model.engine(engine)
    return chosen.evaluate(chosen.prepare(model.stacked()), batch.as_member())


@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_nothing_steps_where_pairs_reach_the_radius(engine: str) -> None:
    """Energy, force and curvature on both sides of every distance at which a pair leaves the radius."""
    model, delta, step = network(), 1e-4, 1e-4
    between = (WATER[:, None] - WATER[None]).reshape(-1, 3)  # of molecule one from molecule two, at x = 0
    across = between[:, 1:].square().sum(1)
    crossings = (RADIUS**2 - across).sqrt() + between[:, 0]
    grid = crossings[:, None] + torch.tensor([-delta, delta])
    points = grid[..., None] + step * torch.tensor([-1.0, 0.0, 1.0])  # (pairs, sides, differences)
    found = evaluate(model, pair_of_waters(points.reshape(-1)), engine)
    energy = found.energy[0].reshape(points.shape)
    force = found.forces[0, :, 3:, 0].sum(-1).reshape(points.shape)
    curvature = (force[..., 2] - force[..., 0]) / (2 * step)
    whole = evaluate(model, pair_of_waters(torch.arange(2.0, 15.0, 0.02, dtype=torch.float64)), engine)
    pull = whole.forces[0, :, 3:, 0].sum(-1)
    for values, scale in (
        (energy[..., 1], whole.energy.abs().max()),
        (force[..., 1], pull.abs().max()),
        (curvature, pull.diff().abs().max() / 0.02),
    ):
        assert values.diff(dim=1).abs().max() < 1e-3 * scale


@pytest.mark.parametrize("engine", ["auto", "dense", "sparse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_far_molecule_changes_no_bit_of_another(engine: str, dtype: torch.dtype) -> None:
    model = network().to(dtype)
    apart = pair_of_waters(torch.tensor([8.0, 9.5, 15.0], dtype=torch.float64))
    apart.positions[1, 3:] *= 1.25  # another shape, too
    found = evaluate(model, apart.apply(lambda x: x.to(dtype) if x.is_floating_point() else x), engine)
    for one in (found.atomic[0, :, :3], found.forces[0, :, :3]):
        assert torch.equal(one, one[:1].expand_as(one))
    alone = Batch(apart.numbers[:1, :3], apart.positions[:1, :3].to(dtype))
    bound = 1e-6 if dtype == torch.float32 else 1e-14
    assert torch.allclose(found.atomic[0, 0, :3], evaluate(model, alone, engine).atomic[0, 0], atol=bound)


def test_large_systems_are_not_watched_pair_by_pair(monkeypatch, tmp_path) -> None:
    """Memory of walls and watchdogs would grow with the square of the atoms; the motion is the same."""
    from geomatt import Dataset, Structure
    from geomatt.model.domain import Domain
    from geomatt.simulation import MDSettings, batched, inputs, md, run_dynamics

    rng = np.random.default_rng(0)
    grid = 2.5 * np.stack(np.meshgrid(*[np.arange(3)] * 3), -1).reshape(-1, 3)
    start = Structure(rng.choice([1, 8], 27), grid, cell=7.5 * np.eye(3), pbc=(True, True, True))
    frames = [Structure(start.numbers, grid + 0.1 * rng.standard_normal(grid.shape)) for _ in range(3)]
    model = Potential(network(), Normalisation(), ranges=Domain.measure(Dataset.from_structures(frames)))
    settings = MDSettings(time=0.02, temperature=300.0, walls=False, stop_on="never")
    whole = run_dynamics(model, start, settings, tmp_path / "watched")
    for module in (batched, inputs, md):
        monkeypatch.setattr(module, "MOST_WATCHED", 20)
    with pytest.warns(UserWarning, match="not all pairs are watched"):
        run = run_dynamics(model, start, settings, tmp_path / "large")
    assert run.outcome.intact.all()
    ends = [(tmp_path / name / "trajectory.extxyz").read_text() for name in ("watched", "large")]
    assert ends[0] == ends[1]
    assert run.outcome.records.potential_energy[-1] == whole.outcome.records.potential_energy[-1]
    sizes = [(tmp_path / name / "restart.safetensors").stat().st_size for name in ("watched", "large")]
    assert sizes[1] < sizes[0] - 2 * 8 * 27**2
    atoms = ase.Atoms(start.numbers, start.positions, cell=start.cell, pbc=True)
    atoms.calc = GeomAttCalculator(model)
    with pytest.warns(UserWarning, match="no walls"):
        atoms.get_forces()
