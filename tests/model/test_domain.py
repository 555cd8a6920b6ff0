"""Ranges of distances, the symmetry of bond graphs, walls, and the check for leaving the data."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import torch
from conftest import small_network
from hypothesis import given
from hypothesis import strategies as st

from geomatt import Dataset, GeomAttError, Structure
from geomatt.data import concatenate, dimer, ethanol
from geomatt.data.batch import Batch, collate
from geomatt.data.bonds import TOLERANCE, bond_matrix, distances
from geomatt.model import Normalisation, Potential
from geomatt.model.domain import (
    Domain,
    ElementRanges,
    Limits,
    MoleculeRanges,
    Ranges,
    Walls,
    measure,
    warning,
)
from geomatt.model.domain.frames import frame_doubts
from geomatt.model.domain.graph import match, pair_classes, separations
from geomatt.model.domain.measure import SQUEEZED, STRETCHED
from geomatt.model.domain.ranges import CONTACT

# Carbon skeleton and oxygens first, hydrogens last, as in MD17.
ASPIRIN = (
    [6] * 7 + [8] * 3 + [6] * 2 + [8] + [1] * 8,
    [
        (0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 0), (5, 10), (10, 7), (10, 9), (9, 20), (6, 12), (12, 11),
        (11, 8), (11, 4), (4, 15), (4, 16), (4, 17), (0, 13), (1, 14), (2, 18), (3, 19),
    ],
)  # fmt: skip
BENZENE = ([6] * 6 + [1] * 6, [(i, (i + 1) % 6) for i in range(6)] + [(i, i + 6) for i in range(6)])


def graph(numbers, bonds):
    linked = np.zeros((len(numbers), len(numbers)), dtype=bool)
    for i, j in bonds:
        linked[i, j] = linked[j, i] = True
    return np.array(numbers), linked


def automorphisms(numbers, linked):
    """All permutations that keep elements and bonds, one atom after the other."""
    found = []

    def extend(chosen):
        i = len(chosen)
        if i == len(numbers):
            found.append(chosen)
            return
        for k in set(range(len(numbers))) - set(chosen):
            if numbers[k] == numbers[i] and all(linked[k, chosen[m]] == linked[i, m] for m in range(i)):
                extend([*chosen, k])

    extend([])
    return found


def orbits(numbers, linked):
    """Unordered pairs grouped by the images they have under all automorphisms."""
    symmetry = automorphisms(numbers, linked)
    pairs = [(i, j) for i in range(len(numbers)) for j in range(i)]
    return {frozenset(frozenset((g[i], g[j])) for g in symmetry) for i, j in pairs}


def grouped(classes):
    result: dict[int, set[frozenset[int]]] = {}
    for i in range(len(classes)):
        for j in range(i):
            result.setdefault(classes[i, j], set()).add(frozenset((i, j)))
    return {frozenset(group) for group in result.values()}


@pytest.mark.parametrize(
    ("molecule", "symmetries"), [(ASPIRIN, 6), (BENZENE, 12)], ids=["aspirin", "benzene"]
)
def test_classes_are_the_orbits_of_the_symmetry_group(molecule, symmetries):
    numbers, linked = graph(*molecule)
    assert len(automorphisms(numbers, linked)) == symmetries
    assert grouped(pair_classes(numbers, linked)) == orbits(numbers, linked)


def test_classes_of_ethanol():
    frame = ethanol()[0]
    linked = bond_matrix(frame)
    classes = pair_classes(frame.numbers, linked)
    assert grouped(classes) == orbits(frame.numbers, linked)
    carbon = next(i for i in range(9) if frame.numbers[i] == 6 and (frame.numbers[linked[i]] == 1).sum() == 3)
    methyl = [h for h in np.flatnonzero(linked[carbon]) if frame.numbers[h] == 1]
    assert len({classes[carbon, h] for h in methyl}) == 1
    assert len({classes[a, b] for a in methyl for b in methyl if a != b}) == 1
    assert (np.diagonal(classes) == -1).all()
    assert (classes == classes.T).all()


def test_classes_of_benzene_are_those_of_its_distances():
    classes = pair_classes(*graph(*BENZENE))
    assert classes.max() + 1 == 10  # three C–C, four C–H, three H–H


@st.composite
def molecules(draw):
    """Random trees with some rings."""
    size = draw(st.integers(2, 7))
    numbers = draw(st.lists(st.sampled_from([1, 6]), min_size=size, max_size=size))
    bonds = [(i, draw(st.integers(0, i - 1))) for i in range(1, size)]
    bonds += draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=2))
    return graph(numbers, [(i, j) for i, j in bonds if i != j])


@given(molecules(), st.randoms(use_true_random=False))
def test_classes_and_matching_on_random_graphs(molecule, random):
    numbers, linked = molecule
    classes = pair_classes(numbers, linked)
    groups = grouped(classes)
    for orbit in orbits(numbers, linked):  # never split what a symmetry joins
        assert any(orbit <= group for group in groups)
    order = list(range(len(numbers)))
    random.shuffle(order)
    found = match(numbers[order], linked[np.ix_(order, order)], numbers, linked)
    assert found is not None
    np.testing.assert_array_equal(numbers[found], numbers[order])
    np.testing.assert_array_equal(linked[np.ix_(found, found)], linked[np.ix_(order, order)])
    np.testing.assert_array_equal(classes[np.ix_(found, found)], classes[np.ix_(order, order)])


def test_different_graphs_do_not_match():
    chain = graph([6] * 6, [(i, i + 1) for i in range(5)])
    star = graph([6] * 6, [(0, i) for i in range(1, 6)])
    assert match(*chain, *star) is None
    ring, triangles = graph([6] * 6, [(i, (i + 1) % 6) for i in range(6)]), [(0, 1), (1, 2), (2, 0)]
    two = graph([6] * 6, triangles + [(i + 3, j + 3) for i, j in triangles])
    assert match(*ring, *two) is None  # the same degrees everywhere
    assert match(*chain, *graph([6] * 5 + [8], [(i, i + 1) for i in range(5)])) is None


def test_separations():
    _, linked = graph([6] * 5, [(0, 1), (1, 2), (2, 3)])
    assert separations(linked)[0].tolist() == [0, 1, 2, 3, -1]


def test_ranges_hold_every_frame_and_are_shared():
    data = ethanol()[:50]
    domain = Domain.measure(data)
    ranges = domain.ranges
    assert isinstance(ranges, MoleculeRanges)
    assert ranges.frames == 50
    all_distances = np.stack([distances(s) for s in data])
    least, most = all_distances.min(0), all_distances.max(0)
    limits = ranges.limits(data[0].numbers, all_distances[0], "all")
    pair = ~np.eye(9, dtype=bool)
    assert (limits.lower[pair] <= least[pair]).all()
    assert (limits.upper[pair] >= most[pair]).all()
    for group in np.unique(ranges.classes[pair]):
        same = ranges.classes == group
        assert limits.lower[same].min() == limits.lower[same].max() == least[same].min()
        assert limits.upper[same].min() == limits.upper[same].max() == most[same].max()
    found = domain.outside(collate(data, torch.float64))
    assert (found.excess <= 1e-12).all()
    bonds = ranges.bonds(data[0].numbers, all_distances[0])
    assert len(bonds.pairs) == 8
    np.testing.assert_allclose(
        bonds.lengths, all_distances.mean(0)[tuple(bonds.pairs.T)], atol=0.02
    )  # equivalent bonds have one mean


def test_local_limits_leave_conformers_free():
    """Pairs far apart along the bonds keep a lower limit only where they come close."""
    data = ethanol()[:50]
    frame, ranges = data[0], measure(data)
    bonds, length = separations(bond_matrix(frame)), distances(frame)
    every, local = (ranges.limits(frame.numbers, length, pairs) for pairs in ("all", "local"))
    near = (bonds >= 1) & (bonds <= 3)
    np.testing.assert_array_equal(local.lower[near], every.lower[near])
    np.testing.assert_array_equal(local.upper[near], every.upper[near])
    assert (bonds > 3).any()
    assert np.isinf(local.upper[bonds > 3]).all()
    close = (bonds > 3) & (every.lower < CONTACT)
    np.testing.assert_array_equal(local.lower[close], every.lower[close])
    chain = graph([6] * 6, [(i, i + 1) for i in range(5)])
    straight = np.abs(np.arange(6)[:, None] - np.arange(6)) * 1.3
    far = MoleculeRanges.of(chain[0], straight, straight + 0.1, straight, 1).limits(chain[0], straight)
    assert far.lower[0, 3] == pytest.approx(3.9)
    assert far.lower[0, 4] == -np.inf
    with pytest.raises(GeomAttError, match="pairs"):
        Walls(pairs="some")  # type: ignore[arg-type]


def test_ranges_in_a_file():
    data = ethanol()[:50]
    domain = Domain(measure(data), Walls(stiffness=40.0))
    text = json.dumps(domain.to_dict())
    back = Domain.from_dict(json.loads(text))
    assert back.to_dict() == domain.to_dict()
    assert back.walls.stiffness == 40.0
    assert (domain_excess(back, data) <= 0).all()  # rounding never cuts into the data
    assert isinstance(back.ranges, MoleculeRanges)
    np.testing.assert_array_equal(back.ranges.classes, domain.ranges.classes)
    for broken in ({}, {"kind": "molecule"}, {**domain.ranges.to_dict(), "shortest": [1.0]}, {"kind": "x"}):
        with pytest.raises(GeomAttError, match="fresh copy"):
            Ranges.from_dict(broken)
    with pytest.raises(GeomAttError, match="fresh copy"):
        Domain.from_dict({"ranges": domain.ranges.to_dict()})


def test_size_of_stored_ranges_of_aspirin():
    numbers, linked = graph(*ASPIRIN)
    positions = np.random.default_rng(0).normal(size=(3, 21, 3))
    mean = np.where(linked, 1.0, 5.0)
    length = np.stack([np.linalg.norm(p[:, None] - p, axis=-1) for p in positions])
    ranges = MoleculeRanges.of(numbers, length.min(0), length.max(0), mean, 3)
    assert len(ranges.shortest) == 172
    assert len(json.dumps(ranges.to_dict())) < 6000


def domain_excess(domain, data):
    return domain.outside(collate(data, torch.float64)).excess


def test_limits_of_atoms_in_another_order():
    data = ethanol()[:20]
    domain = Domain.measure(data)
    frame = data[3]
    order = np.random.default_rng(0).permutation(9)
    shuffled = Structure(frame.numbers[order], frame.positions[order])
    limits, expected = (domain.limits(collate([s], torch.float64)) for s in (shuffled, frame))
    assert limits.notes == ("",)
    torch.testing.assert_close(limits.lower[0], expected.lower[0][order][:, order])
    bonds = domain.ranges.bonds(shuffled.numbers, distances(shuffled))
    assert np.abs(distances(shuffled)[tuple(bonds.pairs.T)] - bonds.lengths).max() < 0.2


def dimethyl_ether():
    """C2H6O with the atoms in the order of ethanol: C, C, O, H."""
    hydrogens = [[1.17, 0.81, -0.89], [1.17, 0.81, 0.89], [2.02, -0.48, 0.0]]
    positions = [[1.17, 0.19, 0.0], [-1.17, 0.19, 0.0], [0.0, -0.59, 0.0], *hydrogens]
    return Structure(
        np.array([6, 6, 8] + [1] * 6), np.array(positions + [[-x, y, z] for x, y, z in hydrogens])
    )


def test_another_molecule_has_no_limits():
    domain = Domain.measure(ethanol()[:20])
    ether = dimethyl_ether()
    assert bond_matrix(ether).sum() == 16
    limits = domain.limits(collate([ether, ethanol()[0]], torch.float64))
    assert "other bonds" in limits.notes[0]
    assert limits.notes[1] == ""
    assert not torch.isfinite(limits.lower[0]).any()
    result = domain.walls(collate([ether, ethanol()[0]], torch.float64), limits)
    assert result.energy.tolist() == [0.0, 0.0]
    assert domain.ranges.bonds(ether.numbers, distances(ether)).pairs.shape == (0, 2)


def test_distorted_training_molecule_is_recognised():
    domain = Domain.measure(ethanol()[:20])
    frame = ethanol()[0]
    positions = frame.positions.copy()
    hydrogen = 8
    carbon = int(np.flatnonzero(bond_matrix(frame)[hydrogen])[0])
    positions[hydrogen] += 0.35 * (positions[hydrogen] - positions[carbon])
    bent = Structure(frame.numbers, positions)
    assert not np.array_equal(bond_matrix(bent), bond_matrix(frame))
    batch = collate([bent], torch.float64)
    found = domain.outside(batch)
    assert 0.15 < float(found.excess) < 0.5
    assert hydrogen in found.pair[0].tolist()
    assert "8" in (warning(batch.numbers, found) or "")
    assert warning(batch.numbers, domain.outside(collate([frame], torch.float64))) is None


# --- several molecules -------------------------------------------------------------------------------------


def water(scale=1.0, second=False):
    one = np.array([[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]) * scale
    numbers, positions = [8, 1, 1], one
    if second:
        numbers, positions = numbers * 2, np.concatenate([one, one + np.array([0, 0, 3.0])])
    return Structure(np.array(numbers), positions)


def test_several_molecules_by_elements_and_bonds():
    data = Dataset.from_structures([water(), water(1.1), water(second=True), *_plain(ethanol()[:5])])
    ranges = measure(data)
    assert isinstance(ranges, ElementRanges)
    assert ranges.shortest[(8, 8, 0)] == pytest.approx(3.0)
    assert (8, 8, 0) not in ranges.longest
    assert ranges.longest[(1, 8, 1)] >= 0.96 * 1.1
    assert ranges.shortest[(6, 6, 1)] > 1.2
    domain = Domain(Ranges.from_dict(json.loads(json.dumps(ranges.to_dict()))))
    assert domain.to_dict() == Domain(ranges).to_dict()
    for structure in data:
        batch = collate([structure], torch.float64)
        limits = domain.limits(batch)
        assert limits.notes == ("",)
        assert float(domain.outside(batch, limits).excess) <= 1e-12
        assert float(domain.walls(batch, limits).energy) == 0.0
    limits = domain.limits(collate([water()], torch.float64))
    stretched = collate([water(1.5)], torch.float64)  # the bonds are those of the start
    assert float(domain.walls(stretched, limits).energy) > 0.1
    peroxide = Structure(np.array([8, 8]), np.array([[0.0, 0, 0], [1.4, 0, 0]]))
    note = domain.limits(collate([peroxide], torch.float64)).notes[0]
    assert "O–O one bond apart" in note
    lengths = ranges.bonds(water().numbers, distances(water())).lengths
    assert lengths == pytest.approx(ranges.mean[(1, 8, 1)])


def test_stretched_bonds_are_counted_as_bonds():
    assert SQUEEZED < TOLERANCE < STRETCHED
    stretched = water(1.35)  # past the rule for bonds
    assert not bond_matrix(stretched).any()
    data = Dataset.from_structures([water(), water(), stretched, *_plain(ethanol()[:2])])
    ranges = measure(data)
    assert (1, 8, 0) not in ranges.shortest  # it did not become a pair of two molecules
    assert ranges.longest[(1, 8, 1)] == pytest.approx(0.96 * 1.35, abs=0.01)


def _plain(structures):
    return [Structure(s.numbers, s.positions) for s in structures]


# --- walls -------------------------------------------------------------------------------------------------


def limits_for(lower, upper, batch):
    shape = (*batch.numbers.shape, batch.numbers.shape[-1])
    blocked = torch.eye(shape[-1], dtype=torch.bool) | ~(batch.mask[..., None] & batch.mask[..., None, :])
    return Limits(
        torch.full(shape, lower, dtype=batch.positions.dtype).masked_fill(blocked, -torch.inf),
        torch.full(shape, upper, dtype=batch.positions.dtype).masked_fill(blocked, torch.inf),
    )


def clusters(seed=0, dtype=torch.float64):
    random = np.random.default_rng(seed)
    return collate([Structure(np.full(n, 6), random.normal(size=(n, 3))) for n in (5, 3, 1)], dtype, pad_to=6)


def literal_wall(walls, positions, lower, upper):
    """The energy by its definition, one pair after the other."""
    total = positions.new_zeros(())
    for i in range(len(positions)):
        for j in range(i):
            r = (positions[i] - positions[j]).norm()
            x = torch.maximum(lower - r, r - upper) - walls.margin
            w, k = walls.onset, walls.stiffness
            if x > w:
                total = total + 0.5 * k * (x - w / 2) ** 2 + k * w**2 / 24
            elif x > 0:
                total = total + k * x**3 / (6 * w)
    return total


@given(st.integers(0, 10**6))
def test_wall_energy_and_forces_match_the_definition(seed):
    walls, batch = Walls(), clusters(seed)
    limits = limits_for(1.4, 1.9, batch)
    result = walls(batch, limits)
    for b, atoms in enumerate(batch.atoms.tolist()):
        positions = batch.positions[b, :atoms].clone().requires_grad_()
        energy = literal_wall(walls, positions, *positions.new_tensor([1.4, 1.9]))
        torch.testing.assert_close(result.energy[b], energy.detach())
        if atoms > 1 and energy > 0:
            (slope,) = torch.autograd.grad(energy, positions)
            torch.testing.assert_close(result.forces[b, :atoms], -slope)
    torch.testing.assert_close(result.atomic.sum(-1), result.energy)
    assert (result.forces[~batch.mask] == 0).all()
    assert (result.atomic[~batch.mask] == 0).all()
    assert (result.active == (result.excess > walls.margin)).all()
    torch.testing.assert_close(
        result.forces.sum(1), torch.zeros(3, 3, dtype=torch.float64), atol=1e-9, rtol=0
    )


def test_walls_are_smooth_to_second_order_and_zero_inside():
    walls = Walls()
    x = torch.linspace(-0.1, 0.5, 60001, dtype=torch.float64)
    energy, slope = walls.pair_energy(x)
    step = x[1] - x[0]
    torch.testing.assert_close((energy[2:] - energy[:-2]) / (2 * step), slope[1:-1], atol=2e-6, rtol=0)
    curvature = (slope[1:] - slope[:-1]) / step
    assert (curvature.diff().abs() <= walls.stiffness * step / walls.onset * 1.01).all()  # no jump anywhere
    assert curvature.max() == pytest.approx(walls.stiffness)
    inside = x <= walls.margin
    assert (energy[inside] == 0).all()
    assert (slope[inside] == 0).all()
    far = 0.4
    parabola = 0.5 * walls.stiffness * (far - walls.margin - walls.onset / 2) ** 2
    assert float(walls.pair_energy(torch.tensor(far))[0]) == pytest.approx(parabola, rel=0.01)


def test_members_padding_and_precision():
    walls, batch = Walls(), clusters()
    limits = limits_for(1.4, 1.9, batch)
    alone = walls(batch, limits)
    members = Batch.stack([batch, batch.apply(lambda x: x * 2 if x.is_floating_point() else x)])
    both = walls(members, limits)
    assert both.energy.shape == (2, 3)
    torch.testing.assert_close(both.energy[0], alone.energy)
    torch.testing.assert_close(both.forces[0], alone.forces)
    assert (both.energy[1] != alone.energy)[:2].all()
    single = walls(clusters(dtype=torch.float32), limits.to(dtype=torch.float32))
    assert single.energy.dtype == torch.float32
    torch.testing.assert_close(single.energy.double(), alone.energy, rtol=1e-4, atol=1e-5)


def test_coincident_atoms_give_finite_numbers():
    batch = collate([Structure(np.array([6, 6]), np.zeros((2, 3)))], torch.float64)
    result = Walls()(batch, limits_for(1.4, 1.9, batch))
    assert torch.isfinite(result.energy).all()
    assert torch.isfinite(result.forces).all()
    assert float(result.energy) > 10


def periodic(seed, strain=None):
    random = np.random.default_rng(seed)
    cell = np.diag([6.0, 6.5, 7.0]) + 0.3 * random.normal(size=(3, 3))
    positions = random.uniform(size=(4, 3)) @ cell
    if strain is not None:
        cell, positions = cell @ strain, positions @ strain
    return Structure(np.full(4, 6), positions, cell=cell, pbc=(True, True, True))


def test_periodic_walls_and_stress():
    walls, seed = Walls(), 4
    batch = collate([periodic(seed), Structure(np.full(4, 6), np.eye(4)[:, :3])], torch.float64)
    limits = limits_for(2.5, torch.inf, batch)
    result = walls(batch, limits)
    assert result.energy[0] > 0
    assert result.stress is not None
    assert result.stress[1].isnan().all()
    assert batch.cell is not None
    volume = torch.linalg.det(batch.cell[0]).abs()
    for a, b in ((0, 0), (0, 1), (1, 2), (2, 2)):
        small = 1e-5
        energies = []
        for sign in (1, -1):
            strain = np.eye(3)
            strain[a, b] += 0.5 * sign * small
            strain[b, a] += 0.5 * sign * small
            energies.append(walls(collate([periodic(seed, strain)], torch.float64), _first(limits)).energy[0])
        torch.testing.assert_close(
            result.stress[0, a, b], (energies[0] - energies[1]) / (2 * small * volume), atol=1e-7, rtol=1e-4
        )
    moved = periodic(seed)
    shifted = Structure(
        moved.numbers, moved.positions + np.eye(4)[:, :1] * moved.cell[1], cell=moved.cell, pbc=moved.pbc
    )
    torch.testing.assert_close(
        walls(collate([shifted], torch.float64), _first(limits)).energy[0], result.energy[0]
    )  # an atom may leave the cell


def _first(limits):
    return Limits(limits.lower[:1], limits.upper[:1])


def test_ranges_of_periodic_molecules_use_nearest_images():
    def boxed(structure, offset):
        cell = np.diag([12.0, 12.0, 12.0])
        inside = (structure.positions + offset) % 12.0
        return Structure(structure.numbers, inside, cell=cell, pbc=(True, True, True))

    data = Dataset.from_structures([boxed(s, 3.1 * k) for k, s in enumerate(ethanol()[:8])])
    free = measure(Dataset.from_structures(_plain(ethanol()[:8])))
    found = measure(data)
    assert isinstance(found, MoleculeRanges)
    assert isinstance(free, MoleculeRanges)
    np.testing.assert_allclose(found.shortest, free.shortest, atol=1e-9)
    np.testing.assert_allclose(found.longest, free.longest, atol=1e-9)
    assert (Domain(found).outside(collate(data, torch.float64)).excess <= 1e-9).all()


def test_bad_walls():
    with pytest.raises(GeomAttError, match="onset"):
        Walls(onset=0.0)
    with pytest.raises(GeomAttError):
        Walls(stiffness=float("nan"))


def test_real_molecules(real_data):
    from geomatt.data import read

    counts = {"aspirin": 172, "benzene": 10, "salicylic_acid": 120, "naphthalene": 45}
    for name, classes in counts.items():
        data = read(real_data / "md17" / f"md17_{name}.npz")[:200]
        ranges = measure(data)
        assert isinstance(ranges, MoleculeRanges)
        assert len(ranges.shortest) == classes


def ethanol_potential(frames: int = 200) -> Potential:
    return Potential(
        small_network(dtype=torch.float32), Normalisation(), ranges=Domain.measure(ethanol()[:frames])
    )


def test_predictions_outside_the_data_are_announced():
    potential, data = ethanol_potential(), ethanol()
    potential.predict(data[:200])  # the training frames: no warning
    with pytest.warns(UserWarning, match="This C2H6O has other bonds.*extrapolation"):
        potential.predict([dimethyl_ether()])
    on_top = data[0].positions.copy()
    carbon, hydrogen = (int(np.flatnonzero(data[0].numbers == z)[0]) for z in (6, 1))
    on_top[hydrogen] = on_top[carbon] + [0.1, 0.0, 0.0]
    with pytest.warns(UserWarning, match="1 of 4 structures: .* has other bonds"):
        potential.predict([*data[:3], Structure(data[0].numbers, on_top)])
    pairs = np.argwhere(
        np.triu(bond_matrix(data[0])) & ((data[0].numbers == 1)[:, None] | (data[0].numbers == 1))
    )
    i, j = pairs[0]
    moved = data[0].positions.copy()
    hydrogen = i if data[0].numbers[i] == 1 else j
    heavy = j if hydrogen == i else i
    bond = moved[hydrogen] - moved[heavy]
    moved[hydrogen] = moved[heavy] + 0.75 * bond / np.linalg.norm(bond)
    with pytest.warns(UserWarning, match=r"1 of 3 structures: .* of structure 2 are 0.75 Å apart; .* it was"):
        potential.predict([data[1], data[2], Structure(data[0].numbers, moved)])


def test_checking_6000_frames_takes_less_than_3_seconds():
    data, domain = ethanol(), Domain.measure(ethanol())
    frames = dict(enumerate(list(data) * 3))
    start = time.perf_counter()
    assert frame_doubts(domain.ranges, frames, 0.15) == []
    assert time.perf_counter() - start < 3.0  # 6000 frames


def test_predictions_of_several_molecules_by_elements():
    both = concatenate([ethanol()[:100], dimer()[:20]])
    potential = Potential(
        small_network(dtype=torch.float32, elements=(1, 6, 7, 8)),
        Normalisation(),
        ranges=Domain.measure(both),
    )
    potential.predict(both)
    peroxide = Structure(
        np.array([1, 8, 8, 1]), np.array([[-0.3, 0.9, 0], [0, 0, 0], [1.4, 0, 0], [1.7, -0.9, 0]])
    )
    with pytest.warns(UserWarning, match="no pair such as O–O one bond apart"):
        potential.predict([peroxide])
