"""Config dataclasses of networks. No torch here: the command line generates its options from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from geomatt.errors import GeomAttError
from geomatt.settings import check_types
from geomatt.settings import setting as setting


@dataclass(frozen=True)
class NetworkConfig:
    """Hyper-parameters of a network. Every further field is a `setting`."""

    elements: tuple[int, ...]  # atomic numbers the network has parameters for, ascending

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "elements", tuple(sorted(set(self.elements))))
        if not self.elements or not all(0 < z < 119 for z in self.elements):
            raise GeomAttError(f"Elements must be atomic numbers between 1 and 118, not {self.elements}.")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def settings(cls) -> dict[str, dataclasses.Field[Any]]:
        """The fields a user may set, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if f.name != "elements"}
