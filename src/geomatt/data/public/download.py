"""Download public data sets into the cache, with resumption and checksums."""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
import ssl
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.cache import cache_directory
from geomatt.data.io.archive import load_arrays
from geomatt.data.io.npz import KNOWN_KEYS
from geomatt.data.public.catalogue import CATALOGUE, Entry, find_entry
from geomatt.elements import SYMBOLS, formula
from geomatt.errors import GeomAttError
from geomatt.files import atomic_output, sha256

Progress = Callable[[int, int | None], None]  # bytes received, total bytes if known
_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without data
_LARGEST_MEMBER = 1 << 31  # bytes; the files of rMD17 have a tenth of it
_STARTS = {".npz": b"PK", ".bz2": b"BZh"}


def fetch(
    name: str, *, source: str | Path | None = None, progress: Progress | None = None
) -> tuple[Path, str]:
    """Return the path of the data set in the cache and its origin: "cached", "downloaded" or "copied".

    ``source`` is an existing copy: the file, the rMD17 archive, or a directory that contains either. A file
    already in the cache is checked against the checksum recorded when it was first stored.
    """
    entry = find_entry(name)
    if entry is None:
        raise GeomAttError(
            f"There is no data set {name!r}. Known are: {', '.join(e.name for e in CATALOGUE)}."
        )
    with _storage_errors(entry):
        entry.target.parent.mkdir(parents=True, exist_ok=True)
        if source is not None:
            _copy(entry, _find_copy(entry, Path(source).expanduser()))
            return entry.target, "copied"
        if entry.target.exists():
            _verify(entry)
            return entry.target, "cached"
        if entry.archive is None:
            _download(entry, entry.target, progress)
        else:
            archive = entry.target.parent / entry.archive
            if not archive.exists():
                _download(entry, archive, progress)
            _copy(entry, archive)
        return entry.target, "downloaded"


def _download(entry: Entry, target: Path, progress: Progress | None) -> None:
    """Download the entry's address to ``target``, continuing a partial download if there is one."""
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "geomatt", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(entry.address, headers=headers), timeout=_TIMEOUT
        ) as response:
            have, total = _plan(response, have)
            with open(part, "ab" if have else "wb") as stream:
                while chunk := response.read(_CHUNK):
                    stream.write(chunk)
                    have += len(chunk)
                    if progress is not None:
                        progress(have, total)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:  # 416: no bytes follow, so the partial file is complete or wrong
            raise _failed(entry, f"the server answered {error.code} {error.reason}") from error
        total = _total(error.headers.get("Content-Range"))
        if total != have:
            part.unlink()
            _download(entry, target, progress)
            return
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
        ssl.SSLError,
    ) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise _failed(entry, str(reason)) from error
    if total is not None and have < total:
        raise GeomAttError(
            f"The download of {entry.name} was interrupted after {have:,} of {total:,} bytes. "
            "Repeat it to continue."
        )
    _accept(entry, part, target)


def _plan(response: Any, have: int) -> tuple[int, int | None]:
    """Bytes of the partial file to keep and the total size, according to the server's answer."""
    span = response.headers.get("Content-Range", "")
    if response.status == 206 and span.startswith(f"bytes {have}-"):
        return have, _total(span)
    if response.status == 206:
        raise http.client.HTTPException(f"asked for bytes from {have}, got {span!r}")
    length = response.headers.get("Content-Length")
    return 0, int(length) if length and length.isdigit() else None


def _total(content_range: str | None) -> int | None:
    size = (content_range or "").rpartition("/")[2]
    return int(size) if size.isdigit() else None


def _accept(entry: Entry, part: Path, target: Path) -> None:
    """Move a completed download to ``target`` if it is valid; otherwise delete it and raise an error."""
    try:
        with open(part, "rb") as stream:
            start = stream.read(60)
        if not start.startswith(_STARTS[target.suffix]):
            raise _failed(entry, f"the content is something else, it begins with {start!r}")
        digest = _checked_digest(entry, part, target)
        if target.suffix == ".npz":
            try:
                arrays = load_arrays(part)
            except GeomAttError:
                raise _failed(entry, "the received file is damaged; try again") from None
            _check_molecule(entry, arrays, f"The file from {entry.address}")
    except GeomAttError:
        part.unlink()
        raise
    os.replace(part, target)
    _record(target, digest, entry.address)


def _copy(entry: Entry, source: Path) -> None:
    """Copy the entry's file from ``source``, a copy or an archive, if it is the right molecule."""
    origin = entry.address if source.parent == entry.target.parent else str(source.resolve())
    with atomic_output(entry.target) as temporary:
        if source.suffix == ".npz":
            shutil.copyfile(source, temporary)
        else:
            _extract(entry, source, temporary)
        _check_molecule(entry, load_arrays(temporary), str(source))
        digest = _checked_digest(entry, temporary, entry.target)
    _record(entry.target, digest, origin)


def _checked_digest(entry: Entry, file: Path, target: Path) -> str:
    """Checksum of a file; an error if it is not that of the first download to ``target``."""
    digest = sha256(file)
    recorded = _checksums().get(_key(target))
    if recorded is not None and recorded["from"] == entry.address and recorded["sha256"] != digest:
        raise GeomAttError(
            f"The file differs from the first download of {entry.name} (sha256 {digest[:16]}… instead of "
            f"{recorded['sha256'][:16]}…): it is damaged, or was changed at its source. If the change is "
            f"known to be correct, remove {_key(target)!r} from {_checksum_file()}."
        )
    return digest


def _extract(entry: Entry, archive: Path, target: Path) -> None:
    """Extract the entry's file; paths in the archive are never used as paths on disk."""
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                if member.size > _LARGEST_MEMBER:
                    break
                if member.isfile() and member.name.rpartition("/")[2] == entry.filename:
                    content = tar.extractfile(member)
                    assert content is not None
                    with content, open(target, "wb") as stream:
                        shutil.copyfileobj(content, stream)
                    return
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the archive
            raise
        reason = str(error).splitlines()[0] if str(error) else "it is cut short"
        raise GeomAttError(f"{archive} is damaged: {reason}. Delete it and download it again.") from error
    raise GeomAttError(f"{archive} does not contain {entry.filename}.")


def _find_copy(entry: Entry, source: Path) -> Path:
    """``source`` itself if it is a file, otherwise the entry's file or archive in that directory."""
    if source.is_file():
        return source
    if not source.exists():
        raise GeomAttError(f"There is no file or folder {source}.")
    stems = {Path(entry.filename).stem, entry.name.replace("/", "_")}
    stems |= {f"{entry.collection}_{alias}" for alias in entry.aliases}
    names = [f"{stem}.npz" for stem in sorted(stems)] + ([entry.archive] if entry.archive else [])
    for name in names:
        for folder in (".", entry.collection, "npz_data", f"{entry.collection}/npz_data"):
            if (source / folder / name).is_file():
                return source / folder / name
    raise GeomAttError(f"{source} contains no copy of {entry.name}; looked for {', '.join(names)}.")


def _check_molecule(entry: Entry, arrays: Mapping[str, np.ndarray], what: str) -> None:
    """Raise an error if the file is of another molecule than the entry."""
    name = next((key for key in KNOWN_KEYS["numbers"] if key in arrays), None)
    numbers = arrays[name] if name is not None else np.empty(0)
    valid = numbers.size and numbers.dtype.kind in "fiu" and 0 < numbers.min() <= numbers.max() < len(SYMBOLS)
    if not valid:
        raise GeomAttError(f"{what} is not {entry.name}: it contains no atomic numbers.")
    wanted = f"{entry.formula or 'a molecule'} with {entry.atoms} atoms"
    for row in np.unique(numbers.reshape(-1, numbers.shape[-1] if numbers.ndim else 1), axis=0):
        found = formula(row)
        if found != (entry.formula or found) or len(row) != entry.atoms:
            raise GeomAttError(
                f"{what} is not {entry.name}: it contains {found} with {len(row)} atoms, but {entry.name} "
                f"is {wanted}. The cache was not changed."
            )


def _verify(entry: Entry) -> None:
    target = entry.target
    digest = sha256(target)
    recorded = _checksums().get(_key(target))
    if recorded is None:  # placed there by hand, as the message of `_failed` suggests
        _check_molecule(entry, load_arrays(target), str(target))
        _record(target, digest, "put into the cache by hand")
    elif recorded["sha256"] != digest:
        raise GeomAttError(
            f"{target} has changed since it was downloaded (its checksum differs from the recorded one). "
            "Delete it and download it again."
        )


def _checksum_file() -> Path:
    return cache_directory() / "checksums.json"


def _checksums() -> dict[str, dict[str, str]]:
    """Recorded checksums by path in the cache: {"sha256": ..., "from": ...}."""
    file = _checksum_file()
    if not file.exists():
        return {}
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return {
            key: {"sha256": str(item["sha256"]), "from": str(item["from"])} for key, item in stored.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise GeomAttError(
            f"{file} is damaged. Delete it; checksums are then recorded again at the next download."
        ) from None


def _record(target: Path, digest: str, origin: str) -> None:
    checksums = {**_checksums(), _key(target): {"sha256": digest, "from": origin}}
    with atomic_output(_checksum_file()) as temporary:
        temporary.write_text(json.dumps(checksums, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _key(target: Path) -> str:
    return f"{target.parent.name}/{target.name}"


def _failed(entry: Entry, reason: str) -> GeomAttError:
    place = entry.target.parent / (entry.archive or entry.filename)
    return GeomAttError(
        f"Could not download {entry.name} from {entry.address}: {reason}. If you have the file, copy it "
        f"to {place}, or name it as `source`."
    )


@contextmanager
def _storage_errors(entry: Entry) -> Iterator[None]:
    """Turn storage errors into a message that names the cache directory."""
    try:
        yield
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise GeomAttError(
            f"Could not store {entry.name} in {cache_directory()}: {what}. Set GEOMATT_CACHE to another "
            "directory."
        ) from error
