"""Docs pages from committed result files: `python -m geomatt.reproduce.docs`, in the source tree.

`results/NAME.json` fills the marked blocks of `docs/experiments/NAME.md` and draws its figures; the text
around the blocks is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from geomatt.data import atomic_output
from geomatt.reproduce import NAMES, draw_figures, get
from geomatt.reproduce.frame import Figure, read_json
from geomatt.reproduce.report import blocks, update_page
from geomatt.reproduce.stability_tables import summary_by_model


def refreshed(root: Path, name: str) -> str:
    """The page of an experiment with the blocks of its committed result."""
    experiment, result = get(name), read_json(root / "results" / f"{name}.json")
    figures = [Figure(Path(f"{d.name}.png"), d.caption) for d in experiment.drawings(result)]
    page = (root / "docs" / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    return update_page(page, blocks(experiment, result, figures))


def main(root: Path) -> None:
    """Update the pages and figures of all experiments with a committed result."""
    folder = root / "docs" / "experiments"
    (folder / "figures").mkdir(exist_ok=True)
    for name in NAMES:
        if not (root / "results" / f"{name}.json").is_file():
            continue
        text = refreshed(root, name)
        with atomic_output(folder / f"{name}.md") as temporary:
            temporary.write_text(text, encoding="utf-8")
        draw_figures(get(name), read_json(root / "results" / f"{name}.json"), folder / "figures")
        print(folder / f"{name}.md")
    _ship_stability(root)


def _ship_stability(root: Path) -> None:
    """Write the file from which `geomatt models` and dynamics report the stability of shipped models."""
    committed = root / "results" / "stability.json"
    if committed.is_file():
        found = json.dumps(summary_by_model(read_json(committed)), indent=1)
        path = root / "src" / "geomatt" / "model" / "shipped" / "stability.json"
        path.write_text(found + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
