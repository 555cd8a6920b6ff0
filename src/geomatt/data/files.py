"""Files written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geomatt.errors import GeomAttError

_ADVICE = {
    errno.ENOSPC: "The disk is full: free some space.",
    errno.EDQUOT: "The disk quota is used up: free some space.",
    errno.EFBIG: "The file would be larger than is allowed: raise the limit.",
    errno.EACCES: "The folder is not writable: change its permissions, or choose another place.",
    errno.EPERM: "The folder is not writable: change its permissions, or choose another place.",
    errno.EROFS: "The file system is read-only: choose another place.",
}


def require_writable(path: str | Path) -> Path:
    """Fail now rather than after the work if ``path`` cannot be written."""
    path = Path(path)
    if not path.name or path.is_dir():
        raise GeomAttError(f"Cannot write {path}: it is a directory. Give the name of a file.")
    if not path.parent.is_dir():
        raise GeomAttError(f"Cannot write {path}: there is no directory {path.parent}. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise GeomAttError(f"Cannot write {path}: no permission to write in {path.parent}.")
    return path


@contextmanager
def atomic_output(path: str | Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that replaces it at the end; on any error ``path`` is untouched.

    A crash at any moment leaves the old file or the whole new one.
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
        umask = os.umask(0)  # mkstemp makes private files; give this one the usual permissions
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        _to_disk(temporary)
        os.replace(temporary, path)
        with suppress(OSError):  # folders cannot be opened everywhere; the rename itself is still atomic
            _to_disk(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):  # gone already after a success; must not hide the real error otherwise
            temporary.unlink(missing_ok=True)


def atomic_write(path: str | Path, content: bytes) -> None:
    """Write a whole file, or leave what was there."""
    with atomic_output(path) as temporary:
        temporary.write_bytes(content)


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_error(path: str | Path, error: OSError) -> GeomAttError:
    """What the user is told when the disk says no."""
    advice = _ADVICE.get(error.errno or 0, "Check the disk, or choose another place.")
    return GeomAttError(f"Cannot write {path}: {error.strerror or error}. {advice}")


def _to_disk(path: Path) -> None:
    """Force a file, or a folder's entries, out of the system's memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
