"""Docs pages from committed result files: `python -m geomatt.reproduce.docs`, in the source tree.

`results/NAME.json` (or, while there is no full run, `results/NAME-quick.json`) fills the marked blocks of
`docs/experiments/NAME.md` and draws its figures; the words around them are written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

from geomatt.data.files import atomic_output
from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import read_json
from geomatt.reproduce.registry import available, get
from geomatt.reproduce.report import blocks, update_page


def result_of(root: Path, name: str) -> Path | None:
    """The committed result of an experiment: the full one if there is one."""
    files = [root / "results" / f"{label}.json" for label in (name, f"{name}-quick")]
    return next((file for file in files if file.is_file()), None)


def refreshed(root: Path, name: str, figures: Path) -> str:
    """The page of an experiment as its result wants it; the figures are drawn into a folder."""
    file = result_of(root, name)
    if file is None:
        raise GeomAttError(f"There is no result of {name} in {root / 'results'}.")
    experiment, result = get(name), read_json(file)
    drawn = experiment.figures(result, figures)
    page = (root / "docs" / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    return update_page(page, blocks(experiment, result, drawn))


def main(root: Path) -> None:
    """Bring every page that has a result up to date."""
    folder = root / "docs" / "experiments"
    for name in available():
        page = folder / f"{name}.md"
        if page.is_file() and result_of(root, name) is not None:
            (folder / "figures").mkdir(exist_ok=True)
            text = refreshed(root, name, folder / "figures")
            with atomic_output(page) as temporary:
                temporary.write_text(text, encoding="utf-8")
            print(page)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
