"""Ceilings of hidden units: nothing changes in the training data, everything is bounded outside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_pair_dense import close, members, slopes
from test_pair_network import random_batch, small_network
from torch import Tensor
from torch.nn import functional

from geomatt.data import Dataset, Structure
from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation, Potential, load, save
from geomatt.model.autograd import AutogradEngine
from geomatt.model.bounds import _batches, bounds_of, with_bounds, without_bounds
from geomatt.model.interface import Engine, Parameters
from geomatt.model.native.library import compiler
from geomatt.model.pair_states.ceiling import LEAST, ceiling_of, margin_of, saturated, saturation_slope
from geomatt.model.pair_states.cpu.engine import CompiledEngine
from geomatt.model.pair_states.dense.engine import DenseEngine
from geomatt.model.pair_states.network import PairStates
from geomatt.model.pair_states.sparse.engine import SparseEngine


def with_ceiling(network: PairStates, state: Parameters, batch: Batch) -> tuple[PairStates, Parameters]:
    """Ceilings low enough that `batch` reaches them: those of the first structure of each member."""
    ceilings = []
    for m in range(len(batch.numbers)):
        network.load_tensors({name: value[m] for name, value in state.items()})
        with torch.no_grad():
            ranges = network._ranges(batch.member(m).apply(lambda x: x[:1]))
        ceilings.append(ceiling_of(*ranges, margin=0.1))
    state = {**state, "ceiling": torch.stack(ceilings)}
    return network.load_tensors({name: value[0] for name, value in state.items()}), state


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"rounds": 1}, {"rounds": 3, "radius": 4.0}])
def test_engines_agree_with_automatic_differentiation(count: int, changes: dict) -> None:
    network, state, batch = members(count, **changes)
    free = AutogradEngine(network).evaluate(state, batch)
    network, state = with_ceiling(network, state, batch)
    expected = AutogradEngine(network).evaluate(state, batch)
    assert not close(free.forces, expected.forces)
    assert torch.equal(free.atomic[:, 0], expected.atomic[:, 0])  # the structure the ceiling is from
    for engine in (DenseEngine(network), SparseEngine(network)):
        found = engine.evaluate(engine.prepare(state, keep=True), batch)
        assert close(found.energy, expected.energy), engine
        assert close(found.forces, expected.forces), engine


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("changes", [{"rounds": 3}, {"rounds": 2, "radius": 3.5}])
def test_compiled_code_agrees_with_automatic_differentiation(changes: dict) -> None:
    network, state, batch = members(1, channels=32, **changes)
    batch.numbers[0, 1, 2] = 0  # padding between atoms
    network, state = with_ceiling(network, state, batch)
    expected = AutogradEngine(network).evaluate(state, batch)
    engine = CompiledEngine(network.float())
    single = {name: v.float() if v.is_floating_point() else v for name, v in state.items()}
    inputs = batch.apply(lambda x: x.float() if x.is_floating_point() else x)
    found = engine.evaluate(engine.prepare(single, keep=True), inputs)
    assert (found.energy - expected.energy).abs().max() <= 1e-5 * expected.energy.abs().max()
    assert (found.forces - expected.forces).abs().max() <= 1e-5 * expected.forces.abs().max()


def test_forces_are_the_derivative_where_units_are_above() -> None:
    network, state, batch = members(1)
    network, state = with_ceiling(network, state, batch)
    engine, step = DenseEngine(network), 1e-5
    prepared = engine.prepare(state)

    def energy(shift: float) -> Tensor:
        moved = batch.positions.clone()
        moved[0, 1, 2, 0] += shift
        return engine.evaluate(prepared, Batch(batch.numbers, moved)).energy[0, 1]

    slope = (energy(step) - energy(-step)) / (2 * step)
    forces = engine.evaluate(prepared, batch).forces
    assert forces is not None
    assert float(slope) == pytest.approx(-float(forces[0, 1, 2, 0]), rel=1e-6)


def test_saturation_is_smooth_bounded_and_identity_below() -> None:
    lowest, highest = torch.tensor([-2.0, 1.0]).double(), torch.tensor([3.0, 1.0]).double()
    part = ceiling_of(lowest, highest)
    top, room = part
    assert torch.equal(top > highest, torch.tensor([True, False]))
    assert torch.equal(room >= LEAST, torch.tensor([True, True]))
    h = torch.linspace(-3, 8, 100_001).double()[:, None].expand(-1, 2).requires_grad_()
    value = saturated(h, part)
    below = h <= top
    assert torch.equal(value[below], h[below])
    assert bool((value <= top + room).all())
    (slope,) = torch.autograd.grad(value.sum(), h, create_graph=True)
    torch.testing.assert_close(slope, saturation_slope(value, part), rtol=0, atol=1e-12)
    for smooth in (slope, torch.autograd.grad(slope.sum(), h)[0] * room):  # no jumps
        assert float(smooth.detach().diff(dim=0).abs()[:, 0].max()) < 0.01


def chain(spread: float, seed: int = 0) -> Dataset:
    """Frames of a chain of atoms, displaced at random."""
    rng = np.random.default_rng(seed)
    numbers = np.array([8, 6, 6, 1, 1])
    spiral = np.stack([np.cos(2.0 * np.arange(5)), np.sin(2.0 * np.arange(5)), 0.8 * np.arange(5)], -1)
    return Dataset.from_frames(numbers, spiral + spread * rng.normal(size=(40, 5, 3)))


@pytest.mark.parametrize("radius", [0.0, 4.0])
def test_energies_far_outside_are_bounded_and_those_of_the_data_stay(radius: float) -> None:
    network, count = small_network(0, rounds=3, radius=radius).requires_grad_(False), 20
    potential = Potential(network, Normalisation(), {})
    data, near = chain(0.05), 0.2 * chain(0.3, 1).positions.reshape(-1, count, 3)
    heap = Dataset.from_frames(np.tile(data[0].numbers, 4), near)  # four chains in a small place
    before, free = (np.array([p.energy for p in potential.predict(x)]) for x in (data, heap))
    with_bounds(network, data)
    after, bounded = (np.array([p.energy for p in potential.predict(x)]) for x in (data, heap))
    np.testing.assert_array_equal(before, after)
    # Below a ceiling silu is between -0.3 and its value there; so is what the last layer makes of it.
    top = functional.silu(network.ceiling.sum(0)[-network.config.channels :]).clamp(min=0.3)
    last = network.readout[4]
    limit = count * float((last.weight.abs() @ top + last.bias.abs()).sum())
    assert np.abs(free).max() > 10 * limit
    assert np.abs(bounded).max() <= limit


def test_a_model_file_keeps_the_ceiling(tmp_path) -> None:
    network = small_network(0)
    free = without_bounds(network)
    with_bounds(network, chain(0.05))
    assert set(network.tensors()) - set(free) == {"ceiling"}
    path = save(Potential(network, Normalisation(), {}), tmp_path / "model.safetensors")
    found = load(path).members[0].network
    assert isinstance(found, PairStates)
    assert found.ceiling is not None
    assert torch.equal(found.ceiling, network.ceiling)
    assert load(path).members[0].bounded
    assert not load(path).members[0].without_bounds().bounded
    assert found.load_tensors(without_bounds(found)).ceiling is None  # and back


def test_a_network_with_ceilings_still_has_gradients_of_a_loss() -> None:
    """Of energies and forces, by automatic differentiation, which the choice of engines falls back to."""
    network, state, batch = members(1)
    network, state = with_ceiling(network, state, batch)
    by_energy, by_forces = slopes(batch)
    engine, step = network.engine(), 1e-6
    found = engine.evaluate(engine.prepare(state), batch, gradient=True)
    gradient = engine.gradient(found, by_energy, by_forces)[0]

    def loss(name: str, shift: Tensor) -> float:
        moved = {**state, name: state[name] + shift}
        there = engine.evaluate(engine.prepare(moved), batch)
        assert there.forces is not None
        return float((by_energy * there.energy).sum() + (by_forces * there.forces).sum())

    parts = gradient.split([p.numel() for p in network.parameters()])
    for (name, p), part in zip(network.named_parameters(), parts, strict=True):
        along = torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        slope = (loss(name, step * along) - loss(name, -step * along)) / (2 * step)
        expected = float((part.reshape(p.shape) * along).sum())
        assert slope == pytest.approx(expected, rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("engine_class", [AutogradEngine, DenseEngine, SparseEngine])
def test_bounds_are_those_of_the_weights_alone(engine_class: type[Engine]) -> None:
    """Not of the network that an engine was made for."""
    free, state, batch = members(1)
    bounded, limited = with_ceiling(members(1)[0], state, batch)
    right = {
        name: AutogradEngine(free).evaluate(s, batch).energy
        for name, s in (("free", state), ("bounded", limited))
    }
    assert not torch.equal(right["free"], right["bounded"])
    for network in (free, bounded):
        engine = engine_class(network)
        for name, weights in (("free", state), ("bounded", limited)):
            assert close(engine.evaluate(engine.prepare(weights), batch).energy, right[name])


def test_with_few_frames_ceilings_are_further_up() -> None:
    network, data = small_network(0), chain(0.05)
    lowest, highest = (
        torch.stack(x) for x in zip(*map(network._ranges, _batches(network, data)), strict=True)
    )
    span = highest.amax(0) - lowest.amin(0)
    top = bounds_of(network, data)["ceiling"][0]
    torch.testing.assert_close(top, highest.amax(0) + 0.25 * span)  # 10 / 40 frames
    assert [margin_of(r, n) for r, n in ((0.0, 1000), (5.0, 1000), (0.0, 20), (5.0, 5), (0.0, 0))] == [
        0.1, 0.5, 0.5, 2.0, 10.0,
    ]  # fmt: skip


def test_bounds_are_measured_in_parts_without_padding() -> None:
    """Structures of several sizes give the extremes of all of them, however wide their padding is."""
    network = small_network(0)
    batch = random_batch((4, 6, 1), 5)
    together = network.bounds([batch])["ceiling"]
    apart = [batch.apply(lambda x, b=b: x[b : b + 1]).trimmed() for b in range(3)]
    assert [len(one.numbers[0]) for one in apart] == [4, 6, 1]
    assert close(together, network.bounds(apart)["ceiling"])
    wider = Batch(functional.pad(batch.numbers, (0, 3)), functional.pad(batch.positions, (0, 0, 0, 3)))
    assert close(together, network.bounds([wider])["ceiling"])


def test_the_engine_for_training_refuses_ceilings() -> None:
    """It would leave them out of the gradient."""
    network, state, batch = members(1)
    network, state = with_ceiling(network, state, batch)
    engine = network.engine("dense")
    with pytest.raises(GeomAttError, match="has bounds"):
        engine.evaluate(engine.prepare(state), batch, gradient=True)


def test_measuring_bounds_leaves_the_network_as_it_is() -> None:
    network, data = small_network(0), chain(0.05)
    with_bounds(network, data)
    before = network.ceiling
    found = bounds_of(network, chain(0.5))
    assert network.ceiling is before
    assert bool((found["ceiling"][0] >= before[0]).any())
    with pytest.raises(ValueError, match="weights do not fit"):
        network.load_tensors({"ceiling": before})
    assert network.ceiling is before


def test_a_transferred_network_keeps_what_its_base_has_seen() -> None:
    """In rounds, whose weights it has from there; its readout is another one."""
    network, channels = with_bounds(small_network(0), chain(0.3)), small_network(0).config.channels
    calm = chain(0.05)
    own, both = bounds_of(network, calm)["ceiling"], bounds_of(network, calm, network)["ceiling"]
    assert network.ceiling is not None
    assert torch.equal(both[:, -3 * channels :], own[:, -3 * channels :])
    assert bool((both >= own).all())
    assert bool((both[:, : -3 * channels] >= network.ceiling[:, : -3 * channels]).all())
    assert not torch.equal(both, own)


def test_cells_are_looked_at_one_by_one() -> None:
    """A small cell may have many neighbours."""
    data = chain(0.05)
    cells = Dataset.from_structures([in_a_cell(data[i], 4.0) for i in range(3)])
    network = small_network(0, radius=5.0)
    assert [len(batch.numbers) for batch in _batches(network, cells)] == [1, 1, 1]
    assert max(len(batch.numbers) for batch in _batches(network, data)) == 32
    potential = Potential(with_bounds(network, cells), Normalisation(), {})
    network.ceiling[0] -= 2 * network.ceiling[1] + 0.5  # lower, so that the structure reaches it
    network.ceiling[1] = 0.2
    shifts = np.sin(np.arange(15.0)).reshape(5, 3)
    wild = replace(cells[0], positions=cells[0].positions + shifts)
    strained = [in_a_cell(replace(wild, positions=c * wild.positions), 4.0 * c) for c in (0.999, 1.001)]
    low, high = (p.energy for p in potential.predict(strained, check_domain=False))
    stress, free = (
        p.predict([wild], check_domain=False)[0].stress for p in (potential, potential.without_bounds())
    )
    assert np.trace(stress) * 4.0**3 == pytest.approx((high - low) / 0.002, rel=1e-3)
    assert not np.allclose(stress, free)


def in_a_cell(structure: Structure, length: float) -> Structure:
    return replace(structure, cell=length * np.eye(3), pbc=(True, True, True))


def test_padding_between_atoms_above_a_ceiling_stays_zero() -> None:
    """Ceilings below zero would lift what is padded."""
    network, state, batch = members(1)
    network, state = with_ceiling(network, state, batch)
    state["ceiling"] = state["ceiling"].clone()
    state["ceiling"][:, 0] = -0.2
    network.load_tensors({name: value[0] for name, value in state.items()})
    longer = Batch(
        torch.nn.functional.pad(batch.numbers, (0, 2)), torch.nn.functional.pad(batch.positions, (0, 0, 0, 2))
    )
    for engine in (DenseEngine(network), SparseEngine(network), AutogradEngine(network)):
        expected = AutogradEngine(network).evaluate(state, batch)
        found = engine.evaluate(engine.prepare(state, keep=True), longer)
        assert close(found.energy, expected.energy), engine
        assert close(found.forces[:, :, : batch.numbers.shape[-1]], expected.forces), engine
