"""Properties every network must have. A network is tested here by being registered."""

from __future__ import annotations

import pytest
import torch
from conftest import random_atoms
from hypothesis import given
from hypothesis import strategies as st

from geomatt import Potential, Structure, load, save
from geomatt.data.batch import Batch
from geomatt.model import Normalisation, network_class, network_names, new_network
from geomatt.model.interface import Network

ELEMENTS = (1, 6, 8)
# Further settings that change how a network is computed, by a name of their own.
VARIANTS = {"pair with a radius": ("pair", {"radius": 4.0})}
NETWORKS = [*network_names(), *VARIANTS]
ENGINES = [
    (name, engine)
    for name in NETWORKS
    for engine in network_class(VARIANTS.get(name, (name, {}))[0]).engines()
]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def make(name: str, seed: int = 0, dtype=torch.float64, **settings) -> Network:
    """A small network with random weights."""
    kind, variant = VARIANTS.get(name, (name, {}))
    small = {**network_class(kind).small, **variant, **settings}
    return new_network(kind, small, ELEMENTS, seed=seed, dtype=dtype)


def batch_of(*sizes: int, seed: int = 0, dtype=torch.float64) -> Batch:
    """Random structures of given sizes, padded to the largest."""
    numbers = torch.zeros(len(sizes), max(sizes), dtype=torch.int64)
    positions = torch.zeros(len(sizes), max(sizes), 3, dtype=dtype)
    for b, size in enumerate(sizes):
        numbers[b, :size], xyz = random_atoms(size, seed + b)
        positions[b, :size] = xyz.to(dtype)
    return Batch(numbers, positions)


def evaluate(network: Network, batch: Batch, engine: str = "autograd", keep: bool = False):
    """Energies (B,) and forces (B, N, 3)."""
    chosen = network.engine(engine)
    found = chosen.evaluate(chosen.prepare(network.stacked(), keep=keep), batch.as_member())
    return found.energy[0].clone(), found.forces[0].clone()


def close(got: torch.Tensor, wanted: torch.Tensor, relative: float) -> bool:
    return bool((got - wanted).abs().max() <= relative * wanted.abs().max() + 1e-12)


@pytest.mark.parametrize("name", NETWORKS)
@given(seed=st.integers(0, 10_000), atoms=st.integers(2, 7), reflect=st.booleans())
def test_energy_is_invariant_and_forces_rotate(name, seed, atoms, reflect):
    network, batch = make(name), batch_of(atoms, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    rotation = q * r.diagonal().sign()
    if reflect != bool(torch.linalg.det(rotation) < 0):
        rotation = -rotation
    shift = 10 * torch.randn(3, generator=generator, dtype=torch.float64)
    energy, forces = evaluate(network, batch)
    turned, moved = evaluate(network, Batch(batch.numbers, batch.positions @ rotation.T + shift))
    assert close(turned, energy, 1e-11)
    assert close(moved, forces @ rotation.T, 1e-9)


@pytest.mark.parametrize("name", NETWORKS)
@given(seed=st.integers(0, 10_000), atoms=st.integers(2, 7))
def test_permuting_atoms_permutes_results(name, seed, atoms):
    network, batch = make(name), batch_of(atoms, seed=seed)
    order = torch.randperm(atoms, generator=torch.Generator().manual_seed(seed))
    permuted = Batch(batch.numbers[:, order], batch.positions[:, order])
    energy, forces = evaluate(network, batch)
    other, moved = evaluate(network, permuted)
    assert close(other, energy, 1e-11)
    assert close(moved, forces[:, order], 1e-9)
    for mine, theirs in zip(network.attention(batch), network.attention(permuted), strict=True):
        assert close(theirs.matrix, mine.matrix[:, order][:, :, order], 1e-9)


@pytest.mark.parametrize(("name", "engine"), ENGINES)
@pytest.mark.parametrize("keep", [False, True])
def test_padding_and_other_structures_change_nothing(name, engine, keep):
    network, sizes = make(name), (1, 4, 6)
    together = batch_of(*sizes)
    noise = torch.randn(together.positions.shape, dtype=torch.float64)
    padded = Batch(together.numbers, torch.where(together.mask[..., None], together.positions, noise))
    energies, forces = evaluate(network, padded, engine, keep)
    for b, size in enumerate(sizes):
        alone = Batch(together.numbers[b : b + 1, :size], together.positions[b : b + 1, :size])
        energy, own = evaluate(network, alone, engine, keep)
        assert close(energies[b], energy[0], 1e-10)
        assert (forces[b, :size] - own[0]).abs().max() <= 1e-10 * max(1.0, float(own.abs().max()))
        assert not forces[b, size:].any()


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_forces_are_derivatives_of_the_energy(name, engine):
    network, batch, step = make(name), batch_of(4), 1e-5
    forces = evaluate(network, batch, engine)[1][0]
    for atom in range(4):
        for axis in range(3):
            sides = []
            for sign in (1, -1):
                moved = batch.positions.clone()
                moved[0, atom, axis] += sign * step
                sides.append(float(evaluate(network, Batch(batch.numbers, moved), engine)[0]))
            expected = (sides[1] - sides[0]) / (2 * step)
            assert expected == pytest.approx(float(forces[atom, axis]), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("name", "engine"), ENGINES)
@pytest.mark.parametrize("with_forces", [True, False])
def test_loss_gradient_is_that_of_finite_differences(name, engine, with_forces):
    network, batch = make(name), batch_of(3, 5)
    generator = torch.Generator().manual_seed(1)
    by_energy = torch.randn(1, 2, generator=generator, dtype=torch.float64)
    by_forces = (
        torch.randn(1, 2, 5, 3, generator=generator, dtype=torch.float64) * batch.mask[None, ..., None]
    )
    chosen, tensors = network.engine(engine), network.stacked()

    def value() -> float:
        found = chosen.evaluate(chosen.prepare(tensors), batch.as_member(), forces=with_forces)
        total = (by_energy * found.energy).sum()
        return float(total + (by_forces * found.forces).sum() if with_forces else total)

    found = chosen.evaluate(chosen.prepare(tensors), batch.as_member(), forces=with_forces, gradient=True)
    gradient = chosen.gradient(found, by_energy, by_forces if with_forces else None)[0]
    names = [n for n, _ in network.named_parameters()]
    assert len(gradient) == sum(tensors[n].numel() for n in names)
    start = 0
    for n in names:
        flat = tensors[n].reshape(-1)
        for i in torch.randint(len(flat), (2,), generator=generator).tolist():
            before, sides = float(flat[i]), []
            for sign in (1, -1):
                flat[i] = before + sign * 1e-5
                sides.append(value())
            flat[i] = before
            expected = (sides[0] - sides[1]) / 2e-5
            assert float(gradient[start + i]) == pytest.approx(expected, rel=1e-4, abs=1e-6), n
        start += len(flat)


@pytest.mark.parametrize("name", NETWORKS)
def test_energy_along_a_distance_is_smooth_to_10_angstrom(name):
    network, step = make(name), 0.002
    grid = torch.arange(0.3, 10.0, step, dtype=torch.float64)
    positions = torch.zeros(len(grid), 3, 3, dtype=torch.float64)
    positions[:, 1, 0] = 1.2
    positions[:, 2, 1] = grid
    with torch.no_grad():
        energy = network(Batch(torch.tensor([6, 8, 1]).expand(len(grid), -1), positions)).sum(-1)
    slope, bend = energy.diff() / step, energy.diff(n=2) / step**2
    # A step in the energy or the force would make these grow as 1/step.
    assert slope.diff().abs().max() < 0.05 * slope.abs().max()
    assert bend.abs().max() < 1e3 * max(1.0, float(slope.abs().max()))


@pytest.mark.parametrize(
    "positions",
    [
        [[0.0, 0, 0]],
        [[0.0, 0, 0], [0.0, 0, 0]],
        [[0.0, 0, 0], [0.0, 0, 0], [1.0, 0, 0]],
        [[0.0, 0, 0], [500.0, 0, 0], [0.0, 5.0, 0]],
    ],
    ids=["isolated", "coincident", "coincident and one more", "far apart"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_isolated_coincident_and_distant_atoms_give_finite_numbers(name, engine, dtype, positions):
    network, r = make(name, dtype=dtype), torch.tensor([positions], dtype=dtype)
    batch = Batch(torch.tensor([[6, 1, 8]])[:, : r.shape[1]], r)
    chosen = network.engine(engine)
    found = chosen.evaluate(chosen.prepare(network.stacked()), batch.as_member(), gradient=True)
    assert torch.isfinite(found.energy).all()
    assert torch.isfinite(found.forces).all()
    slopes = torch.ones_like(found.energy), torch.ones_like(found.forces)
    assert torch.isfinite(chosen.gradient(found, *slopes)).all()


@pytest.mark.parametrize(("name", "engine"), ENGINES)
@pytest.mark.parametrize("keep", [False, True])
def test_engines_agree_with_automatic_differentiation(name, engine, keep):
    """For two members at once and one alone, in float64; and in float32 to its resolution."""
    networks, batch = [make(name, seed) for seed in (0, 1)], batch_of(7, 5, 9)
    tensors = {n: torch.cat([own.stacked()[n] for own in networks]) for n in networks[0].stacked()}
    both = batch.apply(lambda x: torch.stack([x, x.flip(0)]))
    results = []
    for kind in ("autograd", engine):
        chosen = networks[0].engine(kind)
        found = chosen.evaluate(chosen.prepare(tensors, keep=keep), both, gradient=True)
        slopes = torch.cos(found.energy.detach()), torch.sin(found.forces.detach())
        results.append((found.energy.detach(), found.forces.detach(), chosen.gradient(found, *slopes)))
    for got, wanted in zip(results[1], results[0], strict=True):
        assert close(got, wanted, 1e-9)
    for m, network in enumerate(networks):
        energy, forces = evaluate(network, both.member(m), engine, keep)
        assert close(energy, results[0][0][m], 1e-9)
        assert close(forces, results[0][1][m], 1e-9)
        single = make(name, m, torch.float32).load_tensors(
            {n: t.float() if t.is_floating_point() else t for n, t in network.tensors().items()}
        )
        short = both.member(m).apply(lambda x: x.float() if x.is_floating_point() else x)
        energy, forces = evaluate(single, short, engine, keep)
        assert close(energy.double(), results[0][0][m], 1e-4)
        assert close(forces.double(), results[0][1][m], 1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_devices_agree_and_an_index_chooses_structures(name, engine, device):
    network, batch = make(name, dtype=torch.float32), batch_of(5, 7, 6, 7, dtype=torch.float32)
    energy, forces = evaluate(network, batch)
    chosen = network.to(device).engine(engine)
    there = batch.apply(lambda x: x.to(device)).as_member()
    index = torch.tensor([[3, 1]], device=device)
    found = chosen.evaluate(chosen.prepare(network.stacked()), there, index=index)
    assert close(found.energy[0].cpu(), energy[[3, 1]], 1e-4)
    assert close(found.forces[0].cpu(), forces[[3, 1]], 1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_saved_model_gives_the_same_numbers(name, tmp_path):
    numbers, positions = random_atoms(6)
    structure = Structure(numbers.numpy(), positions.numpy())
    for dtype in (torch.float32, torch.float64):
        before = Potential(make(name, dtype=dtype), Normalisation(-3.0, 2.0), {"note": "kept"})
        after = load(save(before, tmp_path / f"{dtype}.safetensors"))
        assert after.record == {"note": "kept"}
        (mine,), (theirs,) = before.predict(structure), after.predict(structure)
        assert mine.energy == theirs.energy
        assert (mine.forces == theirs.forces).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_more_elements_change_nothing_for_the_old_ones(name):
    network, batch = make(name), batch_of(5)
    grown = network.with_elements((1, 6, 7, 8, 16))
    assert grown.config.elements == (1, 6, 7, 8, 16)
    assert close(evaluate(grown, batch)[0], evaluate(network, batch)[0], 1e-12)
    back = grown.with_elements(ELEMENTS)
    assert close(evaluate(back, batch)[1], evaluate(network, batch)[1], 1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_parts_cover_all_parameters_and_have_a_readout(name):
    network = make(name)
    prefixes = tuple(p for part in network.parts.values() for p in part)
    assert network.parts["readout"]
    assert all(n.startswith(prefixes) for n, _ in network.named_parameters())
    assert set(network.per_element) <= {n for n, _ in network.named_parameters()}
