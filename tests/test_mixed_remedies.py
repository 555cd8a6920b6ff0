"""The energies that `scripts/measure_mixed.py` adds: zero inside the data, with the forces they belong to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scripts_path import load_script

from geomatt.data import Dataset, Structure, collate

METHANOL = Structure(
    [6, 8, 1, 1, 1, 1],
    [[0, 0, 0], [1.42, 0, 0], [1.75, 0.9, 0], [-0.4, 1.0, 0.1], [-0.4, -0.5, 0.9], [-0.4, -0.5, -0.9]],
)
WATER = Structure([8, 1, 1], [[0.0, 0, 0], [0.97, 0, 0], [-0.24, 0.94, 0]])


@pytest.fixture
def remedies():
    return load_script("mixed_remedies")


def term_of(remedies, kind, structures):
    data = Dataset.from_structures([METHANOL, WATER])
    batch = collate(structures, torch.float64)
    known = remedies.shortest_distances(data) if kind == "Repulsion" else remedies.neighbour_ranges(data)
    return getattr(remedies, kind)(batch.numbers, known), batch.positions


def distorted(scale):
    rng = np.random.default_rng(1)
    return [
        replace(s, positions=scale * s.positions + 0.1 * rng.normal(size=s.positions.shape))
        for s in (METHANOL, WATER)
    ]


@pytest.mark.parametrize("kind", ["Repulsion", "Coordination"])
def test_terms_are_zero_for_the_training_frames(remedies, kind):
    term, positions = term_of(remedies, kind, [METHANOL, WATER])
    energy, forces = term(positions)
    assert energy.abs().max() < 1e-9
    assert forces.abs().max() < 1e-9


@pytest.mark.parametrize(
    ("kind", "scale"), [("Repulsion", 0.85), ("Coordination", 0.75), ("Coordination", 1.3)]
)
def test_forces_are_derivatives_and_energies_are_positive(remedies, kind, scale):
    """Atoms too near, and for the neighbours also too far. Water has none to gain, however near."""
    term, positions = term_of(remedies, kind, distorted(scale))
    energy, forces = term(positions)
    assert energy[0] > 0.1
    assert energy[1] > 0.0
    step, numerical = 1e-5, torch.zeros_like(forces)
    for n in range(6):
        for axis in range(3):
            moved = positions.clone()
            moved[:, n, axis] += step
            above = term(moved)[0]
            moved[:, n, axis] -= 2 * step
            numerical[:, n, axis] = (term(moved)[0] - above) / (2 * step)
    assert torch.allclose(forces[0], numerical[0], atol=1e-5)
    assert torch.allclose(forces[1, :3], numerical[1, :3], atol=1e-5)
    assert forces[1, 3:].abs().max() == 0  # padding


def test_a_term_acts_where_an_atom_leaves_for_another(remedies):
    """The hydrogen of the alcohol beside the carbon: five neighbours of C, none of them too near."""
    moved = METHANOL.positions.copy()
    moved[2] = [0.3, -1.0, 0.3]
    term, positions = term_of(remedies, "Coordination", [replace(METHANOL, positions=moved)])
    assert float(term(positions)[0]) > 2.0


def test_the_screened_repulsion_is_that_of_bare_nuclei_at_short_distances(remedies):
    near, charges = torch.tensor(1e-4, dtype=torch.float64), torch.tensor(6.0)
    energy, _ = remedies.zbl(charges, torch.tensor(0.19, dtype=torch.float64), near)
    assert float(energy * near) == pytest.approx(6 * 14.4, rel=2e-3)


def test_steps_are_counted_while_a_replica_is_alive(remedies):
    def forces(positions):
        return torch.zeros(2), torch.zeros_like(positions)

    def term(positions):
        return torch.tensor([1.0, 1.0]), torch.ones_like(positions)

    added = remedies.Added(forces, term, 2)
    added(torch.zeros(2, 3, 3))
    added.alive = torch.tensor([True, False])
    energy, found = added(torch.zeros(2, 3, 3))
    assert added.acted.tolist() == [1, 0]
    assert energy.tolist() == [1.0, 1.0]
    assert float(found.sum()) == 18.0
