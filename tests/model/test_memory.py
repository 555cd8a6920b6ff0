"""What does not fit into memory says how many atoms would."""

import numpy as np
import pytest
import torch

from geomatt import Committee, GeomAttError, Potential, Structure
from geomatt.model import Normalisation, memory, new_network

MESSAGES = {
    RuntimeError: "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes.",
    torch.OutOfMemoryError: "CUDA out of memory. Tried to allocate 3.9 KiB. GPU 0 has 1 GiB",
    MemoryError: "Unable to allocate 3.9 KiB for an array with shape (1000,) and data type float32",
}


def potential(monkeypatch, error: BaseException, **settings) -> Potential:
    """A network that fails, where 1000 bytes are free."""
    network = new_network("pair", {"channels": 8, "rounds": 1, **settings}, (1,), seed=0)
    found = Potential(network, Normalisation(0.0, 1.0))

    def fail(*_):
        raise error

    monkeypatch.setattr(found, "_evaluate", fail)
    monkeypatch.setattr(memory, "free_memory", lambda _: 1000)
    return found


def line(atoms: int) -> Structure:
    return Structure(np.ones(atoms, dtype=int), np.outer(np.arange(atoms), [1.0, 0, 0]))


@pytest.mark.parametrize("kind", MESSAGES)
def test_atoms_that_fit_grow_as_the_root_of_the_memory(monkeypatch, kind) -> None:
    model = potential(monkeypatch, kind(MESSAGES[kind]))
    with pytest.raises(
        GeomAttError, match=r"enough for at most about 50 atoms.* a model with a radius"
    ) as caught:
        model.predict([line(100)])
    assert isinstance(caught.value.__cause__, kind)


def test_atoms_that_fit_are_proportional_with_a_radius(monkeypatch) -> None:
    model = potential(monkeypatch, RuntimeError(MESSAGES[RuntimeError]), radius=3.0)
    with pytest.raises(GeomAttError, match=r"about 25 atoms\. Use fewer atoms, or"):
        model.predict([line(100)])


def test_a_batch_that_is_too_large_says_how_many_structures_fit(monkeypatch) -> None:
    model = potential(monkeypatch, RuntimeError(MESSAGES[RuntimeError]))
    with pytest.raises(GeomAttError, match="at most 2 of them"):
        Committee([model, model]).predict([line(3)] * 8)


def test_other_errors_stay(monkeypatch) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        potential(monkeypatch, RuntimeError("shapes differ")).predict([line(3)])


def test_memory_is_that_a_process_may_use(monkeypatch) -> None:
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "RLIMIT_AS"):
        pytest.skip("no such limit")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert memory.available_memory() == 0
