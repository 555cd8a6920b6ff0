"""Structures and data sets: reading, checking, splitting, fetching, and batches for the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geomatt.data.checks import check_labels
from geomatt.data.files import atomic_output, require_writable
from geomatt.data.io.readers import read, report_unit, write
from geomatt.data.public.catalogue import CATALOGUE, cache_directory, find_entry, locate
from geomatt.data.public.download import fetch, sha256
from geomatt.data.public.embedded import dimer, ethanol
from geomatt.data.splits import Split, blocked_split, fold_splits, random_split, split_from_files
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
    "dimer",
    "ethanol",
    "fetch",
    "find_entry",
    "fold_splits",
    "locate",
    "random_split",
    "read",
    "report_unit",
    "require_writable",
    "sha256",
    "split_from_files",
    "write",
]


def __getattr__(name: str) -> Any:
    # Only batches need torch, whose import takes seconds that `geomatt data info` should not wait for.
    if name in ("Batch", "collate"):
        from geomatt.data import batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
