"""Structures and data sets: reading, checking, splitting, downloading, batching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.cache import cache_directory
    from geomatt.data.batch import Batch, collate
    from geomatt.data.checks import check_labels
    from geomatt.data.dataset import Dataset
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
    from geomatt.data.structures import Structure
    from geomatt.files import atomic_output, make_folder, require_writable, sha256

__all__, __getattr__, __dir__ = lazy_names(__name__)
