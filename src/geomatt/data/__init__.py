"""Structures and data sets: reading, checking, splitting, downloading, batching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geomatt.cache import cache_directory
from geomatt.data.checks import check_labels
from geomatt.data.files import atomic_output, make_folder, require_writable, sha256
from geomatt.data.io.readers import read, report_unit, write
from geomatt.data.joining import concatenate
from geomatt.data.outliers import drop_outliers, find_outliers
from geomatt.data.public.catalogue import CATALOGUE, find_entry, locate
from geomatt.data.public.download import fetch
from geomatt.data.public.embedded import dimer, ethanol
from geomatt.data.public.frames import frame_list
from geomatt.data.splits import (
    Split,
    blocked_split,
    fold_splits,
    random_split,
    split_from_files,
    split_in_order,
)
from geomatt.data.structures import Dataset, Structure

if TYPE_CHECKING:
    from geomatt.data.batch import Batch, collate

__all__ = [
    "CATALOGUE",
    "Batch",
    "Dataset",
    "Split",
    "Structure",
    "atomic_output",
    "blocked_split",
    "cache_directory",
    "check_labels",
    "collate",
    "concatenate",
    "dimer",
    "drop_outliers",
    "ethanol",
    "fetch",
    "find_entry",
    "find_outliers",
    "fold_splits",
    "frame_list",
    "locate",
    "make_folder",
    "random_split",
    "read",
    "report_unit",
    "require_writable",
    "sha256",
    "split_from_files",
    "split_in_order",
    "write",
]


def __getattr__(name: str) -> Any:
    # Only batches need torch, whose import takes seconds.
    if name in ("Batch", "collate"):
        from geomatt.data import batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
