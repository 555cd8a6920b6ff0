"""Data sets shipped with the package, made by `scripts/make_embedded_data.py` and `make_dimer.py`."""

from __future__ import annotations

from importlib.resources import as_file, files

from geomatt.data.dataset import Dataset
from geomatt.data.io.npz import read_npz


def ethanol() -> Dataset:
    """2000 frames of ethanol at 500 K with GFN2-xTB, every 10 fs of four independent 5 ps trajectories.

    Consecutive frames are correlated; use a blocked split where that matters.
    """
    return _read("ethanol.npz")


def dimer() -> Dataset:
    """70 frames of two stacked cytosine–guanine pairs (58 atoms) at 500 K with GFN2-xTB.

    Seven independent trajectories in sequence, ten frames of each, 50 fs apart. Enough to try an experiment,
    too few to train a useful model. Made by `python scripts/make_dimer.py --frames 10 --every 50`.
    """
    return _read("dimer.npz")


def _read(name: str) -> Dataset:
    with as_file(files(__name__) / name) as path:
        return read_npz(path)


EMBEDDED = {"embedded/ethanol": ethanol, "embedded/dimer": dimer}  # names accepted by `read`
