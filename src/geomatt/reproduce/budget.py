"""Training that ends when the time is up, as it would at Ctrl-C: saved, and ready to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

from geomatt.reproduce.frame import Settings
from geomatt.training import Interrupted, Progress

STEPS = 1000  # of the bar that shows a whole training run


def stop_at_deadline(settings: Settings, advance: Callable[[int], None]) -> Callable[[Progress], None]:
    """A trainer's callback that moves a bar of `STEPS` and asks for a stop once at the deadline."""
    shown, asked = 0, False

    def tell(progress: Progress) -> None:
        nonlocal shown, asked
        reached = int(STEPS * progress.fraction)
        advance(max(0, reached - shown))
        shown = max(shown, reached)
        if settings.out_of_time and not asked:
            asked = True
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGINT)  # the trainer finishes its segment, saves and stops
            else:  # no signals there: lose what came after the last checkpoint
                raise Interrupted(Path(settings.out), progress.epoch, signal.SIGINT)

    return tell
