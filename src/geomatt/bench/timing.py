"""Timings of contenders that run in turns, so that changes of the machine's speed affect all equally."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from geomatt.progress import ProgressBar, silent


@dataclass(frozen=True)
class Contender:
    """Something to time: `run` does `steps` of it, once in each of the first `rounds` rounds."""

    name: str
    run: Callable[[], object]
    steps: float = 1
    rounds: int = 1


@dataclass
class Timing:
    """Seconds per step of one contender, one value for each round."""

    name: str
    seconds: tuple[float, ...]
    kernels: float | None = None  # launched on the GPU per step
    median: float = field(init=False)
    quartiles: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        low, self.median, high = np.percentile(self.seconds, [25, 50, 75]).tolist()
        self.quartiles = (low, high)


@dataclass(frozen=True)
class Ratio:
    """The ratio of a baseline's time to ours: median and quartiles over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, baseline: Timing, ours: Timing) -> Ratio:
        """From the rounds both took part in: values of one round were measured one after the other."""
        rounds = min(len(baseline.seconds), len(ours.seconds))
        values = np.array(baseline.seconds[:rounds]) / np.array(ours.seconds[:rounds])
        low, median, high = np.percentile(values, [25, 50, 75]).tolist()
        return cls(median, low, high)


def clock(run: Callable[[], object], cuda: bool) -> float:
    """Seconds of a run, until the GPU has finished it."""
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def repeat(run: Callable[[], object], count: int) -> Callable[[], None]:
    """`run` several times."""

    def repeated() -> None:
        for _ in range(count):
            run()

    return repeated


def measure(
    title: str, contenders: Sequence[Contender], device: torch.device | str, stage: ProgressBar = silent
) -> list[Timing]:
    """Time contenders in turns, after one run of each to warm up."""
    cuda = torch.device(device).type == "cuda"
    found: list[list[float]] = [[] for _ in contenders]
    with stage(title, sum(1 + c.rounds for c in contenders)) as advance:
        for contender in contenders:
            contender.run()
            advance(1)
        for turn in range(max(c.rounds for c in contenders)):
            for contender, own in zip(contenders, found, strict=True):
                if turn < contender.rounds:
                    own.append(clock(contender.run, cuda) / contender.steps)
                    advance(1)
    kernels = [count_kernels(c) if cuda else None for c in contenders]
    return [Timing(c.name, tuple(s), k) for c, s, k in zip(contenders, found, kernels, strict=True)]


def count_kernels(contender: Contender) -> float | None:
    """Kernels a step launches on the GPU, or None if the profiler is not available."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the profiler warns of cycles that this use does not have
            with profile(activities=[ProfilerActivity.CUDA]) as trace:
                contender.run()
                torch.cuda.synchronize()
            events = trace.events() or []
    except RuntimeError:
        return None
    kernels = sum(
        e.device_type == DeviceType.CUDA and not e.name.startswith(("Memcpy", "Memset")) for e in events
    )
    return kernels / contender.steps if kernels else None
