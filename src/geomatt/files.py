"""Atomic file writing, with error messages that say what to do."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from geomatt.arguments import path_of
from geomatt.errors import GeomAttError
from geomatt.locks import LockedError, file_lock

_ADVICE = {
    errno.ENOSPC: "The disk is full: free some space.",
    errno.EDQUOT: "The disk quota is used up: free some space.",
    errno.EFBIG: "The file would exceed the size limit: raise the limit.",
    errno.EACCES: "The directory is not writable: change its permissions or choose another one.",
    errno.EPERM: "The directory is not writable: change its permissions or choose another one.",
    errno.EROFS: "The file system is read-only: choose another directory.",
}


class WriteError(GeomAttError):
    """A file could not be written."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of any write, also by other libraries


def require_writable(path: str | Path) -> Path:
    """Raise an error if ``path`` cannot be written, before any work is done for it."""
    path = path_of("path", path)
    if not path.name or path.is_dir():
        raise GeomAttError(f"Cannot write {path}: it is a directory. Give the name of a file.")
    if not path.parent.is_dir():
        raise GeomAttError(f"Cannot write {path}: there is no directory {path.parent}. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise GeomAttError(f"Cannot write {path}: no permission to write in {path.parent}.")
    return path


def make_folder(path: str | Path) -> Path:
    """Create a folder for results, with those above it, unless it is there."""
    path = path_of("path", path)
    if path.exists() and not path.is_dir():
        raise GeomAttError(f"Cannot write into {path}: it is a file. Name a folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from None
    return path


@contextmanager
def locked_folder(path: str | Path) -> Iterator[Path]:
    """A folder for results, made if needed; an error if another process writes into it."""
    folder = make_folder(path)
    try:
        with file_lock(folder / ".lock"):
            yield folder
    except LockedError as error:
        raise GeomAttError(
            f"{folder} is in use by {error}. Wait until it ends, stop it, or choose another `out`."
        ) from None


@contextmanager
def atomic_output(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file that replaces ``path`` on success; on any error ``path`` is unchanged.

    A crash at any moment leaves either the old file or the complete new one.
    """
    path = require_writable(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise write_error(path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)  # mkstemp creates private files; apply the usual permissions
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        _to_disk(temporary)
        os.replace(temporary, path)
        with suppress(OSError):  # not every system can open directories; the rename is atomic anyway
            _to_disk(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):  # already gone after success; must not hide the original error
            temporary.unlink(missing_ok=True)


def atomic_write(path: str | Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_output(path) as temporary:
        temporary.write_bytes(content)


def finite(value: Any) -> Any:
    """The same values with None for those that are no finite number, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_error(path: str | Path, error: OSError) -> WriteError:
    """Error message for a failed write, with advice."""
    advice = _ADVICE.get(error.errno or 0, "Check the disk, or choose another directory.")
    return WriteError(f"Cannot write {path}: {error.strerror or error}. {advice}")


def _to_disk(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
