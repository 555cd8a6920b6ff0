"""Folders that simulations write into, one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geomatt.data.files import make_folder
from geomatt.errors import GeomAttError
from geomatt.locks import LockedError, file_lock


@contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """The folder, made if needed; an error if another process writes into it."""
    make_folder(folder)
    try:
        with file_lock(folder / ".lock"):
            yield folder
    except LockedError as error:
        raise GeomAttError(
            f"{folder} is in use by {error}. Wait for it to end, or choose another `out`."
        ) from error
