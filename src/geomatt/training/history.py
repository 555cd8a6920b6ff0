"""The history of a run: one row an epoch, as CSV and as a picture."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from geomatt.data.files import write_error
from geomatt.errors import GeomAttError
from geomatt.training.checkpoint import kept, write_safely
from geomatt.units import from_ev

FILE = "history.csv"


@dataclass(frozen=True)
class Row:
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
    """Rows in memory and in `history.csv`, which can be read while the run goes on."""

    def __init__(self, folder: Path, unit: str, rows: list[Row] | None = None) -> None:
        self.path, self.unit = folder / FILE, unit
        self.rows = list(rows or [])
        # Rows that were written after the last checkpoint vanish: their epochs are done again.
        write_safely(self.path, self._text([self.header, *map(self._cells, self.rows)]).encode())

    @property
    def header(self) -> list[str]:
        """Column names; errors appear in eV and, where that is another unit, in the user's."""
        unit = self.unit.replace("/", "_")
        names = [f.name for f in fields(Row)]
        errors = [f"{name}_eV" for name in _ERRORS]
        if self.unit != "eV":
            errors += [f"{name}_{unit}" for name in _ERRORS]
        return [*names[:4], *errors, "seconds"]

    def append(self, row: Row) -> None:
        self.rows.append(row)
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(self._text([self._cells(row)]))
        except OSError as error:
            raise GeomAttError(f"{write_error(self.path, error)}{kept(self.path.parent)}") from None

    def tensor(self) -> Tensor:
        """All rows as (epochs, columns) float64, for the checkpoint."""
        return torch.tensor([astuple(r) for r in self.rows], dtype=torch.float64).reshape(
            -1, len(fields(Row))
        )

    def _cells(self, row: Row) -> list[str]:
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


def rows_from_tensor(values: Tensor) -> list[Row]:
    """The inverse of `History.tensor`."""
    return [Row(int(v[0]), *v[1:]) for v in values.tolist()]


def plot_history(rows: list[Row], unit: str, path: Path) -> None:
    """Loss curves and errors against epochs, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    factor = from_ev(unit)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, and leaves pyplot's state alone
    panels = (
        ("loss", "loss (normalised units)", 1.0),
        ("energy_mae", f"energy MAE ({unit})", factor),
        ("force_mae", f"force MAE ({unit}/Å)", factor),
    )
    for axis, (name, label, scale) in zip(figure.subplots(1, 3), panels, strict=True):
        for part, colour in (("train", "tab:blue"), ("val", "tab:orange")):
            points = [
                (r.epoch, v * scale)
                for r in rows
                if math.isfinite(v := getattr(r, f"{part}_{name}")) and v > 0
            ]
            if points:
                axis.plot(
                    *zip(*points, strict=True),
                    color=colour,
                    label=part,
                    marker="." if len(points) < 30 else "",
                )
                axis.set_yscale("log")
        axis.set_xlabel("epoch")
        axis.set_ylabel(label)
        if axis.lines:
            axis.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_safely(path, buffer.getvalue())


def _cell(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
