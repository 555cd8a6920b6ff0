"""Choice of engine: neighbour lists and all pairs give the same predictions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from conftest import random_atoms, small_network

from geomatt import Potential, Structure
from geomatt.data import Batch, collate
from geomatt.model import Normalisation, new_network
from geomatt.model.geometric_attention import engine
from geomatt.model.geometric_attention.cpu.engine import CODE, CompiledEngine
from geomatt.model.geometric_attention.dense.engine import DenseEngine
from geomatt.model.geometric_attention.sparse.engine import SparseEngine
from geomatt.model.native.library import library


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("bias", [True, False])
def test_neighbour_lists_and_all_pairs_agree_at_the_switch(dtype, relative, bias, monkeypatch):
    for atoms in (108, 114):
        numbers, positions = random_atoms(atoms, seed=atoms, spread=4.0)
        structure = Structure(numbers.numpy(), positions.numpy())
        answers = []
        for limit in (0, 110, 1000):  # neighbour lists, as shipped, all pairs
            monkeypatch.setattr(engine, "DENSE_ATOMS", dict.fromkeys(("c++", "cpu"), limit))
            network = small_network(orders=(2, 3, 4), bias=bias, dtype=dtype)
            answers += Potential(network, Normalisation(-100.0, 2.0)).predict(structure)
        for other in answers[1:]:
            scale = np.abs(answers[0].forces).max()
            assert other.energy == pytest.approx(answers[0].energy, abs=relative * atoms)
            assert np.abs(other.forces - answers[0].forces).max() < relative * scale


@pytest.mark.parametrize(
    ("dtype", "atoms", "chosen"),
    [
        (torch.float32, 80, CompiledEngine),
        (torch.float32, 120, SparseEngine),
        (torch.float64, 30, DenseEngine),
        (torch.float64, 60, SparseEngine),
    ],
)
def test_the_switch_depends_on_what_computes_all_pairs(dtype, atoms, chosen):
    if library(CODE) is None:
        pytest.skip("no C++ compiler")
    network = new_network("geomatt", {}, (1, 6), dtype=dtype)
    numbers, positions = random_atoms(atoms, spread=4.0)
    batch = collate([Structure(numbers.numpy().clip(1, 1), positions.numpy())], dtype).as_member()
    assert type(network.engine().chosen(network.stacked(), batch)) is chosen


def test_changed_weights_are_detected():
    numbers, positions = random_atoms(6)
    structure = Structure(numbers.numpy(), positions.numpy())
    potential = Potential(small_network(), Normalisation())
    before = potential.predict(structure)[0].energy
    with torch.no_grad():
        potential.network.output.bias.add_(1.0)
    assert potential.predict(structure)[0].energy == pytest.approx(before + 6)


def test_periodic_structures_use_neighbour_lists():
    network = small_network(orders=(2,), bias=False)
    structure = Structure(np.array([6]), np.zeros((1, 3)), cell=4.0 * np.eye(3), pbc=(True, True, True))
    assert Potential(network, Normalisation()).predict(structure)[0].stress.shape == (3, 3)


@pytest.mark.parametrize("label", ["cell", "charge", "spin"])
def test_graphs_are_given_numbers_and_positions_only(label):
    """A replayed graph would keep the cell, charge or spin of its capture."""

    class Numbers:  # as on a GPU
        is_cuda, shape, device = True, (1, 1, 3), torch.device("cuda")

    batch = Batch(Numbers(), torch.zeros(1, 1, 3, 3))
    for kind in ("geomatt", "pair"):
        engine = new_network(kind, {}, (1,)).engine()
        assert engine.capturable(batch)
        assert not engine.capturable(dataclasses.replace(batch, **{label: torch.zeros(1, 1)}))
