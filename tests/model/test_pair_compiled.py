"""The C++ engine of pair states against the dense one in float64, and what it leaves to others."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
from test_pair_dense import members, slopes
from test_pair_network import small_network
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.evaluator import Evaluator
from geomatt.model.interface import Parameters
from geomatt.model.native import library as native
from geomatt.model.pair_states.cpu.engine import CODE, CompiledEngine, _Program, _Weights
from geomatt.model.pair_states.dense.engine import DenseEngine
from geomatt.training import Loss, Stepper

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")

CASES = [
    {"channels": 32, "rounds": 1, "functions": 7},
    {"channels": 64, "rounds": 3, "functions": 16},
    {"channels": 96, "rounds": 2, "functions": 40, "normalisation": "constant"},
    {"channels": 32, "rounds": 1, "functions": 7, "radius": 2.5},
    {"channels": 32, "rounds": 3, "functions": 16, "radius": 3.5},
]


def single(x: Tensor) -> Tensor:
    return x.float() if x.is_floating_point() else x


def results(engine, parameters: Parameters, batch: Batch, with_forces: bool = True) -> dict[str, Tensor]:
    """Atomic energies, forces, and the gradient of a loss."""
    found = engine.evaluate(engine.prepare(parameters), batch)
    kept = engine.evaluate(engine.prepare(parameters), batch, gradient=True)
    by_energy, by_forces = (x.to(batch.positions) for x in slopes(batch))
    gradient = engine.gradient(kept, by_energy, by_forces if with_forces else None)
    return {"atomic": found.atomic, "forces": found.forces, "kept": kept.forces, "gradient": gradient}


def assert_same(network, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    sizes = [p.numel() for p in network.parameters()]
    names = [name for name, _ in network.named_parameters()]
    for part in (found, expected):
        part |= dict(zip(names, part.pop("gradient").split(sizes, 1), strict=True))
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= 1e-5 * value.abs().max(), name


@pytest.mark.parametrize("with_forces", [True, False])
@pytest.mark.parametrize("changes", CASES)
def test_agrees_with_the_dense_engine(changes: dict, with_forces: bool) -> None:
    network, state, batch = members(1, **changes)
    batch.numbers[0, 1, 2] = 0  # padding between atoms
    engine = CompiledEngine(network)
    parameters = {name: single(value) for name, value in state.items()}
    assert engine.serves(parameters, batch.apply(single))
    found = results(engine, parameters, batch.apply(single), with_forces)
    assert_same(network, found, results(DenseEngine(network), state, batch, with_forces))


@pytest.mark.parametrize("atoms", [1, 2, 5, 8, 15, 23, 45])
def test_any_number_of_atoms(atoms: int) -> None:
    network, state, _ = members(1, channels=32)
    generator = torch.Generator().manual_seed(atoms)
    numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (1, 2, atoms), generator=generator)]
    positions = 2.0 * torch.randn(1, 2, atoms, 3, generator=generator, dtype=torch.float64)
    batch = Batch(numbers, positions)
    parameters = {name: single(value) for name, value in state.items()}
    found = results(CompiledEngine(network), parameters, batch.apply(single))
    assert_same(network, found, results(DenseEngine(network), state, batch))


@pytest.mark.parametrize("structures", [1, 2, 3])
def test_results_do_not_depend_on_the_threads(structures: int) -> None:
    network, state, batch = members(1, channels=64, rounds=3)
    batch = batch.apply(lambda x: single(x[:, :structures]))
    parameters = {name: single(value) for name, value in state.items()}
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(results(CompiledEngine(network), parameters, batch))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0][name], other[name]) for other in found[1:] for name in other)


def test_nan_propagates_and_coincident_atoms_have_zero_force() -> None:
    network, state, batch = members(1, channels=32)
    batch.positions[0, 0, 0, 0] = torch.nan
    batch.positions[0, 1] = 0.0
    engine = CompiledEngine(network)
    found = engine.evaluate(
        engine.prepare({name: single(value) for name, value in state.items()}), batch.apply(single)
    )
    assert found.forces[0, 0].isnan().any()
    assert (found.forces[0, 1] == 0).all()
    assert found.energy[0, 1:].isfinite().all()


def test_unknown_elements_and_structures_without_atoms() -> None:
    network, state, batch = members(1, channels=32)
    batch.numbers[0, 0, 0] = 9
    batch.numbers[0, 2] = 0
    parameters = {name: single(value) for name, value in state.items()}
    found = results(CompiledEngine(network), parameters, batch.apply(single))
    assert_same(network, found, results(DenseEngine(network), state, batch))


def test_unsupported_batches_are_left_to_the_dense_engine() -> None:
    network, state, batch = members(1, channels=32)
    parameters, inputs = {name: single(value) for name, value in state.items()}, batch.apply(single)
    engine = CompiledEngine(network)
    assert engine.serves(parameters, inputs)
    assert not engine.serves(state, batch)  # float64
    assert not engine.serves({n: v.expand(2, *v.shape[1:]) for n, v in parameters.items()}, inputs)
    network, state, _ = members(1, channels=8)
    parameters = {name: single(value) for name, value in state.items()}
    assert not CompiledEngine(network).serves(parameters, inputs)
    found, expected = (
        Evaluator(n.float(), engine=e)(inputs.member(0)) for n in (network,) for e in ("auto", "dense")
    )
    assert torch.equal(found.energy, expected.energy)


def test_evaluation_and_training_use_the_compiled_engine() -> None:
    network = small_network(channels=32).float()
    batch = members(1)[2].member(0).apply(single)
    found = Evaluator(network, keep=True)(batch, forces=False)
    assert isinstance(found.maker, CompiledEngine)
    assert found.forces is None
    targets = Batch(batch.numbers, batch.positions, torch.zeros(3), torch.zeros_like(batch.positions))
    gradients = []
    for engine in ("auto", "dense"):
        stepper = Stepper([network], targets.as_member(), Loss(), engine=engine)
        gradients.append(stepper.gradient(torch.tensor([[2, 0]])))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5 * float(gradients[0].abs().max()))


def test_wrong_shapes_and_gradients_out_of_turn_are_refused() -> None:
    network, state, batch = members(1, channels=32)
    engine, inputs = CompiledEngine(network), batch.apply(single)
    weights = engine.prepare({name: single(value) for name, value in state.items()})
    with pytest.raises(ValueError, match="positions"):
        engine.evaluate(weights, Batch(inputs.numbers, inputs.positions[:, :, :2]))
    by_energy, by_forces = (single(x) for x in slopes(batch))
    found = engine.evaluate(weights, inputs, gradient=True)
    with pytest.raises(ValueError, match="slopes"):
        engine.gradient(found, by_energy, by_forces[:, :, :2])
    found = engine.evaluate(weights, inputs, gradient=True)
    engine.gradient(found, by_energy, by_forces)
    with pytest.raises(RuntimeError, match="once"):
        engine.gradient(found, by_energy, by_forces)


@pytest.mark.parametrize("keep", [True, False])
def test_prepared_weights_of_two_networks_do_not_mix(keep: bool) -> None:
    network, state, batch = members(2, channels=32)
    engine = CompiledEngine(network)
    parts = [{name: single(value[m : m + 1]) for name, value in state.items()} for m in range(2)]
    inputs = batch.apply(lambda x: single(x[:1]))
    alone = [engine.evaluate(engine.prepare(p), inputs).energy for p in parts]
    prepared = [engine.prepare(p, keep=keep) for p in parts]
    assert all(
        torch.equal(engine.evaluate(p, inputs).energy, e) for p, e in zip(prepared, alone, strict=True)
    )


def test_struct_sizes_agree_with_the_source() -> None:
    assert (ctypes.sizeof(_Program), ctypes.sizeof(_Weights)) == (160, 120)  # as in program.hpp


def test_the_source_compiles_without_warnings(tmp_path: Path) -> None:
    flags = (*native._variants()[0], "-Wall", "-Wextra", "-Werror")
    command = native.object_command(native.compiler(), flags, CODE, tmp_path / "native.o")
    subprocess.run(command, check=True, timeout=100)
