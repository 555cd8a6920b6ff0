"""Geometric attention against the literal equations; general properties are tested by the network kit."""

from __future__ import annotations

import pytest
import torch
from conftest import random_atoms, small_network
from oracle import oracle_energy_and_forces

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention, pair_distances

ORDERS = [(2,), (3,), (4,), (5,), (2, 3, 4), (2, 2, 2), (2, 3, 3), (5, 2)]


def evaluate(network, engine, numbers, positions):
    """Energy and forces of one structure."""
    chosen = network.engine(engine)
    batch = Batch(numbers[None], positions[None]).as_member()
    found = chosen.evaluate(chosen.prepare(network.stacked()), batch)
    return found.energy[0, 0], found.forces[0, 0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("orders", ORDERS)
def test_network_and_dense_engine_match_the_literal_equations(orders, bias):
    network = small_network(orders=orders, bias=bias)
    numbers, positions = random_atoms(5, seed=3)
    energy, forces, alphas = oracle_energy_and_forces(
        network.state_dict(), network.config, numbers, positions
    )
    records = network.attention(Batch(numbers[None], positions[None]))
    literal = [alpha for layers in alphas for alpha in layers]
    for record, alpha in zip(records, literal, strict=True):
        torch.testing.assert_close(record.matrix[0].detach(), alpha, rtol=1e-9, atol=1e-12)
    for engine in ("autograd", "dense"):
        e, f = evaluate(network, engine, numbers, positions)
        assert float(e) == pytest.approx(float(energy), abs=1e-6)
        assert (f - forces).abs().max() <= 1e-9 * forces.abs().max()


def test_more_than_25_atoms_have_exactly_zero_self_distance():
    _, positions = random_atoms(40, seed=2)
    assert not pair_distances(positions[None]).diagonal(dim1=1, dim2=2).any()


def test_thread_count_does_not_change_the_result():
    network = small_network(orders=(2, 3, 4), features=32, overlap_features=64)
    numbers, positions = random_atoms(12, seed=4)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(evaluate(network, "dense", numbers, positions))
    torch.set_num_threads(threads)
    assert float(results[0][0]) == pytest.approx(float(results[1][0]), abs=1e-12)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-11, atol=1e-13)


def test_paper_model_has_the_papers_size():
    network = GeometricAttention(GeometricAttentionConfig(elements=(1, 6, 8)))
    # The authors count 436,545 for ethanol; they also keep an unused embedding of lithium.
    assert sum(p.numel() for p in network.parameters()) == 436_545 - 128


@pytest.mark.parametrize(
    "bad",
    [
        {"orders": (1, 2)}, {"orders": ()}, {"layers": 0}, {"elements": ()}, {"elements": (0,)},
        {"spacing": 0.0}, {"spacing": 9.0}, {"orders": (9,), "overlap_features": 16},
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(bad):
    with pytest.raises(GeomAttError):
        GeometricAttentionConfig(**{"elements": (1,), **bad})
