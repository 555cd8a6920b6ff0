"""The history of a run: one row per epoch, as CSV."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.files import write_error
from geomatt.training.folder import HISTORY, kept, write_safely
from geomatt.units import from_ev


@dataclass(frozen=True)
class EpochRow:
    """One epoch. Losses in the network's units, errors in eV and eV/Å; nan where nothing was measured."""

    epoch: int  # from 1
    learning_rate: float  # of the last step
    train_loss: float
    val_loss: float
    train_energy_mae: float
    train_force_mae: float
    val_energy_mae: float
    val_force_mae: float
    seconds: float  # since the run began, all sessions


_ERRORS = ("train_energy_mae", "train_force_mae", "val_energy_mae", "val_force_mae")


class History:
    """Rows in memory and in `history.csv`, which can be read during the run."""

    def __init__(self, folder: Path, unit: str, rows: list[EpochRow] | None = None) -> None:
        self.path, self.unit = folder / HISTORY, unit
        self.rows = list(rows or [])
        # Rows written after the last checkpoint are dropped: their epochs are done again.
        write_safely(self.path, self._text([self.header, *map(self._cells, self.rows)]).encode())

    @property
    def header(self) -> list[str]:
        """Column names; errors appear in eV and, where that is another unit, in the user's."""
        unit = self.unit.replace("/", "_")
        names = [f.name for f in fields(EpochRow)]
        errors = [f"{name}_eV" for name in _ERRORS]
        if self.unit != "eV":
            errors += [f"{name}_{unit}" for name in _ERRORS]
        return [*names[:4], *errors, "seconds"]

    def append(self, row: EpochRow) -> None:
        self.rows.append(row)
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(self._text([self._cells(row)]))
        except OSError as error:
            raise GeomAttError(f"{write_error(self.path, error)}{kept(self.path.parent)}") from None

    def tensor(self) -> Tensor:
        """All rows as (epochs, columns) float64, for the checkpoint."""
        return torch.tensor([astuple(r) for r in self.rows], dtype=torch.float64).reshape(
            -1, len(fields(EpochRow))
        )

    def _cells(self, row: EpochRow) -> list[str]:
        errors = [getattr(row, name) for name in _ERRORS]
        if self.unit != "eV":
            errors += [e * from_ev(self.unit) for e in errors]
        values = [row.learning_rate, row.train_loss, row.val_loss, *errors]
        return [str(row.epoch), *map(_cell, values), f"{row.seconds:.3f}"]

    @staticmethod
    def _text(lines: list[list[str]]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        return buffer.getvalue()


def rows_from_tensor(values: Tensor) -> list[EpochRow]:
    """The inverse of `History.tensor`."""
    return [EpochRow(int(v[0]), *v[1:]) for v in values.tolist()]


def _cell(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
