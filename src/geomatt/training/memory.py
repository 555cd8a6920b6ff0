"""Memory that stays with the process between optimisation steps."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def keep_pages() -> None:
    """Ask the C library to keep freed memory for the next step instead of returning it to the system.

    A step on a CPU makes and frees large arrays. By default each is mapped anew, and touching its pages for
    the first time takes a third of the step. Where the C library is another, nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that is allowed
        mallopt(M_TRIM_THRESHOLD, 1 << 30)
