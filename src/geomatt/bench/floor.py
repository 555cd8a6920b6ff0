"""The least a machine could need: operations and bytes counted, against its two ceilings measured.

Counted is the algebra of `dense.program` and `sparse.program` with all basis functions: k = 2
collapsed, every pair of atoms once, one multiplication and one addition as two operations. Bytes are those
that must move even if every intermediate number stayed in the caches: weights, their averages in Adam,
positions, labels and results. The larger of the two times is the floor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from geomatt.model.geometric_attention.config import ModelConfig
from geomatt.model.geometric_attention.network import GeometricAttention

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Work:
    """Operations and bytes of one step, by part."""

    operations: dict[str, float]
    bytes: dict[str, float]

    @property
    def total_operations(self) -> float:
        return sum(self.operations.values())

    @property
    def total_bytes(self) -> float:
        return sum(self.bytes.values())

    @classmethod
    def sum(cls, parts: list[Work]) -> Work:
        """Several pieces of work one after the other."""

        def add(tables: list[dict[str, float]]) -> dict[str, float]:
            return {name: sum(t[name] for t in tables) for name in tables[0]}

        return cls(add([p.operations for p in parts]), add([p.bytes for p in parts]))


def energy_and_forces(config: ModelConfig, atoms: int, batch: int = 1) -> Work:
    """All pairs of `batch` structures, energies and forces."""
    parts = _Parts(config, atoms)
    return Work(
        {
            # The functions and their slopes; each product of a chain has two in the reverse sweep.
            "overlaps": batch * 2 * parts.overlaps,
            "chains": batch * 3 * parts.chains,
            "streams": batch * (3 * config.layers * parts.attend + (2 * config.layers - 1) * parts.transform),
            "readout": batch * 2 * parts.readout,
        },
        {
            "weights": FLOAT * parameter_count(config),
            "atoms": batch * atoms * (8 + 2 * 3 * FLOAT + FLOAT),  # number, position, force, energy
        },
    )


def training_step(config: ModelConfig, atoms: int, batch: int) -> Work:
    """Energies, forces, the loss's gradient by every weight, and Adam."""
    parts, weights, layers = _Parts(config, atoms), parameter_count(config), config.layers
    return Work(
        {
            # Besides functions and slopes, the gradients by the folded weights of both.
            "overlaps": batch * 4 * parts.overlaps,
            # 1 forward, 2 reverse, 2 for the tangent, 4 for the tangent of the reverse sweep.
            "chains": batch * 9 * parts.chains,
            "streams": batch * (9 * layers * parts.attend + (6 * layers - 2) * parts.transform),
            "readout": batch * 6 * parts.readout,
            "Adam": 12.0 * weights,
        },
        {
            # Weights and both averages of Adam are read and written.
            "weights": 6 * FLOAT * weights,
            "atoms": batch * (atoms * (8 + 2 * 3 * FLOAT) + FLOAT),
        },
    )


def sparse_energy_and_forces(config: ModelConfig, atoms: int, pairs: float, elements: int) -> Work:
    """One structure through neighbour lists; `pairs` count both directions and each atom with itself."""
    streams, basis, width = len(config.orders), config.basis_size, config.features
    spread = maps = steps = gather = 0.0
    columns = elements  # of the coefficients c; a layer doubles them
    for layer in range(config.layers):
        fresh = elements if layer == 0 else streams * columns / 2
        spread += 2 * pairs * fresh * basis
        for order in config.orders:
            features = config.width(order)
            if order == 2:
                maps += 2 * atoms * columns * basis
                continue
            maps += 2 * 2 * atoms * columns * basis * features
            steps += (order - 3) * (pairs * basis * features + 2 * pairs * columns * features)
            gather += 2 * pairs * columns * basis
        columns *= 2
    readout = 2 * streams * atoms * columns * width + _Parts(config, atoms).readout
    forward = {"spread": spread, "maps": maps, "steps": steps, "gather": gather, "readout": readout}
    return Work(
        {name: 3 * count for name, count in forward.items()},  # two products in reverse for each forward
        {
            "weights": FLOAT * parameter_count(config),
            "atoms": atoms * (8 + 2 * 3 * FLOAT + FLOAT),
            "pairs": pairs * FLOAT,  # an index each
        },
    )


def parameter_count(config: ModelConfig) -> int:
    """Weights of a network."""
    with torch.device("meta"):
        return sum(p.numel() for p in GeometricAttention(config).parameters())


class _Parts:
    """Operations of one pass over one structure."""

    def __init__(self, config: ModelConfig, atoms: int) -> None:
        streams, width = len(config.orders), config.features
        pairs = atoms * (atoms + 1) / 2
        channels = sum(1 if k == 2 else (k - 1) * config.width(k) for k in config.orders) * config.layers
        hidden = max(1, streams * width // 2)
        self.overlaps = 2 * pairs * config.basis_size * channels
        self.chains = sum(2 * (k - 2) * config.width(k) for k in config.orders) * config.layers * atoms**3
        self.attend = streams * 2 * atoms**2 * width  # one layer of Σ_j α_ij u_j
        self.transform = streams * 2 * atoms * width**2  # one layer of W v
        self.readout = 2 * atoms * hidden * (streams * width + 1)


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do at best."""

    matmul: float  # operations/s of a large float32 matrix product
    copy: float  # bytes/s read and written by a large copy
    # float32 products as three bfloat16 ones, which tensor cores do faster than one in float32: a kernel
    # that works so may go below the floor.
    split_matmul: float | None = None
    # How much longer a product of denormal numbers takes: tenfold on some processors, nothing on others.
    denormal_slowdown: float | None = None

    def floor(self, work: Work) -> float:
        """Seconds, with arithmetic in float32."""
        return max(work.total_operations / self.matmul, work.total_bytes / self.copy)


def measure_ceilings(device: torch.device | str, quick: bool = False) -> Ceilings:
    """A large matrix product and a large copy, the best of several."""
    cuda = torch.device(device).type == "cuda"
    size = 256 if quick else 8192 if cuda else 2048
    a = torch.randn(size, size, device=device)
    source = torch.ones((2**20 if quick else 2**30 if cuda else 2**26), device=device)
    target = torch.empty_like(source)
    operations = 2.0 * size**3
    copy = 2 * FLOAT * len(source) / _best(lambda: target.copy_(source), cuda)
    seconds = _best(lambda: a @ a, cuda)
    if cuda:
        half = a.bfloat16()
        split = operations / _best(lambda: half @ half, cuda) / 3
        return Ceilings(operations / seconds, copy, split_matmul=split)
    tiny = torch.full_like(a, 1e-39)
    slowdown = _best(lambda: tiny @ a, cuda) / seconds
    return Ceilings(operations / seconds, copy, denormal_slowdown=slowdown)


def _best(run: Callable[[], object], cuda: bool, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats + 1):
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
