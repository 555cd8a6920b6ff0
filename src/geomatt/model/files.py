"""Model files: weights as safetensors, everything else as JSON in the same file's header.

Reading one runs no code from it. `save` replaces the target atomically.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.files import atomic_write, make_folder
from geomatt.model.calibration import Calibration
from geomatt.model.committee import Committee
from geomatt.model.devices import check_device
from geomatt.model.domain import Domain
from geomatt.model.interface import Network
from geomatt.model.memory import weight_bytes
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import AnyPotential, Potential
from geomatt.model.precision import DTYPES, parse_dtype
from geomatt.model.registry import known_kinds, network_class
from geomatt.model.surroundings import Estimate
from geomatt.model.zoo import find_shipped, stability_of, unknown_name_hint

FORMAT = 2  # 2: networks may have bounds
HEADER_KEY = "geomatt"
UNFIT = "does not fit its own description"

Contents = tuple[dict[str, Any], dict[str, Tensor]]  # header, tensors
# UPGRADES[n] turns the contents of a format-n file into those of format n + 1.
UPGRADES: dict[int, Callable[[dict[str, Any], dict[str, Tensor]], Contents]] = {
    1: lambda header, tensors: (header, tensors),
}


def save(potential: Potential, path: str | os.PathLike[str]) -> Path:
    """Write a potential to one file, in the precision it has."""
    if not isinstance(potential, Potential):
        raise GeomAttError("A model file holds a single potential: save each member of a committee.")
    if not isinstance(path, str | os.PathLike):
        raise GeomAttError(f"Name the file to write, such as model.safetensors, not {path!r:.80}.")
    target = Path(path)
    make_folder(target.parent)
    atomic_write(target, to_bytes(potential))
    return target


def to_bytes(potential: Potential) -> bytes:
    """A potential as the content of a model file."""
    tensors = {name: value.detach().cpu().clone() for name, value in potential.network.state_dict().items()}
    return save_tensors(tensors, {HEADER_KEY: json.dumps(describe(potential), default=_plain)})


def load(
    path: str | os.PathLike[str],
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
) -> AnyPotential:
    """A potential from its file, a shipped one by its name, or the model or committee in a run's directory.

    A folder of `geomatt auto` stands for the model in it.
    Names are those `geomatt models` lists, such as md17/aspirin or md17/aspirin:fast.
    `dtype` is the precision to run in, "float32" or "float64"; by default the one the model was saved in.
    """
    try:
        target = Path(path)
    except TypeError:
        raise GeomAttError(
            f"A model is a file, the folder of a run or a name such as md17/ethanol, not {path!r}."
        ) from None
    if target.is_dir():
        return _load_directory(target, device, dtype)
    if not target.exists() and (shipped := find_shipped(target.as_posix())):
        found = load_file(shipped, device, dtype)
        if tried := stability_of(shipped):
            found.record["stability"] = tried
        return found
    return load_file(target, device, dtype)


def loaded(model: AnyPotential | str | os.PathLike[str]) -> AnyPotential:
    """A potential as it is, or `load` for anything else."""
    return model if isinstance(model, AnyPotential) else load(model)


def load_file(
    path: Path, device: torch.device | str = "cpu", dtype: torch.dtype | str | None = None
) -> Potential:
    """A potential from one model file."""
    return load_bytes(_read_bytes(path), path, device, dtype)


def load_bytes(
    content: bytes, path: Path, device: torch.device | str = "cpu", dtype: torch.dtype | str | None = None
) -> Potential:
    """A potential from the content of a model file; error messages name `path`."""
    header, tensors = read_contents(content, path)
    try:
        network_type = network_class(header["kind"])
        config = network_type.Config(**network_type.Config.current(header["config"]))
        normalisation = Normalisation.from_dict(header["normalisation"])
        stored = DTYPES[header["dtype"]]
        record = dict(header["record"])
        domain = Domain.from_dict(header["domain"]) if header.get("domain") else None
        bars = header.get("error_bars")
        estimate = Estimate.from_dict(bars["estimate"]) if bars else None
        calibration = Calibration.from_dict(bars["calibration"]) if bars else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(path, f"has a damaged description ({type(error).__name__}: {error})") from error
    held = sum(value.numel() * value.element_size() for value in tensors.values())
    if (described := weight_bytes(network_type, config, stored)) > 2 * held + 1e6:  # before it is allocated
        sizes = f"that needs {described / 1e6:,.0f} MB of weights, and {held / 1e6:,.1f} MB are there"
        raise _unusable(path, f"{UNFIT}: {sizes}")
    with torch.random.fork_rng(devices=[]):  # loading must not advance the caller's random state
        network = network_type(config, stored)
    _fill(network, tensors, path)
    potential = Potential(network, normalisation, record, domain, estimate=estimate, calibration=calibration)
    return potential.to(check_device(device), parse_dtype(dtype))


def read_contents(content: bytes, path: Path) -> Contents:
    """Header and tensors of a model file of any format up to ours, in our format."""
    header = _header(content, path)
    version = header.get("format")
    if not isinstance(version, int):
        raise _unusable(path, "does not say which format it has")
    if version > FORMAT:
        raise GeomAttError(
            f"{path} has format {version}, written by geomatt {header.get('version', '?')}; this version "
            f"reads formats up to {FORMAT}. Upgrade with: pip install --upgrade geomatt"
        )
    try:
        tensors = load_tensors(content)
    except SafetensorError as error:
        raise _unusable(path, f"is damaged ({error})") from error
    for step in range(version, FORMAT):
        header, tensors = UPGRADES[step](header, tensors)
    if header.get("kind") not in known_kinds():
        raise GeomAttError(
            f"{path} holds a model of kind {header.get('kind')!r}, which this version does not know "
            f"(it knows {', '.join(known_kinds())}). Upgrade with: pip install --upgrade geomatt"
        )
    return header, tensors


def describe(potential: Potential) -> dict[str, Any]:
    """All metadata of a potential, as stored in its file."""
    from geomatt import __version__

    domain = None if potential.ranges is None else potential.ranges.to_dict()
    return {
        "format": FORMAT,
        "version": __version__,
        "kind": potential.network.kind,
        "config": potential.network.config.to_dict(),
        "elements": list(potential.network.config.elements),
        "units": {"energy": "eV", "length": "Ang"},
        "dtype": str(potential.dtype).removeprefix("torch."),
        "normalisation": potential.normalisation.to_dict(),
        "domain": domain,
        "error_bars": error_bars(potential),
        "record": potential.record,
    }


def error_bars(potential: Potential) -> dict[str, Any] | None:
    """The error estimate of a single model and its calibration, as plain values."""
    if potential.estimate is None or potential.calibration is None:
        return None
    return {"estimate": potential.estimate.to_dict(), "calibration": asdict(potential.calibration)}


def fingerprint(model: AnyPotential) -> str:
    """SHA-256 over weights, hyper-parameters and normalisation."""
    digests = [_fingerprint(member) for member in model.members]
    return (
        digests[0] if isinstance(model, Potential) else hashlib.sha256("".join(digests).encode()).hexdigest()
    )


def _fingerprint(potential: Potential) -> str:
    digest = hashlib.sha256()
    described = describe(potential)
    digest.update(
        json.dumps([described[k] for k in ("kind", "config", "normalisation")], default=_plain).encode()
    )
    for name, value in sorted(potential.network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _load_directory(
    directory: Path, device: torch.device | str, dtype: torch.dtype | str | None
) -> AnyPotential:
    single = directory / "model.safetensors"
    if single.is_file():
        return load_file(single, device, dtype)
    members = sorted(
        (m for m in directory.glob("member_*") if m.is_dir()),
        key=lambda m: (len(m.name), m.name),  # member_10 after member_9
    )
    if not members and (directory / "model").is_dir():  # a folder of `geomatt auto`
        return _load_directory(directory / "model", device, dtype)
    if not members:
        raise GeomAttError(
            f"{directory} holds neither model.safetensors nor member_*/model.safetensors. "
            "Name a model file, or the folder of a training run."
        )
    unfinished = [m.name for m in members if not (m / "model.safetensors").is_file()]
    if unfinished:
        raise GeomAttError(
            f"{', '.join(unfinished)} in {directory} hold no model.safetensors yet. "
            "`resume` the run to finish it, or name single members."
        )
    loaded = [load_file(m / "model.safetensors", device, dtype) for m in members]
    return Committee(loaded, Calibration.read(directory, loaded))


def _read_bytes(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise GeomAttError(f"{path} is not a regular file.")  # a pipe or device may never end
        with open(path, "rb") as stream:
            start = stream.read(9)
            _require_safetensors(start, path)  # a large file of another kind is not read
            return start + stream.read()
    except FileNotFoundError as error:
        hint = (
            f" No model of that name ships with this version. {unknown_name_hint(str(path))}"
            if not path.suffix and not path.is_absolute()
            else " Check the path; a training run leaves its model as RUN/model.safetensors."
        )
        raise GeomAttError(f"There is no model file {path}.{hint}") from error
    except OSError as error:
        raise GeomAttError(f"Cannot read {path}: {error.strerror}.") from error


def _unusable(path: Path, why: str) -> GeomAttError:
    return GeomAttError(f"{path} {why}. Use a fresh copy of the file.")


def _foreign(path: Path) -> GeomAttError:
    return GeomAttError(
        f"{path} is not a safetensors file. geomatt reads its own model files only; turn a checkpoint of the "
        "authors' code (params.pt) into one with: geomatt import-authors DIR OUT --help"
    )


def _truncated(path: Path) -> GeomAttError:
    return GeomAttError(f"{path} is truncated: it ends too early. Copy or download it again.")


def _require_safetensors(start: bytes, path: Path) -> int:
    """The length of the header from the first nine bytes of a file."""
    if len(start) < 9:
        raise _truncated(path)
    length = int.from_bytes(start[:8], "little")
    if start[8:9] != b"{" or length > 100_000_000:  # the limit of the safetensors format
        raise _foreign(path)
    return length


def _header(content: bytes, path: Path) -> dict[str, Any]:
    """The description in a file's header; each kind of invalid file has its own error message."""
    length = _require_safetensors(content[:9], path)
    if 8 + length > len(content):
        raise _truncated(path)
    try:
        entries: dict[str, Any] = json.loads(content[8 : 8 + length])
        metadata = entries.pop("__metadata__", {})
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _foreign(path) from error
    if HEADER_KEY not in metadata:
        raise GeomAttError(
            f"{path} is a safetensors file, but not a geomatt model. Give a file written by geomatt."
        )
    if 8 + length + end > len(content):
        raise _truncated(path)
    with suppress(ValueError):
        header = json.loads(metadata[HEADER_KEY])
        if isinstance(header, dict):
            return header
    raise _unusable(path, "has a damaged description")


def _fill(network: Network, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the file's tensors into the network, all of them and nothing else."""
    network.make_room(tensors.keys())
    expected = network.state_dict()
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has unknown {', '.join(extra)}"] if extra else []
        raise _unusable(path, f"{UNFIT}: it {' and '.join(parts)}")
    for name, value in expected.items():
        found = tensors[name]
        if found.shape != value.shape:
            shapes = f"has shape {tuple(found.shape)}, expected {tuple(value.shape)}"
            raise _unusable(path, f"{UNFIT}: {name} {shapes}")
        if found.dtype != value.dtype:
            raise _unusable(path, f"{UNFIT}: {name} is {found.dtype}, expected {value.dtype}")
        if value.is_floating_point() and not bool(torch.isfinite(found).all()):
            raise GeomAttError(f"{path} holds weights that are not finite numbers ({name}). Train again.")
    network.load_state_dict(tensors)


def _plain(value: Any) -> Any:
    """JSON encoding of other types a record may contain."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"A model's record cannot hold {type(value).__name__}.")
