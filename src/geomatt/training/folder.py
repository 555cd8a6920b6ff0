"""The folder of a run, and safe writing into it."""

from __future__ import annotations

from pathlib import Path

from geomatt.data.files import atomic_write, write_error
from geomatt.errors import GeomAttError

CHECKPOINT, CONFIG, HISTORY, MODEL, PLOT = (
    "checkpoint.safetensors", "config.toml", "history.csv", "model.safetensors", "loss.png",
)  # fmt: skip


def refuse_used(folder: Path, resume: bool) -> None:
    """Raise an error for a folder with contents, unless its run is to be resumed."""
    if resume:
        return
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise write_error(folder, error) from None
    if used:
        raise GeomAttError(f"{folder} exists already. `resume` the run in it, or choose another `out`.")


def open_folder(folder: Path, resume: bool) -> None:
    """Make a run's folder."""
    refuse_used(folder, resume)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None


def write_safely(path: Path, body: bytes) -> None:
    """Replace a file of a run atomically; the error message mentions the intact checkpoint."""
    try:
        atomic_write(path, body)
    except GeomAttError as error:
        raise GeomAttError(f"{error}{kept(path.parent)}") from error.__cause__


def kept(folder: Path) -> str:
    """A sentence about what is left after a failure."""
    if not (folder / CHECKPOINT).is_file():
        return ""
    return " The last checkpoint is intact: `resume` the run to continue from it."
