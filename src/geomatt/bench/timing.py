"""Timings of several contenders in turns, so that a machine's moods hit all of them alike."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Contender:
    """Something to time: `run` does `steps` of it."""

    name: str
    run: Callable[[], object]
    steps: float = 1


@dataclass(frozen=True)
class Timing:
    """Seconds per step of one contender, one value for each round."""

    name: str
    seconds: tuple[float, ...]
    kernels: float | None = None  # launched on the GPU per step

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        low, high = np.percentile(self.seconds, [25, 75])
        return float(low), float(high)


@dataclass(frozen=True)
class Ratio:
    """How many times faster than a baseline: median and quartiles over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, baseline: Timing, ours: Timing) -> Ratio:
        """From the rounds both took part in: values of one round were measured one after the other."""
        rounds = min(len(baseline.seconds), len(ours.seconds))
        values = np.array(baseline.seconds[:rounds]) / np.array(ours.seconds[:rounds])
        low, median, high = np.percentile(values, [25, 50, 75])
        return cls(float(median), float(low), float(high))


def measure(
    contenders: Sequence[Contender],
    rounds: Sequence[int],
    device: torch.device | str,
    advance: Callable[[int], None],
) -> list[Timing]:
    """Time contenders in turns; contender c takes part in the first rounds[c] rounds. Warms up first."""
    cuda = torch.device(device).type == "cuda"

    def now() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    for contender in contenders:
        contender.run()
        advance(1)
    seconds: list[list[float]] = [[] for _ in contenders]
    for turn in range(max(rounds)):
        for c, contender in enumerate(contenders):
            if turn < rounds[c]:
                start = now()
                contender.run()
                seconds[c].append((now() - start) / contender.steps)
                advance(1)
    kernels = [count_kernels(c) if cuda else None for c in contenders]
    return [Timing(c.name, tuple(s), k) for c, s, k in zip(contenders, seconds, kernels, strict=True)]


def ticks(contenders: Sequence[Contender], rounds: Sequence[int]) -> int:
    """How often `measure` advances a progress bar."""
    return len(contenders) + sum(rounds)


def count_kernels(contender: Contender) -> float | None:
    """Kernels a step launches on the GPU, or None where the profiler cannot look."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the profiler's notes on cycles it does not have here
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
