"""The compiled sweeps against the plain ones, and what happens where nothing can be compiled."""

from __future__ import annotations

import ctypes
import stat
import subprocess

import pytest
import torch
from conftest import random_atoms, small_network

from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.cpu import library as native_library
from geomatt.model.geometric_attention.cpu.program import NativeProgram, _Program, _Stream
from geomatt.model.geometric_attention.dense.program import DenseProgram
from geomatt.model.geometric_attention.inference import Evaluator

pytestmark = pytest.mark.skipif(native_library._compiler() is None, reason="no C++ compiler")

CASES = [((2,), 8), ((3,), 32), ((3,), 48), ((2, 4), 32), ((5,), 64), ((2, 3, 4), 64)]


def structures(atoms: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two, the second with two atoms less."""
    both = [random_atoms(atoms, seed) for seed in (1, 2)]
    numbers = torch.stack([numbers for numbers, _ in both])
    numbers[1, max(1, atoms - 2) :] = 0
    return numbers, torch.stack([positions for _, positions in both])


def make(orders: tuple[int, ...], features: int, layers: int = 2, dtype=torch.float32, **changes):
    """A network as a program's parameters."""
    network = small_network(orders=orders, overlap_features=features, layers=layers, dtype=dtype, **changes)
    return network.config, {name: value[None] for name, value in network.state_dict().items()}


def labels(atoms: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Energies, forces, and the weights of their errors."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2,), (2, atoms, 3), (2,), (2,))
    return tuple(torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)


def compiled(config, parameters, numbers, positions, with_forces=True) -> dict[str, torch.Tensor]:
    """Energies, forces, attention, gradients and errors by compiled code."""
    program = NativeProgram(DenseProgram(config))
    assert program.serves(parameters, positions, keep=True)
    batch = program.batch(program.weights(parameters), numbers, positions)
    found = {
        "atomic": batch.energies(),
        "alpha": torch.stack(batch.alpha()),
        "forces": batch.forces().clone(),
    }
    energy, forces, *weights = (label.float() for label in labels(numbers.shape[1]))
    gradient, energy_error, force_error = batch.gradient(energy, forces if with_forces else None, *weights)
    if force_error is not None:
        found["force error"] = force_error
    return {**found, **gradient, "energy error": energy_error}


def plain(config, parameters, numbers, positions, with_forces=True) -> dict[str, torch.Tensor]:
    """The same by the hand-written program in torch, in float64."""
    exact = {n: v if n == "elements" else v.double() for n, v in parameters.items()}
    program = DenseProgram(config)
    forward = program.forward(program.prepare(exact), numbers[None], positions[None].double())
    adjoints = program.adjoints(forward)
    energy, forces, energy_weight, force_weight = labels(numbers.shape[1])
    energy_error = forward.atomic[0].sum(-1) - energy
    found = program.forces(forward, adjoints)[0]
    slope = (force_weight[:, None, None] * (found - forces))[None] if with_forces else None
    gradient = program.gradient(forward, adjoints, (energy_weight * energy_error)[None], slope)
    errors = {"energy error": energy_error} | ({"force error": found - forces} if with_forces else {})
    values = {"atomic": forward.atomic[0], "alpha": torch.stack(forward.alpha), "forces": found}
    return {**values, **gradient, **errors}


@pytest.mark.parametrize("atoms", [1, 2, 7, 11])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("orders", "features"), CASES)
def test_compiled_sweeps_are_plain_sweeps(orders, features, layers, atoms):
    given = (*make(orders, features, layers), *structures(atoms))
    config, parameters, numbers, positions = given
    got, wanted = compiled(config, parameters, numbers, positions.float()), plain(*given)
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        assert got[name].shape == value.shape
        assert (got[name] - value).abs().max() <= 2e-5 * value.abs().max() + 1e-7, name


@pytest.mark.parametrize("changes", [{"bias": False}, {"gamma": 8.0}])
def test_so_they_are_with_other_functions(changes):
    config, parameters = make((2, 3, 4), 64, **changes)
    numbers, positions = structures(9)
    far = 3.0 * positions  # beyond the last node
    got, wanted = compiled(config, parameters, numbers, far.float()), plain(config, parameters, numbers, far)
    for name, value in wanted.items():
        assert (got[name] - value).abs().max() <= 2e-5 * value.abs().max() + 1e-7, name


def test_energies_alone_have_gradients_too():
    config, parameters = make((2, 3, 4), 32)
    numbers, positions = structures(6)
    got = compiled(config, parameters, numbers, positions.float(), with_forces=False)
    wanted = plain(config, parameters, numbers, positions, with_forces=False)
    assert "force error" not in got
    for name, value in wanted.items():
        assert (got[name] - value).abs().max() <= 2e-5 * value.abs().max() + 1e-7, name


def test_what_is_not_a_number_stays_so_and_far_away_is_nothing():
    config, parameters = make((2, 3), 32)
    numbers, positions = structures(6)
    program = NativeProgram(DenseProgram(config))
    positions[0, 1, 2], positions[1, 0] = torch.nan, 1e30
    batch = program.batch(program.weights(parameters), numbers, positions.float())
    atomic, forces = batch.energies(), batch.forces()
    assert atomic[0].isnan().any()
    assert forces[0].isnan().any()
    assert atomic[1].isfinite().all()
    assert (forces[1, 0] == 0).all()


def test_results_do_not_depend_on_the_threads():
    before, found = torch.get_num_threads(), []
    numbers, positions = structures(9)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            config, parameters = make((2, 3, 4), 64)
            found.append(compiled(config, parameters, numbers, positions.float()))
    finally:
        torch.set_num_threads(before)
    for name in ("atomic", "alpha", "forces", "force error"):  # what no product of torch's follows
        assert all(torch.equal(found[0][name], other[name]) for other in found[1:])


def test_others_are_left_to_torch():
    positions = torch.zeros(1, 3, 3)
    for config, parameters in (make((3,), 8), make((3,), 32, dtype=torch.float64), make((3,), 32, layers=7)):
        program = NativeProgram(DenseProgram(config))
        assert not program.serves(parameters, positions.to(parameters["mu"].dtype), keep=True)
    config, parameters = make((3,), 32)
    assert not NativeProgram(DenseProgram(config)).serves(parameters, torch.zeros(1, 2000, 3), keep=True)
    two = {name: value.expand(2, *value.shape[1:]) for name, value in parameters.items()}
    assert not NativeProgram(DenseProgram(config)).serves(two, positions, keep=True)


def test_layouts_agree():
    assert (ctypes.sizeof(_Program), ctypes.sizeof(_Stream)) == (272, 144)  # as in native.cpp


def test_wrong_shapes_and_orders_are_refused():
    config, parameters = make((2, 3), 32)
    numbers, positions = structures(6)
    program = NativeProgram(DenseProgram(config))
    weights = program.weights(parameters)
    with pytest.raises(ValueError, match="positions"):
        program.batch(weights, numbers, positions[:, :4].float())
    batch = program.batch(weights, numbers, positions.float())
    with pytest.raises(RuntimeError, match="after energies"):
        batch.forces()
    batch.energies()
    batch.forces()
    energy, forces, *others = labels(6)
    with pytest.raises(ValueError, match="forces"):
        batch.gradient(energy, forces[:, :3], *others)


def test_a_default_precision_does_not_matter():
    config, parameters = make((2, 3, 4), 64)
    numbers, positions = structures(7)
    expected = compiled(config, parameters, numbers, positions.float())
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        got = compiled(config, parameters, numbers, positions.float())
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_precisions_are_not_mixed():
    network = small_network(orders=(2, 3), overlap_features=32, dtype=torch.float64)
    numbers, positions = structures(30)
    with pytest.raises(RuntimeError):
        Evaluator(network)(Batch(numbers, positions.float()), forces=True, attention=False)


def test_evaluation_takes_it_and_gives_the_same_attention():
    network = small_network(orders=(2, 3, 4), overlap_features=64, dtype=torch.float32)
    numbers, positions = structures(8)
    batch = Batch(numbers, positions.float())
    quick, slow = Evaluator(network), Evaluator(network, table=False)
    for forces in (True, False):
        got, wanted = (e(batch, forces=forces, attention=True) for e in (quick, slow))
        assert quick._prepared is None  # the plain way was not gone
        assert (got.forces is None) == (not forces)
        torch.testing.assert_close(got.atomic, wanted.atomic, rtol=1e-5, atol=1e-6)
        for mine, theirs in zip(got.attention, wanted.attention, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """As on a machine where nothing was compiled yet; call it to look for the library."""
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    return native_library.library.__wrapped__


def test_it_is_compiled_once_and_kept(anew, monkeypatch, tmp_path):
    assert isinstance(anew(), ctypes.CDLL)
    (kept,) = (tmp_path / "cache" / "native").iterdir()
    monkeypatch.setattr(native_library, "_compile", lambda *given: pytest.fail("compiled again"))
    assert anew()._name == str(kept)


def test_without_torchs_threads_it_has_its_own(anew, monkeypatch):
    config, parameters = make((2, 3), 32)
    numbers, positions = structures(7)
    expected = compiled(config, parameters, numbers, positions.float())
    monkeypatch.setattr(native_library, "OPENMP", ("-fno-such-option",))
    own = anew()
    assert not native_library.to_be_compiled()  # what cannot be made is not asked for again
    monkeypatch.setattr("geomatt.model.geometric_attention.cpu.program.library", lambda: own)
    got = compiled(config, parameters, numbers, positions.float())
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_a_damaged_file_is_made_again(anew):
    kept = native_library._target(native_library._compiler(), native_library._variants()[0])
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    assert isinstance(anew(), ctypes.CDLL)
    assert kept.stat().st_size > 10_000


def test_no_compiler_is_no_misfortune(anew, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert anew() is None


def test_a_compiler_that_fails_is_told_of(anew, monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "out of order" >&2\nexit 1\n')
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.warns(RuntimeWarning, match="out of order"):
        assert anew() is None
    assert not list((tmp_path / "cache" / "native").iterdir())


def test_a_cache_that_cannot_be_written_is_told_of(anew, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="goes on without it"):
        assert anew() is None


def test_the_source_compiles_without_warnings(tmp_path):
    command = [*native_library._compiler(), *native_library._variants()[0], "-Wall", "-Wextra"]
    command += ["-Werror", "-c", str(native_library.CODE / "native.cpp"), "-o", str(tmp_path / "native.o")]
    subprocess.run(command, check=True, timeout=100)
