"""Work of an experiment done by other processes or a Dask cluster.

Workers compute pieces and write them, with models and checkpoints, into the folder `out`; the process that
asked finds them there. So `out` and the data must be on a file system that all of them see. When a worker
dies, another continues what it was doing from its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from geomatt.data.make import Job
from geomatt.reproduce.frame import ExperimentSettings, ProgressBar

Work = Callable[[ExperimentSettings, Any], None]


def spread(
    settings: ExperimentSettings, progress: ProgressBar, title: str, work: Work, items: Sequence[Any]
) -> None:
    """Call `work(settings, item)`, a function of a module, in the workers of the settings for every item."""
    assert settings.workers is not None
    if not items or settings.out_of_time:
        return
    there = replace(
        settings,
        workers=None,
        deadline=None,
        out=settings.out.resolve(),
        data=settings.data and settings.data.resolve(),
        models=settings.models and settings.models.resolve(),
    )
    with progress(f"{title}, {len(items)} tasks", len(items)) as advance:

        def job(item: Any) -> Job:
            """Nothing if the deadline passes before it is started."""
            if not settings.out_of_time:
                left = None if settings.deadline is None else settings.deadline - time.monotonic()
                yield do_item, (work, there, item, left)
                advance(1)

        settings.workers.run(map(job, items))


def do_item(work: Work, settings: ExperimentSettings, item: Any, seconds: float | None) -> None:
    """Do one item, for so many seconds at most; runs in a worker."""
    work(replace(settings, deadline=None if seconds is None else time.monotonic() + seconds), item)
