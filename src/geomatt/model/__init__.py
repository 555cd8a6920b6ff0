"""Networks, the potentials around them, and their files."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.model.committee import Committee
    from geomatt.model.devices import check_device
    from geomatt.model.domain import Domain
    from geomatt.model.files import fingerprint, load, loaded, save
    from geomatt.model.interface import (
        AttentionPaths,
        AttentionRecord,
        Engine,
        Evaluation,
        Neighbours,
        Network,
    )
    from geomatt.model.normalisation import Normalisation
    from geomatt.model.output import Output, Prediction
    from geomatt.model.potential import AnyPotential, Potential
    from geomatt.model.registry import network_class, network_config, network_names, new_network, register
    from geomatt.model.settings import NetworkConfig
    from geomatt.model.work import Work

__all__, __getattr__, __dir__ = lazy_names(__name__)
