"""Measure the explorer: size of the page, time to make it, and first paint in a browser.

    python scripts/measure_explorer.py

58 atoms × 100 frames and 500 atoms × 1 frame, with untrained networks: size and time do not depend on
weights.
Writes results/explorer.json.
"""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from geomatt import Potential, Structure, explain
from geomatt.model import Normalisation, new_network
from geomatt.training.record import commit, hardware

ROOT = Path(__file__).resolve().parents[1]
CASES = (("geometric-attention", 58, 100), ("pair-states", 58, 100), ("geometric-attention", 500, 1))


def frames(atoms: int, count: int) -> list[Structure]:
    """A cubic lump of H, C, N and O with distances as in molecules."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(atoms ** (1 / 3)))
    grid = 1.4 * np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3)[:atoms]
    numbers = rng.choice([1, 6, 7, 8], atoms)
    return [Structure(numbers, grid + 0.1 * rng.normal(size=grid.shape)) for _ in range(count)]


def in_browser(browser: Any, path: Path) -> dict[str, float]:
    """Milliseconds from the start of loading to the first paint, and to the explorer that can be used."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector(".explorer[data-ready]")
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    ready = "performance.getEntriesByName('explorer-ready')[0].startTime"
    found = {"first_paint_ms": page.evaluate(paint), "ready_ms": page.evaluate(ready)}
    page.close()
    return {name: round(value) for name, value in found.items()}


def main() -> None:
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT / "tests"))
    from browser import executable

    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        for kind, atoms, count in CASES:
            potential = Potential(new_network(kind, {}, (1, 6, 7, 8)), Normalisation(0.0, 1.0))
            started = time.perf_counter()
            path = explain(potential, frames(atoms, count), name="lump").save(Path(folder) / "page.html")
            row = {
                "network": kind,
                "atoms": atoms,
                "frames": count,
                "megabytes": round(path.stat().st_size / 1e6, 2),
                "seconds_to_make": round(time.perf_counter() - started, 1),
                **in_browser(browser, path),
            }
            print(row, flush=True)
            rows.append(row)
        version = browser.version
        browser.close()
    result = {
        "rows": rows,
        "browser": f"Chromium {version}",
        "hardware": hardware("cpu"),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    (ROOT / "results" / "explorer.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
