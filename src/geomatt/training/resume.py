"""Checks that data, split, base model and settings are unchanged when a run is continued."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def run_identity(data: str, split: Split, base: Potential | None) -> dict[str, str]:
    """Hashes of what must be unchanged for a run to be continued."""
    return {
        "data": data,
        "split": split_hash(split),
        "base": "" if base is None else fingerprint(base),
    }


def check_resume(found: Checkpoint, config: TrainConfig, identity: dict[str, str], folder: Path) -> None:
    """Raise an error that says what differs, unless it is the same run."""
    for name, meaning in (
        ("data", "The data has changed"),
        ("split", "The split has changed"),
        ("base", "The base model has changed"),
    ):
        if found.identity[name] != identity[name]:
            raise GeomAttError(f"{meaning} since {folder} was started, so it cannot be resumed.")
    old, new = _flat(TrainConfig.from_dict(found.config, str(folder))), _flat(config)
    changed = [n for n, v in new.items() if n not in _FREE_ON_RESUME and old.get(n) != v]
    if changed:
        listing = ", ".join(f"{n} was {old.get(n)!r} and is now {new[n]!r}" for n in changed)
        raise GeomAttError(
            f"Settings differ from those {folder} was started with: {listing}. "
            "Resume with the old ones, or train into a new folder."
        )
    before = found.config["epochs"]
    if config.epochs == before:
        return
    if config.schedule != "step":
        raise GeomAttError(
            f"{folder} was started for {before} epochs, and the {config.schedule} schedule lays out the "
            "learning rate over exactly these. Resume without `epochs`, or train into a new folder."
        )
    if config.epochs < found.counters.epoch:
        raise GeomAttError(
            f"{folder} has done {found.counters.epoch} epochs already; `epochs` must not be less."
        )


def _flat(config: TrainConfig) -> dict[str, Any]:
    """All settings, those of the network among them."""
    values = config.to_dict()
    return {**values, **values.pop("network")}
