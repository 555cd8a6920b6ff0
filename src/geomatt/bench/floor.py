"""Lower bound of the time of a step, from its operations and bytes and the measured rates of the machine.

Networks count operations and bytes (`Network.evaluation_work`, `Network.training_work`). The larger of the
two times is the lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from geomatt.bench.timing import clock
from geomatt.model import Work

FLOAT = 4  # bytes


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
