"""Fields of config dataclasses. No torch here: the command line generates its options from them."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a config dataclass; `help` becomes the text of its command-line option and `info` row."""
    return field(default=default, metadata={"help": help, **metadata})
