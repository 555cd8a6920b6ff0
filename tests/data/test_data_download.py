"""Downloads, against a local server with configurable faults."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from geomatt.cache import cache_directory
from geomatt.data import CATALOGUE, fetch, locate, read
from geomatt.data.public import catalogue
from geomatt.errors import GeomAttError
from geomatt.files import sha256

ETHANOL = [6, 6, 8, 1, 1, 1, 1, 1, 1]
SALICYLIC = [6] * 7 + [8] * 3 + [1] * 6


def npz(seed: int = 0, z: list[int] = ETHANOL) -> bytes:
    rng = np.random.default_rng(seed)
    stream = io.BytesIO()
    shape = (300, len(z), 3)
    np.savez(stream, z=z, R=rng.normal(size=shape), E=rng.normal(size=300), F=rng.normal(size=shape))
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:bz2") as tar:
        for name, content in (
            ("../../rmd17_evil.npz", b"evil"),
            ("rmd17/readme.txt", b"text"),
            ("rmd17/npz_data/rmd17_ethanol.npz", npz()),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


class Server(ThreadingHTTPServer):
    content = b""
    status = 200
    cut: int | None = None  # bytes after which the transfer is interrupted
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        content, status, start = server.content, server.status, 0
        if status == 200 and wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            status = 206 if start < len(content) else 416
        self.send_response(status)
        if status in (206, 416):
            span = f"{start}-{len(content) - 1}" if status == 206 else "*"
            self.send_header("Content-Range", f"bytes {span}/{len(content)}")
        body = b"" if status == 416 else content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if server.cut is None else body[: server.cut])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server at all addresses of the catalogue, and an empty cache."""
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/file"
    entries = tuple(dataclasses.replace(e, address=address) for e in CATALOGUE)
    monkeypatch.setattr(catalogue, "CATALOGUE", entries)
    server.content = npz()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fails(word: str, name: str = "md17/ethanol", source: Path | None = None) -> str:
    with pytest.raises(GeomAttError, match=word) as caught:
        fetch(name, source=source)
    return str(caught.value)


def parts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.part"))


def test_download_checksum_and_reading_by_name(server: Server, tmp_path: Path) -> None:
    with pytest.raises(GeomAttError, match="geomatt data get md17/ethanol"):
        read("md17/ethanol")
    seen: list[tuple[int, int | None]] = []
    path, how = fetch("md17/ethanol", progress=lambda done, total: seen.append((done, total)))
    assert how == "downloaded"
    assert path.read_bytes() == server.content
    assert seen[-1] == (len(server.content), len(server.content))
    assert locate("MD17/Ethanol") == path
    checksums = json.loads((tmp_path / "cache" / "checksums.json").read_text())
    assert checksums["md17/md17_ethanol.npz"]["sha256"] == sha256(path)
    assert fetch("md17/ethanol") == (path, "cached")
    assert len(server.asked) == 1
    for data in (read("md17/ethanol"), read(path)):  # the file does not state its units
        assert data.origin["energy_unit"] == "kcal/mol"
        assert "public data set" in data.origin["units_known"]


def test_interrupted_download_continues(server: Server, tmp_path: Path) -> None:
    server.cut = 1000
    fails("interrupted after 1,000 of")
    assert not locate("md17/ethanol")
    server.cut = 2000
    fails("interrupted after 3,000 of")
    server.cut = None
    path, _ = fetch("md17/ethanol")
    assert path.read_bytes() == server.content
    assert server.asked == [None, "bytes=1000-", "bytes=3000-"]
    assert parts(tmp_path) == []


def test_server_without_ranges(server: Server) -> None:
    server.cut = 1000
    fails("interrupted")
    server.cut, server.ranges = None, False
    assert fetch("md17/ethanol")[0].read_bytes() == server.content


@pytest.mark.parametrize("extra", [0, 10])
def test_complete_or_too_long_partial_file(server: Server, tmp_path: Path, extra: int) -> None:
    part = tmp_path / "cache" / "md17" / "md17_ethanol.npz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(server.content + b"x" * extra)
    assert fetch("md17/ethanol")[0].read_bytes() == server.content


def test_wrong_checksum(server: Server, tmp_path: Path) -> None:
    path, _ = fetch("md17/ethanol")
    first = path.read_bytes()
    path.unlink()
    server.content = npz(seed=1)
    fails("differs from the first download")
    assert not path.exists()
    assert parts(tmp_path) == []
    copy = tmp_path / "copy.npz"
    copy.write_bytes(server.content)
    fails("differs from the first download of md17/ethanol", source=copy)
    assert not path.exists()
    copy.write_bytes(first)
    assert fetch("md17/ethanol", source=copy) == (path, "copied")
    path.write_bytes(server.content)
    fails("has changed since it was downloaded")


def test_invalid_answers(server: Server, tmp_path: Path) -> None:
    server.status = 404
    message = fails("404")
    assert "http://127.0.0.1" in message
    assert str(tmp_path / "cache" / "md17" / "md17_ethanol.npz") in message
    assert "`source`" in message
    server.status, server.content = 200, b"<html>We have moved</html>"
    fails("begins with b'<html>")
    server.content = npz()[:-100]
    fails("received file is damaged")
    assert parts(tmp_path) == []
    assert not (tmp_path / "cache" / "checksums.json").exists()


def test_no_network(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = tuple(dataclasses.replace(e, address="http://127.0.0.1:9/x.npz") for e in CATALOGUE)
    monkeypatch.setattr(catalogue, "CATALOGUE", dead)
    message = fails("Could not download")
    assert "http://127.0.0.1:9/x.npz" in message


def test_rmd17_from_its_archive(server: Server, tmp_path: Path) -> None:
    server.content = archive()
    path, how = fetch("rmd17/ethanol")
    assert how == "downloaded"
    assert path.read_bytes() == npz()
    assert not list(tmp_path.rglob("*evil*"))
    fails("does not contain rmd17_uracil.npz", "rmd17/uracil")
    assert len(server.asked) == 1  # the archive was kept
    kept = path.parent / "rmd17.tar.bz2"
    path.unlink()
    kept.write_bytes(kept.read_bytes()[:-50])
    fails("is damaged", "rmd17/ethanol")


def test_existing_copies(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "md17").mkdir(parents=True)
    fails("contains no copy of md17/salicylic", "md17/salicylic_acid", folder)
    (folder / "md17" / "md17_salicylic_acid.npz").write_bytes(npz(z=SALICYLIC))
    assert fetch("md17/salicylic", source=folder)[0].name == "md17_salicylic.npz"
    (folder / "rmd17.tar.bz2").write_bytes(archive())
    assert fetch("rmd17/ethanol", source=folder)[0].read_bytes() == npz()
    assert fetch("rmd17/ethanol", source=folder / "rmd17.tar.bz2")[1] == "copied"
    (folder / "bad.npz").write_text("no")
    fails("not an npz file", source=folder / "bad.npz")
    fails("There is no", source=tmp_path / "absent")
    assert server.asked == []


def test_file_copied_to_the_cache_by_hand(server: Server, tmp_path: Path) -> None:
    place = tmp_path / "cache" / "md17" / "md17_ethanol.npz"
    place.parent.mkdir(parents=True)
    place.write_bytes(npz())
    assert fetch("md17/ethanol") == (place, "cached")
    place.write_bytes(npz(1))
    fails("has changed since")


def test_wrong_molecule(server: Server, tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    good.write_bytes(npz())
    for name, wanted in (("md17/aspirin", "C9H8O4 with 21"), ("md22/double-walled_nanotube", "with 370")):
        for source in (good, None):  # copied, downloaded
            message = fails("it contains C2H6O with 9 atoms", name, source)
            assert f"{name} is {wanted}" in message.replace("a molecule ", "")
            assert locate(name) is None
    assert fetch("md17/ethanol", source=good)[1] == "copied"
    kept = [p for p in sorted((tmp_path / "cache").rglob("*")) if p.is_file()]
    assert [p.name for p in kept] == ["checksums.json", "md17_ethanol.npz"]
    before = [p.read_bytes() for p in kept]
    good.write_bytes(npz(z=SALICYLIC))
    fails("C7H6O3 with 16 atoms, but md17/ethanol is C2H6O", source=good)
    np.savez(good, a=np.zeros(3))
    fails("no atomic numbers", source=good)
    assert [p.read_bytes() for p in kept] == before
    by_hand = tmp_path / "cache" / "md17" / "md17_uracil.npz"
    by_hand.write_bytes(npz())
    fails("is not md17/uracil", "md17/uracil")


def test_formulas_and_numbers_of_atoms_agree() -> None:
    for entry in CATALOGUE:
        counts = re.findall(r"[A-Z][a-z]?(\d*)", entry.formula or "")
        assert sum(int(n or 1) for n in counts) == (entry.atoms if entry.formula else 0), entry.name
        assert entry.atoms


def test_names_and_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fails("Known are: md17/aspirin", "md17/water")
    assert len({e.name for e in CATALOGUE}) == len(CATALOGUE) == 25
    monkeypatch.delenv("GEOMATT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_directory() == tmp_path / "geomatt"


def test_storage_problems(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "file"))
    fails("Set GEOMATT_CACHE to another directory")
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "checksums.json").write_text("{]")
    fails("checksums.json is damaged")


def test_copies_from_a_data_directory(server: Server, real_data: Path) -> None:
    for name in ("md17/benzene", "md17/salicylic", "rmd17/salicylic", "rmd17/uracil"):
        assert fetch(name, source=real_data)[1] == "copied"
        assert read(name).origin["energy_unit"] == "kcal/mol"
