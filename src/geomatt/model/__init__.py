"""Networks, the potentials around them, and their files."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.model.committee import Committee
    from geomatt.model.devices import check_device
    from geomatt.model.files import fingerprint, load, save
    from geomatt.model.interface import AttentionPaths, AttentionRecord, Engine, Evaluation, Network
    from geomatt.model.normalisation import Normalisation
    from geomatt.model.potential import AnyPotential, Output, Potential, Prediction
    from geomatt.model.registry import network_class, network_config, network_names, new_network, register
    from geomatt.model.settings import NetworkConfig

_MODULES = {
    "AnyPotential": "potential",
    "AttentionPaths": "interface",
    "AttentionRecord": "interface",
    "Committee": "committee",
    "Engine": "interface",
    "Evaluation": "interface",
    "Network": "interface",
    "NetworkConfig": "settings",
    "Normalisation": "normalisation",
    "Output": "potential",
    "Potential": "potential",
    "Prediction": "potential",
    "check_device": "devices",
    "fingerprint": "files",
    "load": "files",
    "network_class": "registry",
    "network_config": "registry",
    "network_names": "registry",
    "new_network": "registry",
    "register": "registry",
    "save": "files",
}

__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
