"""How a suite reports progress: `with stage(description, total) as advance: ... advance(1)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def silent(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Nobody is watching."""
    yield lambda done: None
