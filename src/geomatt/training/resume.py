"""Checks that data, split, base model and settings are unchanged when a run is continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomatt.elements import symbols
from geomatt.errors import GeomAttError
from geomatt.model import Potential
from geomatt.model.files import fingerprint
from geomatt.training.checkpoint import Checkpoint
from geomatt.training.config import TrainConfig
from geomatt.training.record import split_hash

if TYPE_CHECKING:
    from geomatt.data.splits import Split

# Settings that may change: where things are (their content is checked by hash), and how results are shown.
# `epochs` has a rule of its own.
_FREE_ON_RESUME = {
    "data", "energy_unit", "length_unit", "force_unit", "keys", "train_indices", "val_indices",
    "test_indices", "more_data", "val_data", "test_data", "base", "report_unit", "device", "epochs",
}  # fmt: skip
# A finished run may also be extended with another schedule.
_FREE_ON_EXTENSION = {"learning_rate", "warmup", "final", "patience"}


def run_identity(data: str, split: Split, base: Potential | None) -> dict[str, str]:
    """Hashes of what must be unchanged for a run to be continued."""
    return {
        "data": data,
        "split": split_hash(split),
        "base": "" if base is None else fingerprint(base),
    }


def check_resume(found: Checkpoint, config: TrainConfig, identity: dict[str, str], folder: Path) -> bool:
    """Raise an error that says what differs, unless it is the same run; True if it is to be extended."""
    for name, meaning in (
        ("data", "The data has changed"),
        ("split", "The split has changed"),
        ("base", "The base model has changed"),
    ):
        if found.identity[name] != identity[name]:
            raise GeomAttError(f"{meaning} since {folder} was started, so it cannot be resumed.")
    extended = extends(found, config, folder)
    old, new = _flat(TrainConfig.from_dict(found.config, str(folder))), _flat(config)
    free = _FREE_ON_RESUME | (_FREE_ON_EXTENSION if extended else set())
    changed = [n for n, v in new.items() if n not in free and old.get(n) != v]
    if changed:
        listing = ", ".join(f"{n} was {old.get(n)!r} and is now {new[n]!r}" for n in changed)
        raise GeomAttError(
            f"Settings differ from those {folder} was started with: {listing}. "
            "Resume with the old ones, or train into a new folder."
        )
    return extended


def check_elements(padded: Sequence[int], elements: Sequence[int], folder: Path) -> None:
    """Raise an error if the run was trained beside models of other elements, to which weights are padded."""
    if tuple(padded) != tuple(elements):
        before, now = (" ".join(symbols(z)) for z in (padded, elements))
        raise GeomAttError(
            f"{folder} was trained side by side with models of the elements {before}, and is now to be "
            f"continued with {now}. Continue it beside the same models as before, or train into a new folder."
        )


def extends(found: Checkpoint, config: TrainConfig, folder: Path) -> bool:
    """True if a finished run is given more epochs; an error if its epochs cannot become those of `config`."""
    before, counters = TrainConfig.from_dict(found.config, str(folder)).epochs, found.counters
    if config.epochs == before:
        return False
    if config.epochs <= counters.epoch:
        raise GeomAttError(
            f"{folder} has done {counters.epoch} epochs already; `epochs` must be more to extend it."
        )
    if config.schedule != "step" and not counters.finished:
        raise GeomAttError(
            f"{folder} was started for {before} epochs, and the {config.schedule} schedule lays out the "
            f"learning rate over exactly these. Resume without `epochs`; once it has finished, `resume` it "
            f"with more."
        )
    return bool(counters.finished)


def _flat(config: TrainConfig) -> dict[str, Any]:
    """All settings, those of the network among them."""
    values = config.to_dict()
    return {**values, **values.pop("network")}
