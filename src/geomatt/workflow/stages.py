"""A workflow's folder: settings that must not change, and a JSON file for every finished stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from geomatt.data.make.folder import plain, without_work
from geomatt.errors import GeomAttError
from geomatt.files import atomic_write, locked_folder

Watch = Callable[[str, int, str], AbstractContextManager[Callable[[int], None]]]


class Stages:
    """Results of stages in a folder; each is computed once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored result of a stage, or the computed one, which is then stored."""
        path = self.folder / f"{name}.json"
        if path.is_file():
            try:
                stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                return stored
            except (OSError, ValueError):
                raise GeomAttError(f"{path} is damaged. Remove it, and the stage is done again.") from None
        result: dict[str, Any] = json.loads(json.dumps(compute(), default=plain))
        self.write(name, result)
        return result

    def write(self, name: str, result: Mapping[str, Any]) -> None:
        body = json.dumps(result, indent=2, default=plain) + "\n"
        atomic_write(self.folder / f"{name}.json", body.encode())


@contextmanager
def stages(folder: Path, name: str, settings: Mapping[str, Any]) -> Iterator[Stages]:
    """Make or reopen the folder of a workflow; its settings must be those it was started with."""
    path = folder / f"{name}.json"
    if folder.is_dir() and any(p.name != ".lock" for p in folder.iterdir()) and not path.is_file():
        raise GeomAttError(f"{folder} exists already and holds other files. Choose another `out`.")
    with locked_folder(folder):
        here = Stages(folder)
        wanted = json.loads(json.dumps(settings, default=plain))
        if without_work(folder, path.name):  # a mistake was found before any work was done
            here.write(name, wanted)
        stored = here.once(name, lambda: wanted)
        for key, value in wanted.items():
            if stored.get(key) != value:
                raise GeomAttError(
                    f"{folder} was started with `{key}` {json.dumps(stored.get(key))[:60]}, now it is "
                    f"{json.dumps(value)[:60]}. Use the same to continue, or choose another `out`."
                )
        yield here


@contextmanager
def unwatched(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Progress that nobody looks at."""
    yield lambda items: None
