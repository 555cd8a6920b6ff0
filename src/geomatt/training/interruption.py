"""Stopping on request (Ctrl-C, SIGTERM, a callback): the loop finishes its segment, saves, and stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


@dataclass
class StopRequest:
    """True once a signal or a callback has requested that the run stops."""

    signal: int = 0
    requested: bool = False  # by a callback

    def __bool__(self) -> bool:
        return self.signal != 0 or self.requested


class Interrupted(KeyboardInterrupt):
    """The run stopped on request; its state is saved in `folder`."""

    def __init__(self, folder: Path, epoch: int, signal_number: int) -> None:
        super().__init__(f"stopped in epoch {epoch + 1}; the state is saved in {folder}")
        self.folder, self.epoch = folder, epoch
        self.signal_number = signal_number  # 0 if the request came from a callback


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request; a second signal has its usual effect."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # handlers can be set only there
        yield request
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = number
        for s, handler in before.items():
            signal.signal(s, handler)

    for s in before:
        signal.signal(s, note)
    try:
        yield request
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
