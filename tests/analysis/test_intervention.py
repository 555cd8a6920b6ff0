"""Switching pairs off: against literal recomputations, in all networks; deletion curves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import small_network
from oracle import oracle_energy
from tiny_network import Tiny, TinyConfig

from geomatt import Committee, GeomAttError, Potential, Structure, intervene, pair_effects, save
from geomatt.analysis import DeletionCurve, deletion_curves, faithfulness
from geomatt.analysis.deletion import BY_ATTENTION, BY_DISTANCE, BY_EFFECT, rank_correlation
from geomatt.data import Batch, ethanol
from geomatt.model import Network, Normalisation, new_network
from geomatt.model.autograd import AutogradEngine

NETWORKS = {
    "geomatt": {"features": 8, "overlap_features": 16, "layers": 2},
    "pair": {"channels": 8, "rounds": 2, "functions": 8, "normalisation": "constant"},
    "schnet": {"features": 16, "filters": 16, "interactions": 2, "gaussians": 20},
}
PAIRS = [(0, 1), (4, 2)]


def make(kind: str, seed: int = 0) -> Network:
    if kind == "geomatt":
        return small_network(seed)
    if kind == "schnet":
        pytest.importorskip("torch_geometric")
    return new_network(kind, NETWORKS[kind], (1, 6, 8), seed=seed, dtype=torch.float64)


def potential(kind: str, seed: int = 0) -> Potential:
    return Potential(make(kind, seed), Normalisation())


def molecule(size: int = 5, seed: int = 0) -> Structure:
    rng = np.random.default_rng(seed)
    return Structure(rng.choice([1, 6, 8], size), 1.2 * rng.normal(size=(size, 3)))


def as_batch(structure: Structure) -> Batch:
    return Batch(torch.from_numpy(structure.numbers)[None], torch.from_numpy(structure.positions)[None])


def switch_of(network: Network, size: int, pairs=PAIRS) -> torch.Tensor:
    switch = torch.ones(network.switch_layers, 1, size, size, dtype=torch.float64)
    for i, j in pairs:
        switch[..., i, j] = switch[..., j, i] = 0.0
    return switch


@pytest.mark.parametrize("kind", NETWORKS)
def test_ones_change_nothing_and_padding_stays_zero(kind):
    network, batch = make(kind), as_batch(molecule())
    intact = network(batch)
    for ones in (torch.ones(1), torch.ones(network.switch_layers, 1, 5, 5), torch.ones(5, 5) - torch.eye(5)):
        torch.testing.assert_close(network(batch, ones), intact, rtol=0, atol=1e-12)
    padded = Batch(
        torch.nn.functional.pad(batch.numbers, (0, 2)), torch.nn.functional.pad(batch.positions, (0, 0, 0, 2))
    )
    wide = torch.nn.functional.pad(switch_of(network, 5), (0, 2, 0, 2), value=0.7)
    found = network(padded, wide)
    torch.testing.assert_close(found[:, :5], network(batch, switch_of(network, 5)), rtol=0, atol=1e-12)
    assert not found[:, 5:].any()


@pytest.mark.parametrize("kind", NETWORKS)
def test_switching_off_all_pairs_of_an_atom_removes_it(kind):
    network, whole = make(kind), molecule()
    rest = Structure(whole.numbers[:4], whole.positions[:4])
    alone = switch_of(network, 5, [(i, 4) for i in range(4)])
    found = network(as_batch(whole), alone)[:, :4]
    torch.testing.assert_close(found, network(as_batch(rest)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", [None, 1])
def test_geometric_attention_against_the_oracle(layers):
    model, structure = potential("geomatt"), molecule()
    network = model.network
    chosen = range(network.switch_layers) if layers is None else [layers]
    off = [(layer, a, b) for layer in chosen for i, j in PAIRS for a, b in ((i, j), (j, i))]
    arguments = network.state_dict(), network.config, structure.numbers
    results = []
    for gone in ((), off):
        positions = torch.from_numpy(structure.positions).requires_grad_()
        energy, _ = oracle_energy(*arguments, positions, gone)
        (slope,) = torch.autograd.grad(energy, positions)
        results.append((energy.item(), -slope.numpy()))
    found = intervene(model, structure, PAIRS, layers)
    assert found.energy == pytest.approx(results[1][0] - results[0][0], abs=1e-11)
    assert abs(found.energy) > 1e-3
    np.testing.assert_allclose(found.forces, results[1][1] - results[0][1], atol=1e-11)
    assert found.atomic_energies.sum() == pytest.approx(found.energy, abs=1e-12)


def test_pair_states_against_loops():
    network, structure = make("pair").requires_grad_(False), molecule()
    n, gone = len(structure), {frozenset(pair) for pair in PAIRS}
    batch = as_batch(structure)
    scale = float(network.scale(batch))
    first = network.initial_states(batch)[0]
    zero = torch.zeros_like(first[0, 0])
    x = {(i, j): zero if {i, j} in gone else first[i, j] for i in range(n) for j in range(n)}
    for t in range(network.config.rounds):
        wa, wb = network.W_AB[t].chunk(2)
        new = {}
        for i, j in x:
            p = scale * sum((wa @ x[i, m]) * (wb @ x[m, j]) for m in range(n))
            hidden = torch.nn.functional.silu(network.W1[t] @ torch.cat([x[i, j], p]) + network.b1[t])
            state = x[i, j] + network.W2[t] @ hidden + network.b2[t]
            new[i, j] = zero if {i, j} in gone else state
        x = new
    for i, energy in enumerate(network(batch, switch_of(network, n))[0]):
        others = scale * sum(x[i, j] for j in range(n) if j != i)
        assert float(energy) == pytest.approx(float(network.readout(torch.cat([x[i, i], others]))), abs=1e-12)


def test_schnet_against_fewer_edges():
    network, structure = make("schnet"), molecule()
    model, n = network.model, len(structure)
    edges = torch.tensor(
        [(i, j) for i in range(n) for j in range(n) if i != j and (i, j) not in PAIRS and (j, i) not in PAIRS]
    ).T
    r = torch.from_numpy(structure.positions)
    distance = (r[edges[0]] - r[edges[1]]).norm(dim=-1)
    h = model.embedding(torch.from_numpy(structure.numbers))
    for interaction in model.interactions:
        h = h + interaction(h, edges, distance, model.distance_expansion(distance))
    expected = model.lin2(model.act(model.lin1(h)))[:, 0]
    found = network(as_batch(structure), switch_of(network, n))[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert not torch.allclose(found, network(as_batch(structure))[0])


@pytest.mark.parametrize("kind", NETWORKS)
def test_forces_are_derivatives_of_the_energy_that_is_left(kind):
    network, batch = make(kind), as_batch(molecule())
    switch = switch_of(network, 5)
    engine = AutogradEngine(network)
    forces = engine.evaluate(network.stacked(), batch.as_member(), switch=switch).forces[0, 0]
    direction = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step = 1e-5
    up, down = (
        network(Batch(batch.numbers, batch.positions + s * step * direction), switch).sum().item()
        for s in (1, -1)
    )
    assert (up - down) / (2 * step) == pytest.approx(-float((forces * direction).sum()), rel=1e-6, abs=1e-8)
    two = Batch.stack([batch, batch])
    stacked = {name: torch.cat([value, value]) for name, value in network.stacked().items()}
    both = engine.evaluate(stacked, two, switch=switch).forces
    torch.testing.assert_close(both[1, 0], forces, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", NETWORKS)
def test_effects_are_interventions_one_by_one(kind):
    model, structure = potential(kind), molecule()
    effects = pair_effects(model, structure, batch_size=3)
    for matrix in (effects.energy, effects.forces):
        assert np.array_equal(matrix, matrix.T)
        assert not matrix.diagonal().any()
    for i, j in ((0, 1), (3, 2)):
        one, other = intervene(model, structure, [(i, j)]), intervene(model, structure, {(j, i)})
        assert one.energy == pytest.approx(other.energy, abs=1e-13)
        assert effects.energy[i, j] == pytest.approx(abs(one.energy), abs=1e-12)
        assert effects.forces[i, j] == pytest.approx(np.sqrt((one.forces**2).mean()), abs=1e-12)


def test_units_committees_and_files(tmp_path):
    structure = molecule()
    models = [potential("geomatt", seed) for seed in (0, 1)]
    changes = [intervene(model, structure, PAIRS) for model in models]
    mean = intervene(Committee(models), structure, PAIRS)
    assert mean.energy == pytest.approx(np.mean([c.energy for c in changes]))
    np.testing.assert_allclose(mean.forces, np.mean([c.forces for c in changes], axis=0), atol=1e-12)
    scaled = Potential(models[0].network, Normalisation(scale=2.5))
    assert intervene(scaled, structure, PAIRS).energy == pytest.approx(2.5 * changes[0].energy)
    save(models[0], tmp_path / "m.safetensors")
    assert intervene(tmp_path / "m.safetensors", structure, PAIRS).energy == pytest.approx(changes[0].energy)
    assert intervene(models[0], structure, []).energy == pytest.approx(0.0, abs=1e-13)


def test_clear_errors():
    tiny = Potential(Tiny(TinyConfig(elements=(1, 6, 8))), Normalisation())
    model, structure = potential("geomatt"), molecule()
    with pytest.raises(GeomAttError, match="'tiny' has no switch"):
        intervene(tiny, structure, PAIRS)
    for pairs in ([(0, 0)], [(0, 5)], [(-1, 2)]):
        with pytest.raises(GeomAttError, match="two different atoms out of 0 to 4"):
            intervene(model, structure, pairs)
    for pairs in ([0, 1], [(0, 1, 2)], [(0.5, 1)]):
        with pytest.raises(GeomAttError, match="pairs of atom indices"):
            intervene(model, structure, pairs)
    for layers in (2, [0, -1], []):
        with pytest.raises(GeomAttError, match="among 0 to 1"):
            intervene(model, structure, PAIRS, layers)


def test_area_by_hand():
    curve = DeletionCurve(np.array([0.0, 0.5, 1.0]), np.array([0.0, 3.0, 1.0]), 1.0)
    np.testing.assert_allclose(curve.relative, [0.0, 0.75, 0.5])
    assert curve.area == pytest.approx(0.5 * (0.375 + 0.625))
    assert rank_correlation(np.arange(4.0), np.array([1.0, 2, 4, 3])) == pytest.approx(0.8)
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))


def test_curves_delete_in_the_order_of_the_ranking():
    model, structure = potential("geomatt"), molecule(4)
    ranking = np.array([[0, 6, 5, 4], [6, 0, 3, 2], [5, 3, 0, 1], [4, 2, 1, 0.0]])
    (found,) = deletion_curves(model, structure, {"mine": ranking}, (0.0, 1 / 3, 1.0))
    first = intervene(model, structure, [(0, 1), (0, 2)]).forces
    last = intervene(model, structure, [(2, 3), (1, 3)]).forces
    for curve, change in ((found.strongest, first), (found.weakest, last)):
        assert curve.change[0] == pytest.approx(0.0, abs=1e-12)
        assert curve.change[1] == pytest.approx(np.sqrt((change**2).mean()), abs=1e-12)
        assert curve.change[2] == pytest.approx(curve.intact)  # atoms alone have no forces
        assert curve.error is None
    assert found.score == pytest.approx(found.strongest.area - found.weakest.area)


def test_faithfulness_of_a_structure():
    model, frame = potential("geomatt"), ethanol()[0]
    found = {f.label: f for f in faithfulness(model, frame, random=2)}
    records = [r.label for r in model.network.attention(as_batch(frame))]
    assert list(found) == [*records, BY_ATTENTION, BY_DISTANCE, BY_EFFECT, "random 1", "random 2"]
    assert found[BY_EFFECT].correlation == pytest.approx(1.0)
    predicted = model.predict([frame])[0].forces
    for one in found.values():
        assert one.strongest.error[0] == pytest.approx(np.abs(predicted - frame.forces).mean(), rel=1e-9)
        assert one.strongest.error[-1] == pytest.approx(np.abs(frame.forces).mean(), rel=1e-9)


def test_pairs_in_cells_are_off_with_all_their_images() -> None:
    """In a large box as in a molecule; in a small one a pair that is off is as far away as one can be."""
    network = new_network("pair", {**NETWORKS["pair"], "radius": 2.5}, (1, 6, 8), dtype=torch.float64)
    model, free = Potential(network, Normalisation()), molecule(4)
    boxed = Structure(free.numbers, free.positions, cell=30.0 * np.eye(3), pbc=(True, True, True))
    alone, inside = (intervene(model, s, [(0, 1), (2, 3)]) for s in (free, boxed))
    assert inside.energy == pytest.approx(alone.energy, rel=1e-10)
    assert np.allclose(inside.forces, alone.forces, atol=1e-11)
    cell = np.diag([2.2, 30.0, 30.0])  # atoms see their images along x
    near = Structure(np.array([6, 8]), np.array([[0.0, 0, 0], [0.8, 1.0, 0]]), cell=cell, pbc=(True,) * 3)
    far = Structure(near.numbers, np.array([[0.0, 0, 0], [0.8, 9.0, 0]]), cell=cell, pbc=(True,) * 3)
    energies = [p.energy for p in model.predict([near, far], check_domain=False)]
    assert intervene(model, near, [(0, 1)]).energy == pytest.approx(energies[1] - energies[0], rel=1e-9)
