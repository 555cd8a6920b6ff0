"""Learning curves as TensorBoard event files (optional dependency)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from geomatt.errors import GeomAttError
from geomatt.training.loop import TrainProgress


def tensorboard_callback(out: str | Path) -> Callable[[TrainProgress], None]:
    """A callback for `train` that writes event files to `OUT/tensorboard`, a folder for each member."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise GeomAttError(
            "`tensorboard` needs the package tensorboard. Install it with: pip install tensorboard"
        ) from None
    writers: dict[int, Any] = {}

    def write(progress: TrainProgress) -> None:
        if not progress.new_row or progress.row is None:
            return
        if progress.member not in writers:
            name = f"member_{progress.member}" if progress.members > 1 else "."
            writers[progress.member] = SummaryWriter(str(Path(out) / "tensorboard" / name))
        values = asdict(progress.row)
        epoch = values.pop("epoch")
        for key, value in values.items():
            if math.isfinite(value):
                writers[progress.member].add_scalar(key, value, epoch)
        writers[progress.member].flush()

    return write
