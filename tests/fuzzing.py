"""Damaged files for every reader: each must end in a GeomAttError or in a valid result.

    python tests/fuzzing.py --cases 10000

Each case takes a valid file, changes it at random (bytes flipped, overwritten, cut, swapped, numbers replaced
by extreme ones; members of a zip file also with a new checksum) and reads it in a process of its own that may
use 2 GB of memory and 20 s. Another exception, a warning, a crash, a hang, a lack of memory, and any attempt
to run code, start a program, connect or write elsewhere is a failure. A case is repeated with
--only NAME --first CASE --cases 1.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
from command_line import start_forkserver

MEMORY = 2 << 30  # bytes above what the process has after reading the undamaged file
SECONDS = 20.0
NUMBERS = (b"999999999999", b"-1", b"0", b"1e308", b"nan", b"4294967296", b"9" * 400)
INTEGERS = (0, -1, 10**12, 2**31, 2**62, 2**63 - 1, -(2**63))
FORBIDDEN = {  # events of Python's audit hooks that no reader has a reason to cause
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"),
    *("pickle.find_class", "socket.connect", "socket.bind", "ctypes.dlopen", "code.__new__", "exec"),
}
CHANGING = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}


@dataclass(frozen=True)
class Target:
    """A reader, and a valid file for it."""

    filename: str
    make: Callable[[Path], object]
    read: Callable[
        [Path], Any
    ]  # the result as something comparable; raises AssertionError if it is not valid
    exact: bool = False  # checksums in the file: a result must be that of the undamaged file
    converted: bool = False  # by a program, which is slow: a twentieth of the cases


def water(n: int = 12, seed: int = 0) -> Any:
    """Frames of a water molecule with energies and forces."""
    from geomatt.data import Dataset

    rng = np.random.default_rng(seed)
    positions = np.array([[0, 0, 0], [0, 0.76, 0.59], [0, -0.76, 0.59]]) + 0.03 * rng.normal(size=(n, 3, 3))
    forces = rng.normal(size=(n, 3, 3))
    forces -= forces.mean(axis=1, keepdims=True)
    return Dataset.from_frames(
        np.array([8, 1, 1]), positions, -2081 + rng.normal(size=n), forces, name="water"
    )


def atoms(n: int = 5) -> list[Any]:
    """The same as ASE Atoms, with a cell, stress, charges and moments."""
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator

    images = []
    for s in water(n):
        image = Atoms(
            s.numbers, s.positions, cell=np.eye(3) * 9, pbc=True, charges=[1, 0, 0], magmoms=[1, 0, 0]
        )
        image.info.update(note="a b", matrix=np.eye(2))
        image.calc = SinglePointCalculator(image, energy=s.energy, forces=s.forces, stress=np.ones(6))
        images.append(image)
    return images


def npz(path: Path, compressed: bool = False) -> None:
    data = water()
    save = np.savez_compressed if compressed else np.savez
    arrays = {"z": [8, 1, 1], "R": data.positions.reshape(-1, 3, 3), "F": data.forces.reshape(-1, 3, 3)}
    texts = {"e_unit": "kcal/mol", "r_unit": "Ang", "name": "water", "theory": "none"}
    with open(path, "wb") as stream:
        save(stream, E=data.energies, charge=np.ones(12), **arrays, **texts)


def ase_file(path: Path, **options: Any) -> None:
    import ase.io

    single = path.name in ("POSCAR", "coord") or path.suffix in (
        ".gen",
        ".cell",
        ".gro",
        ".xsd",
        ".cube",
        ".in",
    )
    ase.io.write(path, atoms(1) if single else atoms(), **options)


def extxyz(path: Path) -> None:
    ase_file(path.with_suffix("").with_suffix(".xyz"), format="extxyz")
    text = path.with_suffix("").with_suffix(".xyz").read_bytes()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def plain_xyz(path: Path) -> None:
    path.write_text("".join(f"3\nframe {i}\nO 0 0 0\nH 0 0 {i}.5\nH 0 1.25 0\n" for i in range(3)))


def archive(path: Path) -> None:
    content = io.BytesIO()
    z = [6, 6, 8, 1, 1, 1, 1, 1, 1]
    np.savez(
        content,
        coords=np.zeros((2, 9, 3)),
        nuclear_charges=z,
        energies=np.zeros(2),
        forces=np.zeros((2, 9, 3)),
    )
    with tarfile.open(path, "w:bz2") as tar:
        member = tarfile.TarInfo("rmd17/npz_data/rmd17_ethanol.npz")
        member.size = len(content.getvalue())
        tar.addfile(member, io.BytesIO(content.getvalue()))


def split_file(path: Path) -> None:
    from geomatt.data import random_split

    path.write_text(json.dumps(random_split(100, 50, 10, seed=0).to_dict()))


def read_dataset(path: Path) -> Any:
    """Everything that can be asked of a data set, and a round trip through a file."""
    from geomatt.data import check_labels, read, write

    dataset = read(path)
    n, total = len(dataset), len(dataset.numbers)
    assert n >= 1
    assert dataset.offsets[0] == 0
    assert dataset.offsets[-1] == total
    assert (dataset.sizes > 0).all()
    assert ((dataset.numbers >= 1) & (dataset.numbers <= 118)).all()
    assert dataset.positions.shape == (total, 3)
    for array in (dataset.positions, dataset.energies, dataset.cells, dataset.charges, dataset.weights):
        assert array is None or np.isfinite(array).all()
    assert (
        dataset.forces is None
        or np.isfinite(dataset.forces[np.repeat(dataset.has_forces, dataset.sizes)]).all()
    )
    assert all(isinstance(warning, str) for warning in check_labels(dataset))
    assert len(dataset.frame_hashes()) == n
    again = path.with_name("again.xyz")
    write(dataset, again)
    assert len(read(again)) == n
    return dataset.fingerprint()


def read_archive(path: Path) -> Any:
    from geomatt.data.public.catalogue import find_entry
    from geomatt.data.public.download import _extract

    entry = find_entry("rmd17/ethanol")
    assert entry is not None
    _extract(entry, path, path.with_name("out.npz"))
    return path.with_name("out.npz").read_bytes()


def read_indices(path: Path) -> Any:
    from geomatt.data import split_from_files

    return split_from_files(path, n=100).train.tolist()


def read_split(path: Path) -> Any:
    from geomatt.data import Split

    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise GeomAttError("not JSON") from error
    return Split.from_dict(stored).check(100).to_dict()


def read_checksums(path: Path) -> Any:
    from geomatt.data.public.download import _checksums

    os.environ["GEOMATT_CACHE"] = str(path.parent)
    return _checksums()


def save_model(path: Path) -> None:
    import torch
    from conftest import small_network

    from geomatt.model import Normalisation, Potential, save

    torch.set_num_threads(1)
    save(Potential(small_network(), Normalisation.fit(water())), path)


def read_model(path: Path) -> Any:
    from geomatt.model import load

    model = load(path)
    return {name: value.numpy().tobytes() for name, value in model.network.state_dict().items()}


def save_checkpoint(path: Path) -> None:
    import torch
    from training_toy import tiny_config

    from geomatt.training.checkpoint import Checkpoint, Counters

    identity = dict.fromkeys(("data", "split", "base"), "0" * 64)
    state = {"theta": torch.arange(12.0), "steps": torch.tensor(3.0)}
    Checkpoint(
        tiny_config().to_dict(), identity, Counters(epoch=2), state, {"W": torch.ones(3)}, torch.zeros(2, 9)
    ).write(path.parent)


def read_checkpoint(path: Path) -> Any:
    from training_toy import tiny_config

    from geomatt.training import checkpoint
    from geomatt.training.history import rows_from_tensor
    from geomatt.training.resume import check_resume

    found = checkpoint.read(path.parent)
    identity = dict.fromkeys(("data", "split", "base"), "0" * 64)
    check_resume(found, tiny_config(), identity, path.parent)
    rows_from_tensor(found.history)
    return found.counters.epoch


def read_config(path: Path) -> Any:
    from geomatt.training.config import TrainConfig, read_settings

    return TrainConfig.from_dict(read_settings(path)).to_dict()


def save_config(path: Path) -> None:
    from training_toy import tiny_config

    from geomatt.model.registry import network_class, network_names
    from geomatt.training import TrainConfig

    for kind in network_names():  # imported now: a damaged file may name another network
        network_class(kind)
        TrainConfig.from_dict({"model": kind})
    path.write_text(tiny_config(keys={"forces": "F"}, reference={"1": -13.6}).to_toml())


def save_restart(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from geomatt.simulation.md import Saved
    from geomatt.simulation.restart import EXTRA, KEY
    from geomatt.simulation.settings import MDSettings

    extra = Saved("m", "0" * 64, MDSettings(), water()[0], {"trajectory.extxyz": 10}, 0).to_dict()
    save_file({"x": torch.zeros(3)}, path, {KEY: json.dumps({"format": 2}), EXTRA: json.dumps(extra)})


def read_restart(path: Path) -> Any:
    from geomatt.simulation.md import Saved

    return Saved.read(path.parent).to_dict()


TARGETS = {
    "npz": Target("a.npz", npz, read_dataset, exact=True),
    "npz-compressed": Target("a.npz", lambda path: npz(path, True), read_dataset, exact=True),
    "extxyz": Target("a.xyz", extxyz, read_dataset),
    "xyz": Target("a.xyz", plain_xyz, read_dataset),
    "xyz.gz": Target("a.xyz.gz", extxyz, read_dataset),
    "traj": Target("a.traj", ase_file, read_dataset),
    "db": Target("a.db", ase_file, read_dataset),
    "json": Target("a.json", ase_file, read_dataset),
    "archive": Target("rmd17.tar.bz2", archive, read_archive),
    "indices": Target(
        "train.csv", lambda path: path.write_text("\n".join(map(str, range(50)))), read_indices
    ),
    "split": Target("split.json", split_file, read_split),
    "checksums": Target(
        "checksums.json",
        lambda path: path.write_text(json.dumps({"md17/a.npz": {"sha256": "0" * 64, "from": "http://a"}})),
        read_checksums,
    ),
    "cif": Target("a.cif", ase_file, read_dataset, converted=True),
    "pdb": Target("a.pdb", ase_file, read_dataset, converted=True),
    "vasp": Target("POSCAR", ase_file, read_dataset, converted=True),
    "model": Target("m.safetensors", save_model, read_model),
    "checkpoint": Target("checkpoint.safetensors", save_checkpoint, read_checkpoint),
    "config": Target("config.toml", save_config, read_config),
    "restart": Target("restart.safetensors", save_restart, read_restart),
}
STATE = ("model", "checkpoint", "config", "restart")
DATA = tuple(name for name in TARGETS if name not in STATE)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three random changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(CHANGES)(bytearray(content or b"\0"), rng)
    return content


def _span(data: bytearray, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 16, 64, 512)))


def flip_bits(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def overwrite(data: bytearray, rng: random.Random) -> bytes:
    a, b = _span(data, rng)
    data[a:b] = rng.choice((bytes(b - a), b"\xff" * (b - a), rng.randbytes(b - a), b" " * (b - a)))
    return bytes(data)


def cut_end(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def delete(data: bytearray, rng: random.Random) -> bytes:
    a, b = _span(data, rng)
    del data[a:b]
    return bytes(data)


def duplicate(data: bytearray, rng: random.Random) -> bytes:
    a, b = _span(data, rng)
    return bytes(data[:b] + data[a:b] * rng.choice((1, 3)) + data[b:])


def swap(data: bytearray, rng: random.Random) -> bytes:
    a, b = _span(data, rng)
    c = rng.randrange(len(data))
    d = min(len(data), c + b - a)
    data[a:b], data[c:d] = data[c:d], data[a:b]
    return bytes(data)


def replace_number(data: bytearray, rng: random.Random) -> bytes:
    numbers = list(re.finditer(rb"-?\d[\d.eE+-]*", data))
    if not numbers:
        return flip_bits(data, rng)
    a, b = rng.choice(numbers).span()
    data[a:b] = rng.choice(NUMBERS)
    return bytes(data)


def replace_integer(data: bytearray, rng: random.Random) -> bytes:
    a = rng.randrange(max(1, len(data) - 8)) // 4 * 4
    size = rng.choice((4, 8))
    data[a : a + size] = (rng.choice(INTEGERS) % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(data)


CHANGES = (flip_bits, overwrite, cut_end, delete, duplicate, swap, replace_number, replace_integer)


def mutate_members(content: bytes, rng: random.Random) -> bytes:
    """A valid zip file with one damaged member."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    chosen = rng.choice(list(members))
    members[chosen] = mutate(members[chosen], rng)
    if rng.random() < 0.1:
        members[rng.choice(list(members))] = members[rng.choice(list(members))]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as new:
        for name, value in members.items():
            new.writestr(name, value)
    return stream.getvalue()


@dataclass
class Prepared:
    """A target with its undamaged file, read once."""

    target: Target
    path: Path
    content: bytes
    result: Any


def prepare(name: str, folder: Path) -> Prepared:
    target = TARGETS[name]
    path = folder / name / target.filename
    path.parent.mkdir()
    target.make(path)
    return Prepared(target, path, path.read_bytes(), target.read(path))


def serve(connection: Connection, names: tuple[str, ...], folder: Path) -> None:
    """The process that reads: answers each case with the kind of its result and a failure, if it is one."""
    tempfile.tempdir = str(folder)
    warnings.simplefilter("error")
    prepared = {name: prepare(name, folder) for name in names}
    _know_all_networks()
    state: dict[str, Any] = {"converted": False, "watch": False, "seen": ""}

    def hook(event: str, arguments: tuple) -> None:
        if not state["watch"] or (event == "subprocess.Popen" and state["converted"]):
            return
        if event in FORBIDDEN or _changes_files(event, arguments, folder):
            state["seen"] = f"{event} {arguments!r}"[:200]

    sys.addaudithook(hook)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    connection.send(None)
    while (job := connection.recv()) is not None:
        name, case = job
        item, rng = prepared[name], random.Random(f"{name}-{case}")
        rebuilt = item.content.startswith(b"PK") and rng.random() < 0.5
        shutil.rmtree(item.path.parent)
        item.path.parent.mkdir()
        item.path.write_bytes((mutate_members if rebuilt else mutate)(item.content, rng))
        state.update(watch=True, seen="", converted=item.target.converted)
        expected = item.result if item.target.exact and not rebuilt else None
        connection.send(_outcome(item.target, item.path, expected, state))


def _know_all_networks() -> None:
    """Import what a damaged file may name first: Python runs code then, but none of the file's."""
    from geomatt.model.registry import network_class, network_config, network_names
    from geomatt.settings import field_types

    for name in network_names():
        network_class(name)
        field_types(network_config(name))


def _outcome(target: Target, path: Path, expected: Any, state: dict[str, Any]) -> tuple[str, str | None]:
    """Kind of result ("error" or "read") and the description of a failure, if it is one."""
    kind, problem = "read", None
    try:
        result = target.read(path)
        if expected is not None and result != expected:
            problem = "another result than the undamaged file"
    except GeomAttError as error:
        kind = "error"
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                problem = "memory: " + "".join(traceback.format_exception(cause)[-6:])
            cause = cause.__cause__ or cause.__context__
        if "\n" in str(error) or len(str(error)) > 2000:
            problem = f"message of {len(str(error))} characters: {str(error)[:200]!r}"
    except BaseException as error:
        problem = "".join(traceback.format_exception(error)[-8:])
    state["watch"] = False
    return kind, problem or (f"forbidden: {state['seen']}" if state["seen"] else None)


def _changes_files(event: str, arguments: tuple, folder: Path) -> bool:
    """True if a file outside of the folder is opened for writing, moved or removed."""
    path, last = Path("/"), arguments[-1]
    if event == "open":
        if not (set("wax+") & set(arguments[1] or "") or last & (os.O_WRONLY | os.O_RDWR)):
            return False
    elif event not in CHANGING:
        return False
    elif isinstance(last, int) and last >= 0:  # relative to an open directory
        path = Path(f"/proc/self/fd/{last}")
    return isinstance(arguments[0], str) and not (path / arguments[0]).resolve().is_relative_to(
        folder.resolve()
    )


class Reader:
    """A process that reads damaged files; a new one is started after a crash or a hang."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.start()

    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.connection, other = multiprocessing.Pipe()
        context = start_forkserver()
        arguments = (other, self.names, Path(self.folder.name))
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        other.close()
        try:
            if self.connection.poll(300):
                return self.connection.recv()
        except EOFError:
            pass
        raise RuntimeError("an undamaged file could not be read")

    def run(self, name: str, case: int) -> tuple[str, str | None]:
        self.connection.send((name, case))
        try:
            if self.connection.poll(SECONDS):
                return self.connection.recv()
            problem = f"no result after {SECONDS:g} s"
        except (EOFError, ConnectionError):
            self.process.join(5)
            problem = f"crash with exit code {self.process.exitcode}"
        self.stop()
        self.start()
        return "failed", problem

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.folder.cleanup()


def fuzz(names: tuple[str, ...], cases: int, first: int = 0) -> Iterator[tuple[str, int, str, str | None]]:
    """(target, case, kind of result, failure) of `cases` cases, divided among the targets."""
    weights = [1 if TARGETS[name].converted else 20 for name in names]
    ends = [cases * sum(weights[: i + 1]) // sum(weights) for i in range(len(names))]
    reader = Reader(names)
    try:
        for name, share in zip(names, np.diff([0, *ends]).tolist(), strict=True):
            for case in range(first, first + share):
                yield name, case, *reader.run(name, case)
    finally:
        reader.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="cases in all (10000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--only", nargs="*", choices=tuple(TARGETS), help="targets (all)")
    options = parser.parse_args()
    names = tuple(options.only or TARGETS)
    start, failures = time.perf_counter(), 0
    results: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name, case, kind, problem in fuzz(names, options.cases, options.first):
        results[name][kind] += 1
        if problem is not None:
            failures += 1
            print(f"\n{name} case {case}: {problem}", flush=True)
    for name, counts in results.items():
        print(f"{name:16} " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    print(f"{options.cases} cases, {failures} failures, {time.perf_counter() - start:.0f} s")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
