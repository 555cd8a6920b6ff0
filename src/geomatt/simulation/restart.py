"""The state of a batched simulation in one file, to continue it exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.files import atomic_write
from geomatt.simulation.monitor import SERIES
from geomatt.simulation.outcome import Part

if TYPE_CHECKING:
    from geomatt.simulation.batched import BatchedDynamics

FORMAT = 2
KEY, EXTRA = "geomatt-dynamics", "extra"
RECORDED = ("time_fs", *SERIES)


def save(dynamics: BatchedDynamics, path: Path, extra: Any = None) -> None:
    """Everything that the rest of the run depends on, and what has been observed so far.

    `extra` is any JSON value of the caller's, for `read_extra`.
    """
    tensors = {name: value.cpu().clone() for name, value in _changing(dynamics).items()}
    tensors["generators"] = torch.stack([g.get_state().cpu() for g in dynamics.generators])
    if dynamics.parts:
        joined = Part.join(dynamics.parts)
        dynamics.parts[:] = [joined]  # so that the next call is quick
        tensors |= {f"series.{name}": torch.from_numpy(getattr(joined, name)) for name in RECORDED}
    texts = {KEY: json.dumps(_description(dynamics)), EXTRA: json.dumps(extra)}
    atomic_write(path, save_tensors(tensors, texts))


def read_extra(path: Path) -> Any:
    """The values that the caller of `save` added to a file."""
    return _read(path)[1]


def restore(dynamics: BatchedDynamics, path: Path) -> None:
    """Put the state of a file into a simulation of the same molecules and settings."""
    description, _, tensors = _read(path)
    _compare(description, _description(dynamics), path)
    changing = _changing(dynamics)
    if any(name not in tensors or tensors[name].shape != value.shape for name, value in changing.items()):
        raise _foreign(path)
    for name, value in changing.items():
        value.copy_(tensors[name])
    if _draws(dynamics):
        for generator, kept in zip(dynamics.generators, tensors["generators"], strict=True):
            generator.set_state(kept.clone())
    dynamics.parts.clear()
    if f"series.{RECORDED[0]}" in tensors:
        dynamics.parts.append(Part(*(tensors[f"series.{name}"].numpy() for name in RECORDED)))


def _read(path: Path) -> tuple[dict[str, Any], Any, dict[str, Tensor]]:
    """Description, what the caller added, and tensors of a file."""
    try:
        with safe_open(path, "pt") as file:
            texts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return json.loads(texts[KEY]), json.loads(texts.get(EXTRA, "null")), tensors
    except OSError as error:
        raise GeomAttError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (SafetensorError, KeyError, ValueError) as error:
        raise _foreign(path) from error


def _foreign(path: Path) -> GeomAttError:
    return GeomAttError(f"{path} is not a file to restart a simulation from, or is damaged.")


def _changing(dynamics: BatchedDynamics) -> dict[str, Tensor]:
    state = {f"state.{name}": value for name, value in dynamics.state.tensors().items()}
    return state | {f"monitor.{name}": value for name, value in dynamics.monitor.tensors().items()}


def _draws(dynamics: BatchedDynamics) -> bool:
    """True if steps need random numbers."""
    return dynamics.noise.numel() > 0


def _description(dynamics: BatchedDynamics) -> dict[str, Any]:
    return {
        "format": FORMAT,
        # Random numbers cannot move between kinds of devices.
        "device": dynamics.device.type if _draws(dynamics) else None,
        "numbers": dynamics.numbers.tolist(),
        "seeds": [replica.seed for replica in dynamics.replicas],
        "walls": dynamics.walls.to_dict() if dynamics.walled else None,
        "barostat": None if dynamics.barostat is None else dynamics.barostat.to_dict(),
        "config": dynamics.config.to_dict(),
    }


def _compare(saved: dict[str, Any], here: dict[str, Any], path: Path) -> None:
    """Raise an error unless the file belongs to the same simulation."""
    if saved.get("format") != FORMAT:
        raise GeomAttError(f"{path} was written by another version of geomatt. Start the simulation anew.")
    if saved["numbers"] != here["numbers"]:
        raise GeomAttError(f"{path} belongs to a simulation of other molecules. Start from these anew.")
    for name in ("seeds", "device", "walls", "barostat"):
        if saved[name] != here[name] and not (name == "device" and here[name] is None):
            raise GeomAttError(f"{path} has other {name}: {saved[name]}, now {here[name]}. Use the same.")
    for name, value in here["config"].items():
        if saved["config"].get(name) != value:
            raise GeomAttError(
                f"{path} was made with `{name}` = {saved['config'].get(name)}, now it is {value}. "
                "Use the same setting, or start anew."
            )
