"""Check and measure `geomatt md` on a device: every ensemble, a restart, and many replicas.

python scripts/measure_md.py --device cuda --out runs/measure_md
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import geomatt
from geomatt.data import ethanol
from geomatt.simulation import MDSettings, run_dynamics

MODEL = "md17/ethanol:fast"
REPLICAS = (1, 16, 128, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("runs/measure_md"))
    parser.add_argument("--replicas", type=int, nargs="+", default=REPLICAS)
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    model = geomatt.load(MODEL, options.device)
    start = ethanol()[0]
    found: dict[str, object] = {}
    for ensemble in ("nve", "langevin", "bussi", "nose-hoover"):
        settings = MDSettings(time=1.0, ensemble=ensemble, replicas=4, interval=20)
        report = run_dynamics(model, start, settings, options.out / ensemble)
        # The same as two runs, on a GPU to rounding errors.
        run_dynamics(model, start, replace(settings, time=0.5), options.out / f"{ensemble}-two")
        again = run_dynamics(model, start, settings, options.out / f"{ensemble}-two", resume=True)
        energies = (r.outcome.records.conserved_energy for r in (report, again))
        first, second = energies
        found[ensemble] = {
            "drift_meV_per_atom_ps": report.outcome.drift.tolist(),
            "mean_temperature_K": report.outcome.mean_temperature.tolist(),
            "failures": report.outcome.failures,
            "steps_per_second": report.rate,
            "restart_difference_eV": float(np.abs(first - second).max()),
        }
        print(ensemble, json.dumps(found[ensemble]))
    for replicas in options.replicas:
        settings = MDSettings(time=1.0, ensemble="bussi", replicas=replicas, interval=100)
        folder = options.out / f"replicas-{replicas}"
        run_dynamics(model, start, replace(settings, time=0.1), folder)  # compiles, captures
        began = time.monotonic()
        report = run_dynamics(model, start, settings, folder, resume=True)
        found[f"replicas {replicas}"] = {
            "steps_per_second": report.rate,
            "ns_per_day_each": report.ns_per_day,
            "ns_per_day_all": replicas * report.ns_per_day,
            "seconds": time.monotonic() - began,
            "failures": sum(bool(f) for f in report.outcome.failures),
        }
        print(replicas, json.dumps(found[f"replicas {replicas}"]))
    (options.out / "measure_md.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
