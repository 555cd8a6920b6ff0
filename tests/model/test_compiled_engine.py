"""The C++ engine against the dense one, and machines where nothing can be compiled."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import time
import warnings
from pathlib import Path

import pytest
import torch
from command_line import Process
from conftest import random_atoms, small_network

from geomatt.data.batch import Batch
from geomatt.model.evaluator import Evaluator
from geomatt.model.geometric_attention.cpu.engine import CODE, CompiledEngine, _Program, _Stream
from geomatt.model.geometric_attention.dense.engine import DenseEngine
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.native import library as native_library

pytestmark = pytest.mark.skipif(native_library.compiler() is None, reason="no C++ compiler")

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


def slopes(atoms: int, with_forces: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Derivatives of a loss with respect to energies and forces."""
    generator = torch.Generator().manual_seed(0)
    by_energy = torch.rand((1, 2), generator=generator, dtype=torch.float64)
    by_forces = torch.rand((1, 2, atoms, 3), generator=generator, dtype=torch.float64)
    return by_energy, by_forces if with_forces else None


def evaluate(engine, parameters, batch: Batch, with_forces=True) -> dict[str, torch.Tensor]:
    """Atomic energies, forces and a gradient."""
    found = engine.evaluate(engine.prepare(parameters), batch, gradient=True)
    given = (
        None if s is None else s.to(batch.positions.dtype)
        for s in slopes(batch.numbers.shape[-1], with_forces)
    )
    gradient = engine.gradient(found, *given)
    return {"atomic": found.atomic.clone(), "forces": found.forces.clone(), "gradient": gradient}


def compiled(config, parameters, numbers, positions, with_forces=True) -> dict[str, torch.Tensor]:
    engine, batch = CompiledEngine(config), Batch(numbers, positions).as_member()
    assert engine.serves(parameters, batch, keep=True)
    return evaluate(engine, parameters, batch, with_forces)


def plain(config, parameters, numbers, positions, with_forces=True) -> dict[str, torch.Tensor]:
    """The same by the dense engine, in float64."""
    exact = {n: v if n == "elements" else v.double() for n, v in parameters.items()}
    return evaluate(DenseEngine(config), exact, Batch(numbers, positions.double()).as_member(), with_forces)


def parts(config, gradient: torch.Tensor) -> dict[str, torch.Tensor]:
    """A gradient by parameter."""
    sizes = {n: p.numel() for n, p in GeometricAttention(config).named_parameters()}
    return dict(zip(sizes, gradient[0].split(list(sizes.values())), strict=True))


def assert_same(config, got, wanted):
    for name in ("atomic", "forces"):
        assert (got[name] - wanted[name]).abs().max() <= 2e-5 * wanted[name].abs().max() + 1e-7, name
    mine, theirs = parts(config, got["gradient"]), parts(config, wanted["gradient"])
    for name, value in theirs.items():
        assert (mine[name] - value).abs().max() <= 2e-5 * value.abs().max() + 1e-7, name


@pytest.mark.parametrize("atoms", [1, 2, 7, 11])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("orders", "features"), CASES)
def test_compiled_engine_agrees_with_dense_engine(orders, features, layers, atoms):
    given = (*make(orders, features, layers), *structures(atoms))
    config, parameters, numbers, positions = given
    assert_same(config, compiled(config, parameters, numbers, positions.float()), plain(*given))


@pytest.mark.parametrize("changes", [{"bias": False}, {"gamma": 8.0}])
def test_other_basis_functions_and_distant_atoms(changes):
    config, parameters = make((2, 3, 4), 64, **changes)
    numbers, positions = structures(9)
    far = 3.0 * positions  # beyond the last node
    got, wanted = compiled(config, parameters, numbers, far.float()), plain(config, parameters, numbers, far)
    assert_same(config, got, wanted)


def test_gradient_of_a_loss_of_energies_alone():
    config, parameters = make((2, 3, 4), 32)
    numbers, positions = structures(6)
    got = compiled(config, parameters, numbers, positions.float(), with_forces=False)
    wanted = plain(config, parameters, numbers, positions, with_forces=False)
    assert_same(config, got, wanted)


def test_nan_propagates_and_distant_atoms_have_zero_force():
    config, parameters = make((2, 3), 32)
    numbers, positions = structures(6)
    engine = CompiledEngine(config)
    positions[0, 1, 2], positions[1, 0] = torch.nan, 1e30
    found = engine.evaluate(engine.prepare(parameters), Batch(numbers, positions.float()).as_member())
    atomic, forces = found.atomic[0], found.forces[0]
    assert atomic[0].isnan().any()
    assert forces[0].isnan().any()
    assert atomic[1].isfinite().all()
    assert (forces[1, 0] == 0).all()


def test_results_do_not_depend_on_the_threads():
    """The weights are prepared once: those are products of torch, whose last digit may depend on them."""
    before, found = torch.get_num_threads(), []
    numbers, positions = structures(9)
    config, parameters = make((2, 3, 4), 64)
    engine, batch = CompiledEngine(config), Batch(numbers, positions.float()).as_member()
    prepared = engine.prepare(parameters)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(engine.evaluate(prepared, batch))
    finally:
        torch.set_num_threads(before)
    for one in found[1:]:
        assert torch.equal(found[0].atomic, one.atomic)
        assert torch.equal(found[0].forces, one.forces)


def test_unsupported_networks_are_left_to_torch():
    three = Batch(torch.ones(1, 1, 3, dtype=torch.int64), torch.zeros(1, 1, 3, 3))
    for config, parameters in (make((3,), 8), make((3,), 32, dtype=torch.float64), make((3,), 32, layers=7)):
        batch = Batch(three.numbers, three.positions.to(parameters["mu"].dtype))
        assert not CompiledEngine(config).serves(parameters, batch, keep=True)
    config, parameters = make((3,), 32)
    large = Batch(torch.ones(1, 1, 2000, dtype=torch.int64), torch.zeros(1, 1, 2000, 3))
    assert not CompiledEngine(config).serves(parameters, large, keep=True)
    two = {name: value.expand(2, *value.shape[1:]) for name, value in parameters.items()}
    assert not CompiledEngine(config).serves(two, three, keep=True)


def test_struct_sizes_agree_with_the_source():
    assert (ctypes.sizeof(_Program), ctypes.sizeof(_Stream)) == (248, 144)  # as in native.cpp


def test_wrong_shapes_and_a_second_gradient_are_refused():
    config, parameters = make((2, 3), 32)
    numbers, positions = structures(6)
    engine = CompiledEngine(config)
    weights = engine.prepare(parameters)
    with pytest.raises(ValueError, match="positions"):
        engine.evaluate(weights, Batch(numbers, positions[:, :4].float()).as_member())
    found = engine.evaluate(weights, Batch(numbers, positions.float()).as_member(), gradient=True)
    by_energy, by_forces = slopes(6, True)
    with pytest.raises(ValueError, match="slopes"):
        engine.gradient(found, by_energy, by_forces[:, :, :3])
    engine.gradient(found, by_energy, by_forces)
    with pytest.raises(RuntimeError, match="after forces"):
        engine.gradient(found, by_energy, by_forces)


def test_default_precision_of_torch_does_not_matter():
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
        Evaluator(network)(Batch(numbers, positions.float()))


def test_potential_uses_the_compiled_engine():
    network = small_network(orders=(2, 3, 4), overlap_features=64, dtype=torch.float32)
    numbers, positions = structures(8)
    batch = Batch(numbers, positions.float())
    for forces in (True, False):
        got, wanted = (
            Evaluator(network, keep=True, engine=e)(batch, forces=forces) for e in ("auto", "dense")
        )
        assert isinstance(got.maker, CompiledEngine)
        assert isinstance(wanted.maker, DenseEngine)
        assert (got.forces is None) == (not forces)
        torch.testing.assert_close(got.atomic, wanted.atomic, rtol=1e-5, atol=1e-6)


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """As on a machine where nothing was compiled yet; call it to look for the library of a folder of code."""
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    short = tmp_path / "code"  # compiled sooner than that of the engine
    short.mkdir()
    (short / "native.cpp").write_text('extern "C" int answer() { return 42; }\n')
    return lambda code=short: native_library.library.__wrapped__(code)


def test_library_is_compiled_once_and_cached(anew, monkeypatch, tmp_path):
    assert anew().answer() == 42
    (kept,) = (tmp_path / "cache" / "native").iterdir()
    monkeypatch.setattr(native_library, "_compile", lambda *given: pytest.fail("compiled again"))
    assert anew()._name == str(kept)


def load_library(code: str) -> None:
    warnings.simplefilter("error")
    assert native_library.library(Path(code)).answer() == 42


def test_processes_that_start_at_once_compile_once(anew, monkeypatch, tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()
    compiler = tmp_path / "counting"
    real = " ".join(native_library.compiler())
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *native.cpp*) mktemp -p {calls} >/dev/null;; esac\nexec {real} "$@"\n'
    )
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    processes = [Process(tmp_path / "code", run=load_library) for _ in range(4)]
    assert [p.wait() for p in processes] == [0] * 4
    assert len(list(calls.iterdir())) == 1
    assert [p.suffix for p in (tmp_path / "cache" / "native").iterdir()] == [".so"]


@pytest.fixture
def quickly(anew, monkeypatch):
    """As `anew`, with a copy of a library in place of compilation."""
    compiled = native_library.library(CODE)._name

    def copy(compiler, flags, code, target):
        target.unlink(missing_ok=True)
        shutil.copyfile(compiled, target)
        target.chmod(0o755)

    monkeypatch.setattr(native_library, "_compile", copy)
    return anew


def test_code_of_other_owners_is_refused(quickly, monkeypatch, tmp_path):
    anew = quickly
    anew()
    folder = tmp_path / "cache" / "native"
    (kept,) = folder.iterdir()
    content, me = kept.read_bytes(), os.getuid()
    kept.unlink()
    kept.write_bytes(content + b"altered")
    kept.chmod(0o666)
    assert isinstance(anew(), ctypes.CDLL)  # compiled again, in place of the other file
    assert kept.read_bytes() == content
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        with pytest.warns(RuntimeWarning, match="can be written by other users"):
            assert anew() is None
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert anew() is None


def test_old_code_is_removed(quickly, tmp_path):
    folder = tmp_path / "cache" / "native"
    folder.mkdir(mode=0o700, parents=True)
    old, recent, unfinished, lock = folder / "a.so", folder / "b.so", folder / "tmp1", folder / "c.lock"
    unfinished.mkdir()
    for path, days in ((old, 91), (recent, 80), (unfinished, 2), (lock, 2)):
        if path.suffix:
            path.write_bytes(b"")
        os.utime(path, (time.time() - days * 86400,) * 2)
    quickly()
    assert not old.exists()
    assert not unfinished.exists()
    assert not lock.exists()
    assert recent.exists()


def test_library_without_openmp_uses_its_own_threads(anew, monkeypatch):
    config, parameters = make((2, 3), 32)
    numbers, positions = structures(7)
    expected = compiled(config, parameters, numbers, positions.float())
    monkeypatch.setattr(native_library, "OPENMP", ("-fno-such-option",))
    own = anew(CODE)
    assert not native_library.to_be_compiled(CODE)  # what cannot be made is not asked for again
    monkeypatch.setattr("geomatt.model.geometric_attention.cpu.engine.library", lambda code: own)
    got = compiled(config, parameters, numbers, positions.float())
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_damaged_library_is_compiled_again(anew, tmp_path):
    code, by = tmp_path / "code", native_library.compiler()
    kept = native_library._target(by, native_library._variants()[0], code)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    assert anew().answer() == 42
    assert kept.stat().st_size > 1000


def test_missing_compiler_is_not_an_error(anew, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert anew() is None


def test_failing_compiler_is_reported(anew, monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "out of order" >&2\nexit 1\n')
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.warns(RuntimeWarning, match="out of order"):
        assert anew() is None
    assert not list((tmp_path / "cache" / "native").iterdir())


def test_unwritable_cache_is_reported(anew, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="goes on without it"):
        assert anew() is None


def test_the_source_compiles_without_warnings(tmp_path):
    flags = (*native_library._variants()[0], "-Wall", "-Wextra", "-Werror")
    made = tmp_path / "native.o"
    command = native_library.object_command(native_library.compiler(), flags, CODE, made)
    subprocess.run(command, check=True, timeout=100)
