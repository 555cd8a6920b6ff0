"""The data set that ships inside the package. `scripts/make_embedded_data.py` made it."""

from __future__ import annotations

from importlib.resources import as_file, files

from geomatt.data.structures import Dataset


def ethanol() -> Dataset:
    """2000 frames of ethanol at 500 K with GFN2-xTB, every 10 fs of four independent 5 ps trajectories.

    Consecutive frames are correlated: use a blocked split where that matters.
    """
    from geomatt.data.npz import read_npz

    with as_file(files(__name__) / "ethanol.npz") as path:
        return read_npz(path)
