"""The hand-written sweeps of the pair-states network against automatic differentiation, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from test_pair_network import random_batch, small_network
from torch import Tensor

from geomatt.data import Structure
from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation, Potential
from geomatt.model.autograd import AutogradEngine
from geomatt.model.interface import Parameters
from geomatt.model.pair_states.dense.engine import DenseEngine
from geomatt.model.pair_states.network import PairStates


def members(count: int, **changes) -> tuple[PairStates, Parameters, Batch]:
    """Networks and their batches, with padding, a single atom, and elements that differ."""
    networks = [small_network(seed, **changes) for seed in range(count)]
    state = {name: torch.stack([n.state_dict()[name] for n in networks]) for name in networks[0].state_dict()}
    return networks[0], state, Batch.stack([random_batch((4, 6, 1), seed + 5) for seed in range(count)])


def slopes(batch: Batch) -> tuple[Tensor, Tensor]:
    """Some ∂loss/∂E and ∂loss/∂F."""
    generator = torch.Generator().manual_seed(3)
    by_energy = torch.randn(batch.numbers.shape[:2], generator=generator, dtype=torch.float64)
    by_forces = torch.randn(batch.positions.shape, generator=generator, dtype=torch.float64)
    return by_energy, by_forces * batch.mask[..., None]


def close(found: Tensor | None, expected: Tensor | None) -> bool:
    assert found is not None
    assert expected is not None
    return bool((found - expected).abs().max() <= 1e-10 * expected.abs().max())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rounds": 1},
        {"rounds": 3, "normalisation": "constant", "functions": 40},
        {"radius": 3.0},
        {"radius": 2.5, "rounds": 1},
        {"radius": 4.0, "rounds": 3},
    ],
)
def test_engine_agrees_with_automatic_differentiation(count: int, changes: dict) -> None:
    network, state, batch = members(count, **changes)
    reference, dense = AutogradEngine(network), DenseEngine(network)
    prepared = dense.prepare(state)
    expected = reference.evaluate(state, batch)
    found = dense.evaluate(prepared, batch)
    assert close(found.energy, expected.energy)
    assert close(found.atomic, expected.atomic)
    assert close(found.forces, expected.forces)
    assert dense.evaluate(prepared, batch, forces=False).forces is None
    for by_forces in (slopes(batch)[1], None):
        by_energy = slopes(batch)[0]
        expected = reference.evaluate(state, batch, gradient=True)
        found = dense.evaluate(prepared, batch, gradient=True)
        assert close(found.energy, expected.energy)
        assert close(found.forces, expected.forces)
        right = reference.gradient(expected, by_energy, by_forces)
        gradient = dense.gradient(found, by_energy, by_forces)
        sizes = [p.numel() for p in network.parameters()]
        for name, g, r in zip(dense.names, gradient.split(sizes, 1), right.split(sizes, 1), strict=True):
            assert close(g, r), name  # each by itself, since their sizes differ


def test_engines_evaluate_the_network_with_all_pairs_switched_on() -> None:
    network, state, batch = members(1)
    found = DenseEngine(network).evaluate(DenseEngine(network).prepare(state), batch).atomic
    assert close(found, network.atomic_energies(batch.member(0), torch.ones(())).detach()[None])


def test_gradient_against_finite_differences() -> None:
    network, state, batch = members(1)
    dense = DenseEngine(network)
    by_energy, by_forces = slopes(batch)
    gradient = dense.gradient(
        dense.evaluate(dense.prepare(state), batch, gradient=True), by_energy, by_forces
    )
    generator = torch.Generator().manual_seed(0)
    change = {
        name: torch.randn((1, *p.shape), generator=generator, dtype=p.dtype)
        for name, p in network.named_parameters()
    }

    def loss(t: float) -> float:
        moved = {**state, **{name: state[name] + t * change[name] for name in change}}
        found = dense.evaluate(dense.prepare(moved), batch)
        assert found.forces is not None
        return float((by_energy * found.energy).sum() + (by_forces * found.forces).sum())

    along = float((gradient * torch.cat([c.flatten(1) for c in change.values()], 1)).sum())
    assert math.isclose(along, (loss(1e-5) - loss(-1e-5)) / 2e-5, rel_tol=1e-7)


def test_float32_and_coincident_atoms() -> None:
    network, state, _ = members(1)
    state = {name: v.float() if v.is_floating_point() else v for name, v in state.items()}
    numbers = torch.tensor([[[1, 6, 6], [8, 0, 0], [0, 0, 0]]])
    batch = Batch(numbers, torch.zeros(1, 3, 3, 3))
    dense = DenseEngine(network)
    found = dense.evaluate(dense.prepare(state), batch, gradient=True)
    assert found.forces is not None
    assert found.forces.dtype == torch.float32
    assert not found.forces.any()
    gradient = dense.gradient(found, torch.ones(1, 3), torch.ones_like(found.forces))
    assert torch.isfinite(gradient).all()
    assert torch.isfinite(found.energy).all()


def test_cells_are_refused() -> None:
    network = small_network(0, radius=4.0)
    cell = Structure(np.array([8, 1]), np.eye(3)[:2], cell=5.0 * np.eye(3), pbc=(True, True, True))
    with pytest.raises(GeomAttError, match="auto or sparse"):
        Potential(network, Normalisation(), {}, engine="dense").predict([cell])


def test_network_chooses_its_engine() -> None:
    network, _, _ = members(1)
    assert isinstance(network.engine("dense"), DenseEngine)
    assert isinstance(network.engine("autograd"), AutogradEngine)
    assert type(network.engine()) is not AutogradEngine
