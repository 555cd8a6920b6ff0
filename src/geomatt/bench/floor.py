"""Lower bound of the time of a step, from its operations and bytes and the measured rates of the machine.

Counted are the operations of the network's engines with all basis functions: k = 2 collapsed, each pair of
atoms once, a multiplication and an addition as two operations. Bytes are those that must move even if every
intermediate number stayed in the caches: weights, their averages in Adam, positions, labels and results. The
larger of the two times is the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from geomatt.bench.timing import clock
from geomatt.model import Network
from geomatt.model.geometric_attention.config import GeometricAttentionConfig

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Work:
    """Operations and bytes of one step, by part."""

    operations: dict[str, float]
    bytes: dict[str, float]

    def share(self, count: int) -> Work:
        """One of `count` equal parts."""
        parts = ({name: value / count for name, value in t.items()} for t in (self.operations, self.bytes))
        return Work(*parts)

    @classmethod
    def sum(cls, parts: Sequence[Work]) -> Work:
        """Several pieces of work one after the other."""

        def add(tables: list[dict[str, float]]) -> dict[str, float]:
            return {name: sum(t[name] for t in tables) for name in tables[0]}

        return cls(add([p.operations for p in parts]), add([p.bytes for p in parts]))


class GeometricAttentionWork:
    """Counts of one configuration of the paper's network."""

    def __init__(self, config: GeometricAttentionConfig, weights: int) -> None:
        """`weights`: the number of parameters."""
        self.config, self.weights = config, weights

    def energy_and_forces(self, atoms: int, batch: int = 1) -> Work:
        """All pairs of `batch` structures, energies and forces."""
        # The overlap functions and their slopes; each product of a chain has two in the reverse sweep.
        operations = self._passes(atoms, batch, overlaps=2, products=3, transforms=(2, -1), readout=2)
        moved = batch * atoms * (8 + 2 * 3 * FLOAT + FLOAT)  # number, position, force, energy
        return Work(operations, {"weights": FLOAT * self.weights, "atoms": moved})

    def training_step(self, atoms: int, batch: int) -> Work:
        """Energies, forces, the gradient of the loss with respect to every weight, and Adam."""
        # Besides functions and slopes, the gradients with respect to the folded weights of both. Of products
        # 1 forward, 2 reverse, 2 for the tangent, 4 for the tangent of the reverse sweep.
        operations = self._passes(atoms, batch, overlaps=4, products=9, transforms=(6, -2), readout=6)
        moved = batch * (atoms * (8 + 2 * 3 * FLOAT) + FLOAT)
        # Weights and both averages of Adam are read and written.
        return Work(
            {**operations, "Adam": 12.0 * self.weights}, {"weights": 6 * FLOAT * self.weights, "atoms": moved}
        )

    def sparse_energy_and_forces(self, atoms: int, pairs: float, elements: int) -> Work:
        """One structure by neighbour lists; `pairs` are counted in both directions, with i = j."""
        config = self.config
        streams, basis = len(config.orders), config.basis_size
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
        readout = 2 * streams * atoms * columns * config.features + self._readout(atoms)
        forward = {"spread": spread, "maps": maps, "steps": steps, "gather": gather, "readout": readout}
        moved = {
            "weights": FLOAT * self.weights,
            "atoms": atoms * (8 + 2 * 3 * FLOAT + FLOAT),
            "pairs": pairs * FLOAT,  # an index each
        }
        # Two products in reverse for each forward.
        return Work({name: 3 * count for name, count in forward.items()}, moved)

    def _passes(
        self,
        atoms: int,
        batch: int,
        *,
        overlaps: int,
        products: int,
        transforms: tuple[int, int],
        readout: int,
    ) -> dict[str, float]:
        """Operations of several passes over all pairs; `transforms`: by W, of each layer and besides."""
        c, streams = self.config, len(self.config.orders)
        channels = sum(1 if k == 2 else (k - 1) * c.width(k) for k in c.orders) * c.layers
        chains = sum(2 * (k - 2) * c.width(k) for k in c.orders) * c.layers * atoms**3
        attend, transform = streams * 2 * atoms**2 * c.features, streams * 2 * atoms * c.features**2
        often = transforms[0] * c.layers + transforms[1]
        return {
            "overlaps": batch * overlaps * atoms * (atoms + 1) * c.basis_size * channels,
            "chains": batch * products * chains,
            "streams": batch * (products * c.layers * attend + often * transform),
            "readout": batch * readout * self._readout(atoms),
        }

    def _readout(self, atoms: int) -> int:
        width = len(self.config.orders) * self.config.features
        return 2 * atoms * max(1, width // 2) * (width + 1)


# Networks whose work is counted, by kind; others have no floor.
COUNTED = {"geometric-attention": GeometricAttentionWork}


def work_of(network: Network, name: str, *arguments: Any) -> Work | None:
    """The work of a network by the name of its method above, or None if it has not been counted."""
    counted = COUNTED.get(network.kind)
    if counted is None:
        return None
    found: Work = getattr(counted(network.config, sum(p.numel() for p in network.parameters())), name)(
        *arguments
    )
    return found


@dataclass(frozen=True)
class Ceilings:
    """The highest rates of the machine."""

    matmul: float  # operations/s of a large float32 matrix product
    copy: float  # bytes/s read and written by a large copy
    # float32 products as three bfloat16 ones, which tensor cores do faster than one in float32: a kernel
    # that uses them may go below the floor.
    split_matmul: float | None = None
    # Slowdown of products of denormal numbers: tenfold on some processors, none on others.
    denormal_slowdown: float | None = None

    def floor(self, work: Work) -> float:
        """Seconds, with arithmetic in float32."""
        return max(sum(work.operations.values()) / self.matmul, sum(work.bytes.values()) / self.copy)


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


def _best(run: Callable[[], object], cuda: bool, repeats: int = 6) -> float:
    return min(clock(run, cuda) for _ in range(repeats))
