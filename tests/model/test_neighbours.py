"""Neighbour lists against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomatt.errors import GeomAttError
from geomatt.model import neighbours
from geomatt.model.neighbours import kdtree_search, neighbour_list, vesin_search


def brute_force(positions, cell, pbc, radius):
    """Every pair and image in a range that is far too large, as a set of (i, j, shift)."""
    reach = 12
    shifts = np.array(list(itertools.product(*[range(-reach, reach + 1) if p else (0,) for p in pbc])))
    vectors = positions[None, None] + (shifts @ cell)[:, None, None] - positions[None, :, None]
    near = np.linalg.norm(vectors, axis=-1) <= radius  # (shifts, i, j)
    return {
        (int(i), int(j), *map(int, shifts[s]))
        for s, i, j in zip(*np.nonzero(near), strict=True)
        if i != j or shifts[s].any()
    }


def as_set(found):
    pairs = [(int(i), int(j), *map(int, s)) for i, j, s in zip(found.i, found.j, found.shift, strict=True)]
    assert len(set(pairs)) == len(pairs)  # no pair twice
    return set(pairs)


@pytest.fixture(params=["vesin", "kdtree"])
def searcher(request, monkeypatch):
    if request.param == "vesin":
        pytest.importorskip("vesin")
    search = {"vesin": vesin_search, "kdtree": kdtree_search}[request.param]
    monkeypatch.setattr(neighbours, "search", lambda: search)


seeds = st.integers(0, 10**6)
flags = st.tuples(st.booleans(), st.booleans(), st.booleans())


@pytest.mark.usefixtures("searcher")
class TestSearch:
    @settings(max_examples=40, deadline=None)
    @given(seeds, flags, st.integers(1, 6), st.floats(0.5, 4.0))
    def test_any_cell_matches_brute_force(self, seed, pbc, atoms, radius):
        rng = np.random.default_rng(seed)
        cell = np.diag(rng.uniform(1.5, 6.0, 3)) + rng.uniform(-0.4, 0.4, (3, 3))  # triclinic
        positions = rng.uniform(-1.5, 2.5, (atoms, 3)) @ cell  # also outside the cell
        assert as_set(neighbour_list(positions, cell, pbc, radius)) == brute_force(
            positions, cell, pbc, radius
        )

    @settings(max_examples=20, deadline=None)
    @given(seeds, st.integers(1, 30), st.floats(0.5, 6.0))
    def test_no_cell_matches_brute_force(self, seed, atoms, radius):
        positions = np.random.default_rng(seed).uniform(-5, 5, (atoms, 3))
        found = neighbour_list(positions, None, None, radius)
        assert as_set(found) == brute_force(positions, np.eye(3), (False,) * 3, radius)

    def test_cell_smaller_than_radius(self):
        """One atom is the neighbour of many of its own images."""
        cell = 2.0 * np.eye(3)
        found = neighbour_list(np.zeros((1, 3)), cell, (True,) * 3, 4.1)
        assert as_set(found) == brute_force(np.zeros((1, 3)), cell, (True,) * 3, 4.1)
        assert len(found) == 32

    def test_coincident_atoms_are_neighbours(self):
        found = neighbour_list(np.zeros((2, 3)), None, None, 3.0)
        assert as_set(found) == {(0, 1, 0, 0, 0), (1, 0, 0, 0, 0)}

    def test_isolated_atom_has_no_neighbours(self):
        assert len(neighbour_list(np.zeros((1, 3)), None, None, 6.0)) == 0

    def test_rows_that_are_not_periodic_do_not_matter(self):
        """ASE gives zero vectors along directions without a cell."""
        positions = np.random.default_rng(0).uniform(0, 6, (12, 3))
        cell = np.diag([4.0, 0.0, 0.0])
        other = np.array([[4.0, 0, 0], [3.9, 0.1, 0], [1.0, 2.0, 3.0]])
        pbc = (True, False, False)
        assert as_set(neighbour_list(positions, cell, pbc, 5.0)) == as_set(
            neighbour_list(positions, other, pbc, 5.0)
        )

    def test_atoms_far_outside_of_the_cell(self):
        cell = np.diag([3.0, 4.0, 5.0])
        positions = np.random.default_rng(1).uniform(0, 5, (5, 3))
        moved = positions + np.array([[30.0, 0, 0], [0, -400.0, 0], [0, 0, 0], [3e4, 0, -5.0], [0, 0, 0]])
        vectors = []
        for r in (positions, moved):
            found = neighbour_list(r, cell, (True,) * 3, 4.0)
            d = np.linalg.norm(r[found.j] + found.shift @ cell - r[found.i], axis=1)
            assert d.max() <= 4.0 + 1e-9
            vectors.append(np.sort(d))
        np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-9)


def test_periodic_needs_a_cell():
    with pytest.raises(GeomAttError, match="needs a cell"):
        neighbour_list(np.zeros((1, 3)), None, (True,) * 3, 5.0)


@pytest.mark.parametrize("third", [[0.0, 0.0, 0.0], [4.0, 4.0, 0.0]])
def test_flat_cell_is_refused(third):
    cell = np.array([[4.0, 0, 0], [0, 4.0, 0], third])
    with pytest.raises(GeomAttError, match="no volume"):
        neighbour_list(np.zeros((1, 3)), cell, (True,) * 3, 5.0)


def test_positions_must_be_finite():
    with pytest.raises(GeomAttError, match="finite"):
        neighbour_list(np.array([[0.0, np.nan, 0.0]]), None, None, 5.0)


def test_without_vesin_the_tree_is_used(monkeypatch):
    monkeypatch.setattr(neighbours.importlib.util, "find_spec", lambda name: None)
    assert neighbours.search() is kdtree_search
