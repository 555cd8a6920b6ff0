"""Check products of halves (`model/pair_states/gpu/halves.py`) in long dynamics on a GPU.

    python scripts/check_halves.py --data DIR [--kind pair] [--seconds 60] [--busy 2]

Dynamics of the shipped models of MD17, as in `geomatt reproduce stability`, whose forces are computed twice
in every step: with halves, and with products in float32. Their largest difference should stay that of
rounding, a few 1e-4 eV/Å. --busy programs that multiply matrices share the GPU meanwhile: a product that is
read too early shows beside others. Exits with 1 if two forces differ by more than --limit. Start
`nvidia-cuda-mps-control -d` before, so that the programs run at the same time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from geomatt.model.pair_states.gpu.engine import TritonEngine
from geomatt.reproduce.frame import ExperimentSettings
from geomatt.reproduce.inputs import load_md17, md17_model
from geomatt.reproduce.stability_runs import simulated_groups, stability_config
from geomatt.simulation import BatchedDynamics, Group

BUSY = """
import torch
x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
while True:
    for _ in range(100):
        y = x @ x
    torch.cuda.synchronize()
"""
STEPS = 100  # between looks at the time

Forces = Callable[[Tensor], tuple[Tensor, Tensor]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with md17/")
    parser.add_argument("--kind", default="pair", help="pair or pair-s")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--busy", type=int, default=2, help="other programs on the GPU")
    parser.add_argument("--device", default="cuda", help="a processor only tries the script out")
    parser.add_argument("--limit", type=float, default=1e-2, help="eV/Å")
    given = parser.parse_args()
    settings = ExperimentSettings(data=given.data, device=given.device)
    data, _ = load_md17(settings)
    models = {m: model for m in data if (model := md17_model(settings, m, given.kind)) is not None}
    prepared = [simulated_groups(models, data, settings, ["walls"]) for _ in range(2)]
    worst = torch.zeros(len(prepared[0]), dtype=torch.float64, device=given.device)
    groups = [
        Group(one.replicas, compared(one.forces, other.forces, worst[k]))
        for k, (one, other) in enumerate(zip(*prepared, strict=True))
    ]
    dynamics = BatchedDynamics(groups, stability_config("nvt"), device=given.device)
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(given.busy)]
    try:
        started = time.monotonic()
        while time.monotonic() - started < given.seconds:
            dynamics.advance(STEPS)
            print(f"\r{dynamics.steps} steps, largest difference {float(worst.max()):.1e} eV/Å", end="")
    finally:
        for other in others:
            other.kill()
    failed = [row["failure"] for row in dynamics.outcome().rows() if row["failure"]]
    print(f"\n{len(dynamics.replicas)} replicas, {len(failed)} failed: {failed}")
    return int(float(worst.max()) > given.limit)


def compared(forces: Forces, others: Forces, worst: Tensor) -> Forces:
    """The forces, whose largest difference from others is kept in `worst`; nan counts as infinite."""

    def both(positions: Tensor) -> tuple[Tensor, Tensor]:
        TritonEngine.in_halves = True  # decides at the first call, which prepares the weights
        energy, found = forces(positions)
        TritonEngine.in_halves = False
        difference = (found - others(positions)[1]).abs().amax()
        worst.copy_(torch.maximum(worst, difference.nan_to_num(torch.inf)))
        return energy, found

    return both


if __name__ == "__main__":
    sys.exit(main())
