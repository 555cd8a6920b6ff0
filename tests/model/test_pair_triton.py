"""The Triton kernels against `DenseEngine`: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_pair_ceiling import with_ceiling
from test_pair_dense import members, slopes
from triton_kernels import DEVICE, compiled, recorded, runs_kernels

from geomatt.model.pair_states.dense.engine import DenseEngine

pytestmark = runs_kernels


@pytest.fixture(scope="module")
def engine_class() -> Any:
    from geomatt.model.pair_states.gpu.engine import TritonEngine

    return TritonEngine


def single(x: Any) -> Any:
    return x.to(DEVICE, torch.float32) if x.is_floating_point() else x.to(DEVICE)


def close(found: torch.Tensor | None, expected: torch.Tensor | None, tolerance: float) -> bool:
    assert found is not None
    assert expected is not None
    error = (found.double().cpu() - expected).abs().max()
    return bool(error <= tolerance * expected.abs().max())


@pytest.fixture
def undefined_memory() -> Iterator[None]:
    """New tensors are full of nan, so that a number that is read before it is written shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("undefined_memory")
@pytest.mark.parametrize(
    ("count", "changes"),
    [
        (1, {"rounds": 2}),
        (2, {"rounds": 1, "normalisation": "constant", "functions": 17, "channels": 6}),
        (1, {"rounds": 2, "radius": 3.0, "channels": 3, "functions": 4}),
    ],
)
def test_energies_forces_and_gradient(engine_class: Any, count: int, changes: dict) -> None:
    network, state, batch = members(count, **changes)
    dense, triton = DenseEngine(network), engine_class(network)
    index = torch.tensor([[1, 0], [2, 1]][:count])
    by_energy, by_forces = slopes(batch.rows(index))
    expected = dense.evaluate(dense.prepare(state), batch.rows(index), gradient=True)
    right = dense.gradient(expected, by_energy, by_forces)

    weights, inputs = {n: single(v) for n, v in state.items()}, batch.apply(single)
    prepared = triton.prepare(weights, keep=True)
    assert not any(name.endswith(" in parts") for name in prepared)  # products of halves need ceilings
    found = triton.evaluate(prepared, inputs.rows(index.to(DEVICE)))
    assert close(found.energy, expected.energy, 1e-5)
    assert close(found.forces, expected.forces, 1e-5)
    found = triton.evaluate(prepared, inputs, index=index.to(DEVICE), gradient=True)
    tolerance = 1e-5 if DEVICE == "cpu" else 1e-2  # TF32
    assert close(found.energy, expected.energy, tolerance)
    assert close(found.forces, expected.forces, tolerance)
    gradient = triton.gradient(found, single(by_energy), single(by_forces))
    sizes = [p.numel() for p in network.parameters()]
    for name, g, r in zip(dense.names, gradient.split(sizes, 1), right.split(sizes, 1), strict=True):
        assert close(g, r, tolerance), name


@pytest.mark.usefixtures("undefined_memory")
@pytest.mark.parametrize(
    ("count", "changes"), [(1, {"rounds": 2}), (2, {"rounds": 2, "channels": 6, "radius": 3.0})]
)
def test_ceilings(engine_class: Any, count: int, changes: dict) -> None:
    network, state, batch = members(count, **changes)
    network, state = with_ceiling(network, state, batch)
    expected = DenseEngine(network).evaluate(DenseEngine(network).prepare(state), batch)
    triton = engine_class(network)
    for in_halves in (False, True):
        triton.in_halves = in_halves
        prepared = triton.prepare({n: single(v) for n, v in state.items()}, keep=True)
        assert any(name.endswith(" in parts") for name in prepared) == in_halves
        found = triton.evaluate(prepared, batch.apply(single))
        assert close(found.atomic, expected.atomic, 1e-5)
        assert close(found.forces, expected.forces, 1e-5)
    far = {n: single(v) for n, v in state.items()}
    top, room = far["ceiling"].unbind(-2)
    far["ceiling"] = torch.stack([top + 198.0 * room, 100.0 * room], -2)  # as of a hundredth of the frames
    assert not any(name.endswith(" in parts") for name in triton.prepare(far, keep=True))


@pytest.mark.parametrize(("rows", "inner", "columns"), [(8, 8, 64), (64, 32, 21), (130, 70, 192)])
def test_products_of_halves_are_as_accurate_as_float32(rows: int, inner: int, columns: int) -> None:
    from geomatt.model.pair_states.gpu import halves

    generator = torch.Generator().manual_seed(0)
    size = torch.logspace(-6, 3, columns, dtype=torch.float64)  # of states; adjoints are small
    w = torch.randn(2, rows, inner, generator=generator, dtype=torch.float64).float().to(DEVICE)
    x = (size * torch.randn(2, inner, columns, generator=generator, dtype=torch.float64)).float().to(DEVICE)
    exact, parts = w.double() @ x.double(), halves.split(w)
    for add in (False, True):
        for transposed in (False, True):  # which of the axes of states has numbers next to each other
            out = exact.float() if add else torch.full_like(exact, torch.nan, dtype=torch.float32)
            states, target = (y.mT.contiguous().mT if transposed else y for y in (x, out))
            halves.weigh(parts, states, target, add)
            error = (target.double() - (1 + add) * exact).square().mean(1).sqrt()  # by column
            assert (error <= 1e-6 * exact.square().mean(1).sqrt() + 1e-10).all()


@pytest.mark.skipif(DEVICE == "cuda", reason="launches are recorded in Triton's interpreter")
def test_kernels_compile_for_a_gpu(
    engine_class: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the interpreter runs is not always what the compiler takes."""
    with recorded(monkeypatch) as launches:
        for changes in ({}, {"radius": 3.0}):
            network, state, batch = members(1, rounds=2, **changes)
            triton = engine_class(network)
            weights = {n: single(v) for n, v in state.items()}
            found = triton.evaluate(triton.prepare(weights, keep=True), batch.apply(single), gradient=True)
            triton.gradient(found, *(single(slope) for slope in slopes(batch)))
            network, state = with_ceiling(network, state, batch)
            triton = engine_class(network)
            weights = {n: single(v) for n, v in state.items()}
            triton.evaluate(triton.prepare(weights, keep=True), batch.apply(single))
    kernels = {one["kernel"] for one in launches}
    assert kernels >= {"activate_adjoint_kernel", "by_envelope_kernel", "hidden_kernel", "weigh_kernel"}
    assert len(compiled(launches, tmp_path)) == len(launches)


def test_products_of_halves_are_finished_within_a_step(tmp_path: Path) -> None:
    """In the code compiled for an H100 no product is under way when a step of the sum ends.

    The next step writes the registers that such a product may still read. Long dynamics with a kernel in
    which one was under way ended in sudden large forces.
    """
    from geomatt.model.pair_states.gpu import halves

    constants = {"K": 128, "WHOLE": True, "ADD": True, "x_p": 1, "out_p": 1}
    constants |= {"BR": halves.ROWS, "BP": halves.PAIRS, "BK": halves.INNER}
    pointers = {"w": "*fp16", "w_low": "*fp16", "x": "*fp32", "out": "*fp32"}
    others = [name for name in halves.weigh_kernel.arg_names if name not in constants]
    one = {
        "module": halves.__name__,
        "kernel": "weigh_kernel",
        "signature": {
            name: "constexpr" if name in constants else pointers.get(name, "i32")
            for name in halves.weigh_kernel.arg_names
        },
        "constants": constants,
        "aligned": others,
        "options": {"num_warps": 4, "num_stages": 3},
    }
    (code,) = compiled([one], tmp_path)
    loop = code.partition("scf.for")[2].partition("scf.yield")[0]
    products = re.findall(r"warp_group_dot(_wait)? .*?pendings = (\d+)|warp_group_dot ", loop)
    assert len(products) >= 3
    assert products[-1] == ("_wait", "0")


@pytest.mark.skipif(DEVICE == "cpu", reason="no GPU")
def test_products_of_halves_repeat_on_a_busy_gpu() -> None:
    """Ten thousand products in four streams at once, all with the same result."""
    from geomatt.model.pair_states.gpu import halves

    torch.manual_seed(0)
    parts, x = halves.split(torch.randn(2, 256, 256, device=DEVICE)), torch.randn(2, 256, 2240, device=DEVICE)
    expected = torch.empty_like(x)
    halves.weigh(parts, x, expected)
    torch.cuda.synchronize()
    outs = [torch.empty_like(x) for _ in range(4)]
    differing = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    streams = [torch.cuda.Stream() for _ in outs]
    for _ in range(2500):
        for k, (stream, out) in enumerate(zip(streams, outs, strict=True)):
            with torch.cuda.stream(stream):
                halves.weigh(parts, x, out)
                differing[k] += (out != expected).any()
    torch.cuda.synchronize()
    assert differing.tolist() == [0, 0, 0, 0]


def test_unsupported_batches_are_left_to_the_dense_engine(engine_class: Any) -> None:
    network, state, batch = members(1)
    triton, dense = engine_class(network), DenseEngine(network)
    found, expected = (e.evaluate(e.prepare(state), batch) for e in (triton, dense))
    assert torch.equal(found.forces, expected.forces)  # float64


@pytest.mark.usefixtures("undefined_memory")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_over_triangles(engine_class: Any, dtype: torch.dtype) -> None:
    from geomatt.model.pair_states.sparse.graph import structure_graph
    from geomatt.model.pair_states.sparse.products import torch_sums
    from geomatt.model.pair_states.sparse.triton_sums import triton_sums

    positions = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t = structure_graph(positions, None, 1.8).triangles
    u, v = torch.randn(2, len(t.reverse), 6, dtype=torch.float64)
    for left, right in ((None, None), (t.reverse, None), (None, t.reverse)):
        lists = (t.start, t.left, t.right, left, right)
        expected = torch_sums(u, v, *lists, torch.empty_like(u))
        there = [None if x is None else x.to(DEVICE) for x in lists]
        x, y = u.to(DEVICE, dtype), v.to(DEVICE, dtype)
        found = triton_sums(x, y, *there, torch.empty_like(x))
        assert close(found, expected, 1e-5 if dtype == torch.float32 else 1e-12)
