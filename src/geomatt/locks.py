"""Locks between processes: a file that one process at a time holds.

The system releases the lock when its process ends, however it ends, so nothing is left to clean up after a
kill. Locks work between machines on file systems that have them, such as NFS with its lock service.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BUSY = (errno.EACCES, errno.EAGAIN)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_POLL = 0.05  # seconds between attempts


class LockedError(Exception):
    """Another process holds the lock; the message says which, such as "process 4711 on host"."""


@contextmanager
def file_lock(path: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, which is removed at the end; `LockedError` if others do for `wait` seconds.

    Where the file system has no locks, there is none.
    """
    if fcntl is None:
        yield
        return
    handle = _acquire(path, time.monotonic() + wait)
    try:
        yield
    finally:
        # Removed while it is held: whoever waits for it notices and makes a new one.
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _acquire(path: Path, deadline: float) -> int:
    """An open file that holds the lock."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if _try(handle):
                if _is_at(handle, path):
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
                    return handle
            elif time.monotonic() >= deadline:
                owner = os.pread(handle, 200, 0).decode(errors="replace").strip()
                raise LockedError(owner or "another process")
            else:
                time.sleep(_POLL)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _try(handle: int) -> bool:
    """True if the lock was obtained, or if there are no locks on this file system."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno not in _UNSUPPORTED:
            raise
    return True


def _is_at(handle: int, path: Path) -> bool:
    """True if the open file is still the one at `path`: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
