"""Operations and bytes of an evaluation or a training step, as a network counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Work:
    """Operations and bytes of one step, by part."""

    operations: dict[str, float]
    bytes: dict[str, float]

    def share(self, count: int) -> Work:
        """One of `count` equal parts."""
        parts = ({name: value / count for name, value in t.items()} for t in (self.operations, self.bytes))
        return Work(*parts)

    @classmethod
    def sum(cls, parts: Sequence[Work]) -> Work:
        """Several pieces of work one after the other."""

        def add(tables: list[dict[str, float]]) -> dict[str, float]:
            return {name: sum(t[name] for t in tables) for name in tables[0]}

        return cls(add([p.operations for p in parts]), add([p.bytes for p in parts]))
