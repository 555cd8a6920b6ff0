"""Training that stops at the deadline of an experiment, saved and ready to continue."""

from __future__ import annotations

from collections.abc import Sequence

from geomatt.reproduce.frame import ExperimentSettings, ProgressBar
from geomatt.training import Interrupted, Job, TrainProgress, TrainResult, train_together

STEPS = 1000  # of the progress bar of a training run
CHECKPOINT = "checkpoint.safetensors"  # in the folder of a run; removed when the run is finished


def train_jobs(
    settings: ExperimentSettings, progress: ProgressBar, title: str, jobs: Sequence[Job]
) -> list[TrainResult] | None:
    """Train models side by side, or continue; None if the deadline passed before they were finished."""
    shown = 0
    with progress(title, STEPS) as advance:

        def report(state: TrainProgress) -> bool:
            nonlocal shown
            reached = max(shown, int(STEPS * state.fraction))
            advance(reached - shown)
            shown = reached
            return settings.out_of_time

        try:
            return train_together(jobs, resume=True, callback=report, checkpoint_every=60.0)
        except Interrupted as stop:
            if stop.signal_number:  # the user's, not ours
                raise
            return None
