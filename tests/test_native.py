"""The compiled sweeps against the plain ones, and what happens where nothing can be compiled."""

from __future__ import annotations

import ctypes
import stat
import subprocess

import pytest
import torch
from conftest import random_atoms, small_network

from geomatt.model import native_library
from geomatt.model.dense import DenseProgram
from geomatt.model.grid import GridPairs, Nodes, Places
from geomatt.model.native import NativeAttention, native_serves
from geomatt.model.pair_attention import ChainedAttention

pytestmark = pytest.mark.skipif(native_library._compiler() is None, reason="no C++ compiler")


def sweeps(orders: tuple[int, ...], features: int, atoms: int):
    """Compiled and plain sweeps over the same pairs, two structures with different padding."""
    network = small_network(orders=orders, overlap_features=features, dtype=torch.float32)
    program = DenseProgram(network.config)
    parameters = {name: value[None] for name, value in network.state_dict().items()}
    positions = torch.stack([random_atoms(atoms, seed)[1].float() for seed in (1, 2)])
    distance = (positions[:, :, None] - positions[:, None]).norm(dim=-1)
    there = torch.arange(atoms) < torch.tensor([[atoms], [max(1, atoms - 2)]])
    nodes = Nodes(network.config, program.channels, parameters["mu"], program.prepare(parameters).folded)
    places = Places(nodes, distance, there[:, :, None] & there[:, None])
    assert native_serves(program.channels, torch.float32)
    return NativeAttention(places), ChainedAttention(GridPairs(places))


def results(attention, layers: int = 2):
    """All four sweeps, with the same random input."""
    structures, atoms, _ = (
        attention.shape if isinstance(attention, NativeAttention) else attention.pairs.shape
    )
    generator = torch.Generator().manual_seed(0)
    alpha = attention.alpha()

    def like_alpha():
        return [torch.randn(a.shape, generator=generator) for a in alpha]

    d_dot = torch.randn(structures, atoms, atoms, generator=generator)
    d_dot = (d_dot + d_dot.mT) * (1 - torch.eye(atoms))
    pull = attention.by_distance(like_alpha()) * (1 - torch.eye(atoms))  # an atom does not pull at itself
    return [*alpha, pull, *attention.alpha_dot(d_dot), attention.gradient(like_alpha())]


@pytest.mark.parametrize("atoms", [1, 2, 7, 11])
@pytest.mark.parametrize(
    ("orders", "features"), [((2,), 8), ((3,), 32), ((3,), 48), ((2, 4), 32), ((5,), 64), ((2, 3, 4), 64)]
)
def test_compiled_sweeps_are_plain_sweeps(orders, features, atoms):
    compiled, plain = sweeps(orders, features, atoms)
    for got, wanted in zip(results(compiled), results(plain), strict=True):
        assert got.shape == wanted.shape
        assert (got - wanted).abs().max() <= 2e-5 * wanted.abs().max()


def test_results_do_not_depend_on_the_threads():
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(results(sweeps((2, 3, 4), 64, 9)[0])[:-1])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


def test_channels_that_do_not_fill_vectors_are_left_to_torch():
    assert not native_serves(
        DenseProgram(small_network(orders=(3,), overlap_features=8).config).channels, torch.float32
    )
    assert not native_serves(
        DenseProgram(small_network(orders=(3,), overlap_features=32).config).channels, torch.float64
    )


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


def test_without_torchs_threads_it_has_its_own(anew, monkeypatch, tmp_path):
    monkeypatch.setattr(native_library, "OPENMP", ("-fno-such-option",))
    expected = results(sweeps((2, 3), 32, 7)[0])
    own = anew()
    monkeypatch.setattr("geomatt.model.native.library", lambda: own)
    assert all(torch.equal(a, b) for a, b in zip(results(sweeps((2, 3), 32, 7)[0]), expected, strict=True))


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
    command = [native_library._compiler(), *native_library.FLAGS, *native_library.OPENMP, "-Wall", "-Wextra"]
    command += ["-Werror", "-c", str(native_library.SOURCE), "-o", str(tmp_path / "native.o")]
    subprocess.run(command, check=True, timeout=100)
