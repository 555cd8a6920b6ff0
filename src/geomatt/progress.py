"""Progress reports of long work: `with progress(description, total) as advance: ... advance(1)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def silent(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A `ProgressBar` that shows nothing."""
    yield lambda done: None
