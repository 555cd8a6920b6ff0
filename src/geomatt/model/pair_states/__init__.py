"""The second-generation network: learned states of pairs of atoms, combined by sums over third atoms."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.model.pair_states.network import Round

__all__, __getattr__, __dir__ = lazy_names(__name__)
