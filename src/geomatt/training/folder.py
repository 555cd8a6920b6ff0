"""The folder of a run, and safe writing into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from geomatt.errors import GeomAttError
from geomatt.files import atomic_write, make_folder, write_error
from geomatt.locks import LockedError, file_lock

CHECKPOINT, CONFIG, HISTORY, MODEL, PLOT, LOCK = (
    "checkpoint.safetensors", "config.toml", "history.csv", "model.safetensors", "loss.png", ".lock",
)  # fmt: skip


def refuse_used(folder: Path, resume: bool) -> None:
    """Raise an error for a folder with contents, unless its run is to be resumed."""
    try:
        if folder.exists() and not folder.is_dir():
            raise GeomAttError(f"{folder} is a file. `out` must name a folder: choose another.")
        used = folder.exists() and any(p.name != LOCK for p in folder.iterdir())
    except OSError as error:
        raise write_error(folder, error) from None
    if not used or resume:
        return
    if (folder / CONFIG).is_file():
        raise GeomAttError(f"{folder} exists already. `resume` the run in it, or choose another `out`.")
    raise GeomAttError(
        f"{folder} exists already and holds other files than those of a run. Choose another `out`."
    )


def open_folder(folder: Path, resume: bool) -> None:
    """Make a run's folder."""
    refuse_used(folder, resume)
    make_folder(folder)


@contextmanager
def locked(folder: Path, resume: bool) -> Iterator[None]:
    """Make a run's folder and keep other processes from training in it."""
    open_folder(folder, resume)
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / LOCK))
        except LockedError as error:
            raise GeomAttError(
                f"{folder} is being trained by {error}. Wait until it ends, stop it, or choose another `out`."
            ) from None
        except OSError as error:
            raise write_error(folder / LOCK, error) from None
        refuse_used(folder, resume)  # another process may have been quicker
        yield


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
