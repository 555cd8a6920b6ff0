"""Networks, the potentials around them, and their files."""

from geomatt.model.committee import Committee
from geomatt.model.files import load, save
from geomatt.model.interface import AttentionRecord, Engine, Evaluation, Network, NetworkConfig
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import AnyPotential, Output, Potential, Prediction
from geomatt.model.registry import network_class, new_network, register

__all__ = [
    "AnyPotential",
    "AttentionRecord",
    "Committee",
    "Engine",
    "Evaluation",
    "Network",
    "NetworkConfig",
    "Normalisation",
    "Output",
    "Potential",
    "Prediction",
    "load",
    "network_class",
    "new_network",
    "register",
    "save",
]
