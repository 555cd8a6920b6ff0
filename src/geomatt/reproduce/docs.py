"""Docs pages from committed result files: `python -m geomatt.reproduce.docs`, in the source tree.

`results/NAME.json` (or `results/NAME-quick.json` if there is no full run) fills the marked blocks of
`docs/experiments/NAME.md` and draws its figures; the text around the blocks is written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from geomatt.data import atomic_output
from geomatt.errors import GeomAttError
from geomatt.reproduce import NAMES, Experiment, draw_figures, get
from geomatt.reproduce.frame import Figure, read_json
from geomatt.reproduce.report import blocks, update_page


def result_of(root: Path, name: str) -> Path | None:
    """The committed result of an experiment, the full one if there is one."""
    files = [root / "results" / f"{label}.json" for label in (name, f"{name}-quick")]
    return next((file for file in files if file.is_file()), None)


def refreshed(root: Path, name: str) -> str:
    """The page of an experiment with the blocks of its committed result."""
    experiment, result = _committed(root, name)
    figures = [Figure(Path(f"{d.name}.png"), d.caption) for d in experiment.drawings(result)]
    page = (root / "docs" / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    return update_page(page, blocks(experiment, result, figures))


def _committed(root: Path, name: str) -> tuple[Experiment, dict[str, Any]]:
    file = result_of(root, name)
    if file is None:
        raise GeomAttError(f"There is no result of {name} in {root / 'results'}.")
    return get(name), read_json(file)


def main(root: Path) -> None:
    """Update the page and the figures of every experiment that has a result."""
    folder = root / "docs" / "experiments"
    (folder / "figures").mkdir(exist_ok=True)
    for name in NAMES:
        page = folder / f"{name}.md"
        if page.is_file() and result_of(root, name) is not None:
            text = refreshed(root, name)
            with atomic_output(page) as temporary:
                temporary.write_text(text, encoding="utf-8")
            draw_figures(*_committed(root, name), folder / "figures")
            print(page)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
