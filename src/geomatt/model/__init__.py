"""The network, the potential around it, and its files."""

from geomatt.model.files import load, save
from geomatt.model.geometric_attention.config import ModelConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.interface import AttentionRecord
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import Committee, Output, Potential, Prediction

__all__ = [
    "AttentionRecord",
    "Committee",
    "GeometricAttention",
    "ModelConfig",
    "Normalisation",
    "Output",
    "Potential",
    "Prediction",
    "load",
    "save",
]
