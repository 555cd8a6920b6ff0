"""Ctrl-C as a wish, not an accident: the trainer finishes what it is doing, saves, and then stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


@dataclass
class StopWish:
    """Whether the user, or a queueing system, has asked the run to stop."""

    signal: int = 0

    def __bool__(self) -> bool:
        return self.signal != 0


class Interrupted(KeyboardInterrupt):
    """The run stopped because it was asked to; its state is saved in `folder`."""

    def __init__(self, folder: Path, epoch: int, signal_number: int) -> None:
        super().__init__(f"stopped in epoch {epoch + 1}; the state is saved in {folder}")
        self.folder, self.epoch, self.signal_number = folder, epoch, signal_number


@contextmanager
def stop_on_signal() -> Iterator[StopWish]:
    """Turn SIGINT and SIGTERM into a wish; a second one acts at once, as without us."""
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield wish
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        wish.signal = number
        for s, handler in before.items():
            signal.signal(s, handler)

    for s in before:
        signal.signal(s, note)
    try:
        yield wish
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
