"""A whole run of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from geomatt.bench.curves import curves_suite
from geomatt.bench.exactness import matter_exactness, molecule_exactness
from geomatt.bench.floor import measure_ceilings
from geomatt.bench.inference import infer_suite
from geomatt.bench.result import Bench, machine
from geomatt.bench.scaling import scaling_suite
from geomatt.bench.settings import Settings
from geomatt.bench.stage import Stage, silent
from geomatt.bench.training import members_suite, train_suite
from geomatt.errors import GeomAttError
from geomatt.model.files import check_device

Part = Callable[[Bench, Settings, Stage], None]

SUITES: dict[str, tuple[Part, ...]] = {
    "train": (train_suite, molecule_exactness),
    "infer": (infer_suite,),
    "members": (members_suite,),
    "scaling": (scaling_suite, matter_exactness),
    "curves": (curves_suite,),
}
# What is measured unless asked otherwise: the literal equations need minutes to learn anything.
USUAL = tuple(name for name in SUITES if name != "curves")


def run_bench(settings: Settings, suites: Sequence[str] = USUAL, *, stage: Stage = silent) -> Bench:
    """Measure. Interrupted, it returns what it has; `Bench.complete` tells."""
    unknown = [name for name in suites if name not in SUITES]
    if unknown or not suites:
        raise GeomAttError(f"Unknown suite {', '.join(unknown)!r}. Choose from: {', '.join(SUITES)}.")
    check_device(settings.device)
    bench = Bench({**settings.to_dict(), "suites": list(suites)}, machine(settings.device))
    try:
        with stage("the machine's ceilings", 1) as advance:
            bench.ceilings = measure_ceilings(settings.device, settings.quick)
            advance(1)
        for name in suites:
            for part in SUITES[name]:
                part(bench, settings, stage)
                if settings.cuda:
                    torch.cuda.empty_cache()
        bench.complete = True
    except KeyboardInterrupt:
        bench.notes.append("Interrupted: not everything was measured.")
    return bench
