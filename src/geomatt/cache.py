"""The cache directory: downloaded data sets and compiled code."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_directory() -> Path:
    """$GEOMATT_CACHE if set, otherwise the usual cache directory of the platform."""
    if chosen := os.environ.get("GEOMATT_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "geomatt"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "geomatt"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geomatt"
