"""Which path evaluates a structure is nobody's business but the clock's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import random_atoms, small_network

from geomatt import Potential, Structure
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("bias", [True, False])
def test_crossing_over_changes_nothing_a_user_can_see(dtype, relative, bias):
    """Just below and above the size from which neighbour lists are used, by either path."""
    for atoms in (78, 84):
        numbers, positions = random_atoms(atoms, seed=atoms, spread=4.0)
        structure = Structure(numbers.numpy(), positions.numpy())
        answers = {}
        for path in ("auto", "dense", "sparse"):
            network = small_network(orders=(2, 3, 4), bias=bias, dtype=dtype)
            (answers[path],) = Potential(network, Normalisation(-100.0, 2.0), path=path).predict(structure)
        for path in ("dense", "sparse"):
            scale = np.abs(answers["auto"].forces).max()
            assert answers[path].energy == pytest.approx(answers["auto"].energy, abs=relative * atoms)
            assert np.abs(answers[path].forces - answers["auto"].forces).max() < relative * scale


def test_a_periodic_structure_cannot_be_forced_onto_all_pairs():
    network = small_network(orders=(2,), bias=False)
    structure = Structure(np.array([6]), np.zeros((1, 3)), cell=4.0 * np.eye(3), pbc=(True, True, True))
    with pytest.raises(GeomAttError, match="sparse"):
        Potential(network, Normalisation(), path="dense").predict(structure)
    assert Potential(network, Normalisation()).predict(structure)[0].stress.shape == (3, 3)
