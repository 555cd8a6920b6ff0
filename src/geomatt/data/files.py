"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geomatt.errors import GeomAttError


def require_writable(path: str | Path) -> Path:
    """Fail now rather than after the work if ``path`` cannot be written."""
    path = Path(path)
    if path.is_dir():
        raise GeomAttError(f"Cannot write {path}: it is a directory. Give the name of a file.")
    if not path.parent.is_dir():
        raise GeomAttError(f"Cannot write {path}: there is no directory {path.parent}. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise GeomAttError(f"Cannot write {path}: no permission to write in {path.parent}.")
    return path


@contextmanager
def atomic_output(path: str | Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that replaces it at the end; on any error ``path`` is untouched."""
    path = require_writable(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise GeomAttError(f"Cannot write {path}: {error.strerror}.") from error
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)  # mkstemp makes private files; give this one the usual permissions
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        raise GeomAttError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
