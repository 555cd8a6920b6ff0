"""Config dataclasses of networks. No torch here: the command line generates its options from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from geomatt.errors import GeomAttError
from geomatt.settings import check_types
from geomatt.settings import setting as setting


@dataclass(frozen=True)
class Recipe:
    """Optimisation settings by their names in `training.TrainConfig`."""

    settings: Mapping[str, Any]
    validation_share: int = 5  # one of so many structures validates, unless sizes are given


class DataSetting(NamedTuple):
    """The value of a setting that data asks for, with a sentence for the user."""

    value: Any
    note: str


@dataclass(frozen=True)
class NetworkConfig:
    """Hyper-parameters of a network. Every further field is a `setting`."""

    # Recipes that come with the network, by name; `Network.recipe` names the one used by default.
    recipes: ClassVar[Mapping[str, Recipe]] = MappingProxyType({})

    # Settings of earlier versions, each with the value that means the network of today.
    retired: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    elements: tuple[int, ...]  # atomic numbers the network has parameters for, ascending

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "elements", tuple(sorted(set(self.elements))))
        if not self.elements or not all(0 < z < 119 for z in self.elements):
            raise GeomAttError(f"Elements must be atomic numbers between 1 and 118, not {self.elements}.")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def current(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Settings from a file, without those that are retired and change nothing."""
        return {n: v for n, v in stored.items() if n not in cls.retired or v != cls.retired[n]}

    @classmethod
    def for_data(
        cls, settings: Mapping[str, Any], *, periodic: bool, electrons: bool
    ) -> dict[str, DataSetting]:
        """Settings, by name, to be changed for periodic cells, or charges and unpaired electrons in data.

        `settings` has the value of every setting before.
        """
        return {}

    @classmethod
    def settings(cls) -> dict[str, dataclasses.Field[Any]]:
        """The fields a user may set, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if f.name != "elements"}
