"""Structures and data sets: reading, checking, splitting, fetching, and batches for the network."""

from geomatt.data.batch import Batch, collate
from geomatt.data.catalogue import CATALOGUE, cache_directory, find_entry, locate
from geomatt.data.checks import check_labels
from geomatt.data.download import fetch
from geomatt.data.embedded import ethanol
from geomatt.data.files import atomic_output, require_writable
from geomatt.data.readers import read, report_unit, write
from geomatt.data.splits import Split, blocked_split, fold_splits, random_split, split_from_files
from geomatt.data.structures import Dataset, Structure

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
    "ethanol",
    "fetch",
    "find_entry",
    "fold_splits",
    "locate",
    "random_split",
    "read",
    "report_unit",
    "require_writable",
    "split_from_files",
    "write",
]
