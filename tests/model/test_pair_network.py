"""The pair-states network against its equations written out with loops, and what must hold of any network."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, vmap

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.autograd import AutogradEngine
from geomatt.model.pair_states.config import PairStatesConfig
from geomatt.model.pair_states.network import PairStates
from geomatt.model.registry import network_class, new_network

SETTINGS = {"channels": 5, "rounds": 2, "functions": 6}


def small_network(seed: int = 0, **changes) -> PairStates:
    """A network with random weights, biases included, in float64."""
    network = new_network("pair", {**SETTINGS, **changes}, (1, 6, 8), seed=seed, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in network.named_parameters():
            if "b" in name:  # b1, b2 and biases: zero in a new network
                p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    assert isinstance(network, PairStates)
    return network


def random_batch(atoms: tuple[int, ...], seed: int = 0, pad_to: int = 0) -> Batch:
    """Structures of H, C and O with the given numbers of atoms."""
    generator = torch.Generator().manual_seed(seed)
    size = max(*atoms, pad_to)
    numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (len(atoms), size), generator=generator)]
    numbers = numbers * (torch.arange(size) < torch.tensor(atoms)[:, None])
    positions = 1.5 * torch.randn(len(atoms), size, 3, generator=generator, dtype=torch.float64)
    return Batch(numbers, positions)


def oracle(
    weights: dict[str, Tensor], config: PairStatesConfig, numbers: list[int], r: Tensor
) -> list[float]:
    """Atomic energies of one structure without padding: every sum a loop, vectors only over channels."""
    n, width = len(numbers), config.channels
    z = [config.elements.index(number) for number in numbers]
    first, last = math.exp(-10.0), 1.0
    mu = [first + (last - first) * l / (config.functions - 1) for l in range(config.functions)]
    beta = (2.0 * (1.0 - math.exp(-10.0)) / config.functions) ** -2
    count = n if config.normalisation == "atoms" else config.typical_atoms
    scale = 1.0 / math.sqrt(count)

    def u(i: int, j: int) -> float:
        y = math.dist(r[i].tolist(), r[j].tolist()) / config.radius if config.radius else 0.0
        return 1.0 - 28.0 * y**6 + 48.0 * y**7 - 21.0 * y**8 if y < 1.0 else 0.0

    def silu(v: Tensor) -> Tensor:
        return torch.tensor([u / (1.0 + math.exp(-u)) for u in v.tolist()], dtype=torch.float64)

    x = {}
    for i in range(n):
        for j in range(n):
            if i == j:
                x[i, j] = weights["e"][z[i]]
                continue
            d = math.dist(r[i].tolist(), r[j].tolist())
            phi = torch.tensor([math.exp(-beta * (math.exp(-d) - m) ** 2) for m in mu], dtype=torch.float64)
            x[i, j] = u(i, j) * (weights["K"] @ phi) * weights["g"][z[i]] * weights["h"][z[j]]
    for t in range(config.rounds):
        a = {pair: weights["W_AB"][t, :width] @ state for pair, state in x.items()}
        b = {pair: weights["W_AB"][t, width:] @ state for pair, state in x.items()}
        new = {}
        for i in range(n):
            for j in range(n):
                p = torch.zeros(width, dtype=torch.float64)
                for m in range(n):
                    p = p + scale * a[i, m] * b[m, j]
                hidden = silu(weights["W1"][t] @ torch.cat([x[i, j], p]) + weights["b1"][t])
                new[i, j] = x[i, j] + u(i, j) * (weights["W2"][t] @ hidden + weights["b2"][t])
        x = new
    energies = []
    for i in range(n):
        others = torch.zeros(width, dtype=torch.float64)
        for j in range(n):
            if j != i:
                others = others + scale * x[i, j]
        v = torch.cat([x[i, i], others])
        for layer in (0, 2):
            v = silu(weights[f"readout.{layer}.weight"] @ v + weights[f"readout.{layer}.bias"])
        energies.append(float(weights["readout.4.weight"][0] @ v + weights["readout.4.bias"][0]))
    return energies


@pytest.mark.parametrize("changes", [{}, {"normalisation": "constant"}, {"radius": 3.0}])
@pytest.mark.parametrize("atoms", [1, 2, 5])
def test_energies_are_those_of_the_equations(atoms: int, changes: dict) -> None:
    network = small_network(typical_atoms=7.0, **changes)
    batch = random_batch((atoms,))
    expected = oracle(network.state_dict(), network.config, batch.numbers[0].tolist(), batch.positions[0])
    assert torch.allclose(network(batch)[0], torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


def test_registry_and_settings() -> None:
    assert network_class("pair") is network_class("pair-states") is PairStates
    with pytest.raises(GeomAttError, match="normalisation"):
        PairStatesConfig((1,), normalisation="none")
    with pytest.raises(GeomAttError, match="channels"):
        PairStatesConfig((1,), channels=0)


def test_elements_begin_nearly_alike_and_weights_are_orthogonal() -> None:
    network = new_network("pair", {"channels": 256}, (1, 6, 8), dtype=torch.float64)
    states = network.initial_states(random_batch((20, 20)))
    apart = states[:, ~torch.eye(20, dtype=torch.bool)]
    assert 2 / 256 < apart.square().mean() < 30 / 256
    for table in (network.g, network.h):
        assert 0.1 < table.std(0).mean() < 0.3
        assert abs(table.mean() - 1.0) < 0.05
    assert all(torch.allclose(w @ w.T, torch.eye(256, dtype=w.dtype), atol=1e-5) for w in network.W2)


def test_symmetries() -> None:
    """Rotation, reflection, translation and permutation of atoms leave energies and attention alone."""
    network, batch = small_network(), random_batch((6,))
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    order = torch.randperm(6)
    moved = Batch(batch.numbers[:, order], (batch.positions @ rotation.T + 3.0)[:, order])
    assert torch.allclose(network(moved), network(batch)[:, order], atol=1e-11)
    for one, other in zip(network.attention(moved), network.attention(batch), strict=True):
        assert torch.allclose(one.matrix, other.matrix[:, order][:, :, order], atol=1e-11)
        assert torch.equal(one.matrix, one.matrix.mT)


@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 100))
def test_padding_changes_nothing(atoms: int, extra: int, seed: int) -> None:
    network = small_network()
    one, two = random_batch((atoms, 6), seed), random_batch((atoms, 6), seed, pad_to=6)
    positions = torch.cat([two.positions, 99.0 * torch.randn(2, extra, 3, dtype=torch.float64)], 1)
    padded = Batch(torch.nn.functional.pad(two.numbers, (0, extra)), positions)
    expected = network(Batch(one.numbers[:1, :atoms], one.positions[:1, :atoms]))
    found = network(padded)
    assert torch.allclose(found[:1, :atoms], expected, atol=1e-12)
    assert not found[padded.numbers == 0].any()


def test_elements_matter_and_so_does_their_order() -> None:
    network, batch = small_network(), random_batch((4,))
    other = Batch(torch.where(batch.numbers == 1, 6, batch.numbers), batch.positions)
    assert not torch.allclose(network(batch), network(other))
    mirrored = network.initial_states(batch).transpose(1, 2)
    assert not torch.allclose(network.initial_states(batch), mirrored)


def test_forces_are_the_slope_of_the_energy() -> None:
    network, batch = small_network(), random_batch((5, 3))
    engine = AutogradEngine(network)
    forces = engine.evaluate(network.stacked(), batch.as_member()).forces
    assert forces is not None
    direction, step = torch.randn_like(batch.positions) * batch.mask[..., None], 1e-5

    def energy(t: float) -> Tensor:
        return network(Batch(batch.numbers, batch.positions + t * direction)).sum()

    slope = (energy(step) - energy(-step)) / (2 * step)
    assert torch.allclose(-(forces[0] * direction).sum(), slope, rtol=1e-7)
    assert not forces[0][batch.numbers == 0].any()
    assert torch.allclose(forces[0].sum(1), torch.zeros(2, 3, dtype=torch.float64), atol=1e-10)


def test_loss_gradient_is_right() -> None:
    """That of ½|E|² + ½|F|² against finite differences of the weights."""
    network, batch = small_network(), random_batch((4, 3)).as_member()
    engine, state = AutogradEngine(network), network.stacked()
    evaluation = engine.evaluate(state, batch, gradient=True)
    assert evaluation.forces is not None
    gradient = engine.gradient(evaluation, evaluation.energy.detach(), evaluation.forces.detach())[0]
    torch.manual_seed(0)
    change = {name: torch.randn_like(p) for name, p in network.named_parameters()}

    def loss(t: float) -> float:
        moved = {**state, **{name: state[name] + t * change[name] for name in change}}
        found = engine.evaluate(moved, batch)
        assert found.forces is not None
        return 0.5 * float(found.energy.square().sum() + found.forces.square().sum())

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    along = sum(
        float((g * c.flatten()).sum())
        for g, c in zip(gradient.split([c.numel() for c in change.values()]), change.values(), strict=True)
    )
    assert math.isclose(along, slope, rel_tol=1e-6)


def test_members_run_at_once() -> None:
    networks = [small_network(seed) for seed in (0, 1)]
    batches = [random_batch((4, 3), seed) for seed in (2, 3)]
    state = {name: torch.stack([n.state_dict()[name] for n in networks]) for name in networks[0].state_dict()}
    both = Batch.stack(batches)
    found = vmap(lambda p, z, r: functional_call(networks[0], p, (Batch(z, r),)))(
        state, both.numbers, both.positions
    )
    for m, (network, batch) in enumerate(zip(networks, batches, strict=True)):
        assert torch.allclose(found[m], network(batch), atol=1e-12)


def test_no_force_is_undefined() -> None:
    """Coincident atoms, a single atom, atoms very far apart, and no atoms at all."""
    network = small_network()
    engine = AutogradEngine(network)
    numbers = torch.tensor([[1, 6, 6], [8, 0, 0], [1, 1, 6], [0, 0, 0]])
    positions = torch.zeros(4, 3, 3, dtype=torch.float64)
    positions[0, 2] = 1.0
    positions[2, 1:] = torch.tensor([[1e3, 0.0, 0.0], [0.0, 1e4, 0.0]])
    evaluation = engine.evaluate(network.stacked(), Batch(numbers, positions).as_member(), gradient=True)
    assert evaluation.forces is not None
    gradient = engine.gradient(evaluation, torch.ones(1, 4), torch.ones_like(evaluation.forces))
    assert torch.isfinite(evaluation.energy).all()
    assert torch.isfinite(evaluation.forces).all()
    assert torch.isfinite(gradient).all()
    assert not evaluation.forces[0, 1:].any()


def test_energy_is_smooth_in_the_distance() -> None:
    """No step in energy, force or curvature of two molecules moved apart, up to 40 Å."""
    network, batch = small_network(), random_batch((6,))
    apart = torch.linspace(0.0, 40.0, 4001, dtype=torch.float64)
    shift = torch.zeros(6, 3, dtype=torch.float64)
    shift[3:, 0] = 1.0
    positions = batch.positions + 3.0 * shift + apart[:, None, None] * shift
    energy = network(Batch(batch.numbers.expand(len(apart), -1), positions)).sum(-1)
    third = energy.diff(n=3)  # a step in the curvature would stand out by a factor of a hundred
    assert third.abs().max() < 10 * third[:1000].abs().mean() + 1e-11


def test_switch() -> None:
    """Switching pairs: nothing for ones, no trace of an atom that is switched off, and rounds one by one."""
    network, batch = small_network(normalisation="constant"), random_batch((5,))
    ones = torch.ones(1, 1, 1, 1)
    assert torch.allclose(network.atomic_energies(batch, ones), network(batch), atol=1e-13)
    alone = torch.ones(5, 5)
    alone[4, :4] = alone[:4, 4] = 0.0
    without = network(Batch(batch.numbers[:, :4], batch.positions[:, :4]))
    assert torch.allclose(network.atomic_energies(batch, alone)[:, :4], without, atol=1e-12)
    energies = []
    for t in range(3):
        switch = torch.ones(3, 1, 5, 5)
        switch[t, :, 0, 1] = switch[t, :, 1, 0] = 0.0
        energies.append(network.atomic_energies(batch, switch).sum().item())
    assert len({round(e, 9) for e in [*energies, network(batch).sum().item()]}) == 4
    half = torch.full((5, 5), 0.5)
    assert not torch.allclose(network.atomic_energies(batch, half), network(batch))
    only_diagonal = torch.ones(5, 5) - 0.5 * torch.eye(5)
    assert torch.allclose(network.atomic_energies(batch, only_diagonal), network(batch), atol=1e-13)


def test_attention_of_a_switched_pair_is_what_the_equations_say() -> None:
    network, batch = small_network(), random_batch((3,))
    records = network.attention(batch)
    assert [(r.order, r.layer, r.label) for r in records] == [(2, 0, "round 1"), (2, 1, "round 2")]
    x = network.initial_states(batch)[0]
    a, b = (x @ network.W_AB[0].T).chunk(2, -1)
    expected = 0.5 * ((a[0, 1] @ b[1, 0]).abs() + (a[1, 0] @ b[0, 1]).abs())
    assert torch.allclose(records[0].matrix[0, 0, 1], expected)


def test_elements_can_be_added() -> None:
    network, batch = small_network(), random_batch((4, 3))
    more = network.with_elements((1, 6, 7, 8))
    assert more.config.elements == (1, 6, 7, 8)
    assert torch.allclose(more(batch), network(batch), atol=1e-13)
