"""A whole run of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from geomatt.bench.curves import curves_suite
from geomatt.bench.exactness import matter_exactness, molecule_exactness
from geomatt.bench.floor import measure_ceilings
from geomatt.bench.inference import infer_suite
from geomatt.bench.replicas import replicas_suite
from geomatt.bench.report import BenchReport, describe_machine
from geomatt.bench.scaling import large_suite, scaling_suite
from geomatt.bench.settings import MODELS, BenchSettings
from geomatt.bench.training import members_suite, train_suite
from geomatt.bench.workbench import Workbench
from geomatt.errors import GeomAttError
from geomatt.model import check_device
from geomatt.progress import ProgressBar, silent

SUITES: dict[str, tuple[Callable[[Workbench], None], ...]] = {
    "train": (train_suite, molecule_exactness),
    "infer": (infer_suite,),
    "replicas": (replicas_suite,),
    "members": (members_suite,),
    "scaling": (scaling_suite, matter_exactness),
    "large": (large_suite,),
    "curves": (curves_suite,),
}
# Suites measured by default; `curves` is left out, since its two trainings take minutes.
USUAL = tuple(name for name in SUITES if name != "curves")


def run_bench(
    settings: BenchSettings, suites: Sequence[str] = USUAL, *, stage: ProgressBar = silent
) -> BenchReport:
    """Measure. After an interruption it returns what it has; see `BenchReport.complete`.

    Of the default networks, each is measured by its own suites among those asked for (`settings.MODELS`).
    """
    unknown = [name for name in suites if name not in SUITES]
    if unknown or not suites:
        raise GeomAttError(f"Unknown suite {', '.join(unknown)!r}. Choose from: {', '.join(SUITES)}.")
    check_device(settings.device)
    report = BenchReport({**settings.to_dict(), "suites": list(suites)}, describe_machine(settings.device))
    benches = [Workbench(settings, model, report, stage) for model in settings.models]
    for bench in benches:
        bench.network()  # an unknown network or setting is an error before anything is measured
    try:
        with stage("ceilings of the machine", 1) as advance:
            report.ceilings = measure_ceilings(settings.device, settings.quick)
            advance(1)
        for bench in benches:
            every = settings.models != tuple(MODELS)
            own = [name for name in suites if every or name in MODELS[bench.model]]
            for part in [part for name in own for part in SUITES[name]]:
                part(bench)
                if settings.cuda:
                    torch.cuda.empty_cache()
        report.complete = True
    except KeyboardInterrupt:
        report.notes.append("Interrupted: not everything was measured.")
    return report
