"""Results on the move: what a run left under its folder, in a few small tar files and back again.

A machine with a GPU is often lent for an hour and gives little back. A pack holds the pieces' JSON files, the
models worth keeping and the checkpoints of what is not finished, in this order; whatever an earlier pack
or unpacking has carried already is left out.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from geomatt.data.files import atomic_output, sha256
from geomatt.errors import GeomAttError

VOLUME = 15 * 2**20  # bytes of content in one tar file
VOLUMES = 4  # in one pack; what does not fit goes into the next one
CARRIED = ("pieces/**/*.json", "models/**/*.safetensors", "work/**/checkpoint.safetensors")
_MEMORY = "packed.json"


def pack_results(out: Path, prefix: Path) -> list[Path]:
    """Write what is new under `out` to PREFIX-1.tar, PREFIX-2.tar ..., and say which files were written."""
    known = _memory(out)
    fresh = {path: digest for path in _files(out) if known.get(_name(path, out)) != (digest := sha256(path))}
    volumes: list[list[Path]] = []
    room = 0
    for path in fresh:
        size = path.stat().st_size
        if size > room or not volumes:
            if len(volumes) == VOLUMES:
                continue  # a smaller one may still fit
            volumes.append([])
            room = VOLUME
        volumes[-1].append(path)
        room -= size
    written = []
    for number, paths in enumerate(volumes, 1):
        target = prefix.with_name(f"{prefix.name}-{number}.tar")
        with atomic_output(target) as temporary, tarfile.open(temporary, "w") as archive:
            for path in paths:
                archive.add(path, _name(path, out))
                known[_name(path, out)] = fresh[path]
        written.append(target)
    if written:
        _remember(out, known)
    return written


def unpack_results(archive: Path, out: Path) -> int:
    """Put a pack's files under `out`; returns how many. Nothing else than a pack's kinds of file is taken."""
    known = _memory(out)
    try:
        with tarfile.open(archive) as content:
            items = [item for item in content.getmembers() if item.isfile()]
            for item in items:
                if not _is_carried(Path(item.name)):
                    raise GeomAttError(f"{archive} holds {item.name}, so it is not a pack of results.")
            for item in items:
                content.extract(item, out, filter="data")  # refuses names that lead outside
                known[item.name] = sha256(out / item.name)
    except (OSError, tarfile.TarError) as error:
        raise GeomAttError(f"{archive} cannot be unpacked: {error}.") from error
    _remember(out, known)
    return len(items)


def _files(out: Path) -> Iterator[Path]:
    for pattern in CARRIED:
        yield from sorted(out.glob(pattern))


def _is_carried(name: Path) -> bool:
    """Whether a file of that name could have been packed."""
    top = {"pieces": ".json", "models": ".safetensors", "work": ".safetensors"}
    return ".." not in name.parts and top.get(name.parts[0]) == name.suffix


def _name(path: Path, out: Path) -> str:
    return path.relative_to(out).as_posix()


def _memory(out: Path) -> dict[str, str]:
    """Hashes of what was carried before, by name."""
    path = out / _MEMORY
    if not path.exists():
        return {}
    try:
        return {str(k): str(v) for k, v in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, AttributeError) as error:
        raise GeomAttError(f"{path} is damaged ({error}). Delete it.") from error


def _remember(out: Path, known: dict[str, str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with atomic_output(out / _MEMORY) as temporary:
        temporary.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
