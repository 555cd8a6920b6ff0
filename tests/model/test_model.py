"""The network against the literal equations, and the symmetries it must have."""

from __future__ import annotations

import pytest
import torch
from conftest import random_atoms, small_network
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_energy_and_forces

from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import ModelConfig
from geomatt.model.geometric_attention.dense.program import DenseProgram
from geomatt.model.geometric_attention.network import GeometricAttention, pair_distances

ORDERS = [(2,), (3,), (4,), (5,), (2, 3, 4), (2, 2, 2), (2, 3, 3), (5, 2)]


def readable(network, numbers, positions):
    """Energy, forces and attention of one structure by the readable implementation."""
    r = positions.clone().requires_grad_(True)
    alpha = network.attention(pair_distances(r[None]), (numbers > 0)[None])
    energy = network.atomic_energies(numbers[None], alpha).sum()
    (gradient,) = torch.autograd.grad(energy, r)
    return energy.detach(), -gradient, [[a[0].detach() for a in layers] for layers in alpha]


def dense(network, numbers, positions, table=False):
    """Energy and forces of one structure by the hand-written program."""
    program = DenseProgram(network.config)
    parameters = {name: value[None] for name, value in network.state_dict().items()}
    prepared = program.prepare(parameters, keep=table)
    forward = program.forward(prepared, numbers[None, None], positions[None, None])
    forces = program.forces(forward, program.adjoints(forward))
    return forward.atomic.sum(), forces[0, 0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("orders", ORDERS)
def test_readable_and_dense_paths_match_the_literal_equations(orders, bias):
    network = small_network(orders=orders, bias=bias)
    numbers, positions = random_atoms(5, seed=3)
    energy, forces, alphas = oracle_energy_and_forces(
        network.state_dict(), network.config, numbers, positions
    )
    e, f, a = readable(network, numbers, positions)
    assert e == pytest.approx(float(energy), abs=1e-6)
    torch.testing.assert_close(f, forces, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(a, alphas, strict=True):
        for alpha, literal in zip(mine, theirs, strict=True):
            torch.testing.assert_close(alpha, literal, rtol=1e-9, atol=1e-12)
    for table, relative in ((False, 1e-9), (True, 1e-7)):
        e, f = dense(network, numbers, positions, table)
        assert float(e) == pytest.approx(float(energy), abs=1e-6)
        assert (f - forces).abs().max() <= relative * forces.abs().max()


def tabulated(network, numbers, positions):
    return dense(network, numbers, positions, table=True)


def test_float32_stays_within_1e4_of_the_force_scale():
    network = small_network(orders=(2, 3, 4))
    numbers, positions = random_atoms(9, seed=1)
    _, exact, _ = readable(network, numbers, positions)
    single = small_network(orders=(2, 3, 4), dtype=torch.float32)
    for path in (
        lambda: readable(single, numbers, positions.float())[1],
        lambda: dense(single, numbers, positions.float())[1],
        lambda: tabulated(single, numbers, positions.float())[1],
    ):
        assert (path().double() - exact).abs().max() < 1e-4 * exact.abs().max()


def random_rotation(seed: int) -> torch.Tensor:
    q, r = torch.linalg.qr(
        torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    )
    return q * r.diagonal().sign()


@given(st.integers(0, 10_000), st.integers(2, 8), st.booleans())
def test_energy_is_invariant_and_forces_turn_along(seed, n, reflect):
    network = small_network(orders=(2, 3, 4))
    numbers, positions = random_atoms(n, seed)
    energy, forces, _ = readable(network, numbers, positions)
    rotation = random_rotation(seed)
    if reflect != bool(torch.linalg.det(rotation) < 0):
        rotation = -rotation
    shift = torch.randn(3, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64) * 10
    e, f, _ = readable(network, numbers, positions @ rotation.T + shift)
    assert float(e) == pytest.approx(float(energy), abs=1e-11)
    torch.testing.assert_close(f, forces @ rotation.T, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10_000), st.integers(2, 8))
def test_relabelling_atoms_relabels_everything(seed, n):
    network = small_network(orders=(2, 3, 4))
    numbers, positions = random_atoms(n, seed)
    energy, forces, alphas = readable(network, numbers, positions)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    e, f, a = readable(network, numbers[order], positions[order])
    assert float(e) == pytest.approx(float(energy), abs=1e-11)
    torch.testing.assert_close(f, forces[order], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(a[2][1], alphas[2][1][order][:, order], rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_padding_never_changes_a_result(seed, n, extra, bias):
    network = small_network(orders=(2, 3, 4), bias=bias)
    numbers, positions = random_atoms(n, seed)
    padded_numbers = torch.cat([numbers, torch.zeros(extra, dtype=torch.int64)])
    padded_positions = torch.cat([positions, torch.randn(extra, 3, dtype=torch.float64)])
    for path in (readable, dense, tabulated):
        energy, forces = path(network, numbers, positions)[:2]
        e, f = path(network, padded_numbers, padded_positions)[:2]
        assert float(e) == pytest.approx(float(energy), abs=1e-12)
        torch.testing.assert_close(f[:n], forces, rtol=1e-10, atol=1e-13)
        assert not f[n:].any()


@pytest.mark.parametrize("path", [readable, dense, tabulated])
def test_forces_are_the_derivative_of_the_energy(path):
    network = small_network(orders=(2, 3, 4))
    numbers, positions = random_atoms(4, seed=5)
    forces = path(network, numbers, positions)[1]
    step = 1e-5
    for atom in range(4):
        for axis in range(3):
            moved = positions.clone()
            moved[atom, axis] += step
            up = path(network, numbers, moved)[0]
            moved[atom, axis] -= 2 * step
            down = path(network, numbers, moved)[0]
            assert float((down - up) / (2 * step)) == pytest.approx(float(forces[atom, axis]), abs=1e-7)


def test_energy_along_a_distance_is_smooth_to_10_angstrom():
    network = small_network(orders=(2, 3, 4))
    numbers = torch.tensor([6, 8, 1])
    grid = torch.arange(0.3, 10.0, 0.002, dtype=torch.float64)
    positions = torch.zeros(len(grid), 3, 3, dtype=torch.float64)
    positions[:, 1, 0] = 1.2
    positions[:, 2, 1] = grid
    with torch.no_grad():
        energy = network(numbers.expand(len(grid), -1), positions).sum(-1)
    slope, bend = energy.diff() / 0.002, energy.diff(n=2) / 0.002**2
    assert slope.abs().max() < 1e3
    # A jump in value or slope would make the second difference grow like 1/step² or 1/step.
    assert bend.diff().abs().max() < 0.2 * bend.abs().max()
    assert slope[-1].abs() < 1e-12  # beyond d_max nothing changes any more


@pytest.mark.parametrize(
    "positions",
    [
        [[0.0, 0, 0]],
        [[0.0, 0, 0], [1.1, 0, 0]],
        [[0.0, 0, 0], [0.0, 0, 0]],
        [[0.0, 0, 0], [0.0, 0, 0], [1.0, 0, 0]],
        [[0.0, 0, 0], [500.0, 0, 0], [0.0, 5.0, 0]],
    ],
    ids=["isolated", "two", "coincident", "coincident pair and one", "far apart"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("path", [readable, dense, tabulated])
def test_odd_geometries_give_finite_numbers(path, dtype, positions):
    network = small_network(orders=(2, 3, 4), dtype=dtype)
    r = torch.tensor(positions, dtype=dtype)
    energy, forces = path(network, torch.tensor([6, 1, 8])[: len(r)], r)[:2]
    assert torch.isfinite(energy)
    assert torch.isfinite(forces).all()


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
        results.append(dense(network, numbers, positions))
    torch.set_num_threads(threads)
    assert float(results[0][0]) == pytest.approx(float(results[1][0]), abs=1e-12)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-11, atol=1e-13)


def test_paper_model_has_the_papers_size():
    network = GeometricAttention(ModelConfig(elements=(1, 6, 8)))
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
        ModelConfig(**{"elements": (1,), **bad})
