"""Label given structures with a reference method."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.arguments import path_of, require
from geomatt.data.dataset import Dataset
from geomatt.data.make.config import MethodConfig
from geomatt.data.make.folder import Progress, work_folder
from geomatt.data.make.log import RecordLog
from geomatt.data.make.method import Method, NotConverged, Reference, cannot
from geomatt.data.make.molecule import unlabelled
from geomatt.data.make.workers import Job, Workers
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError

_CHUNK = 16  # structures of one chain of tasks
_HEAD = 4  # index, failures, has stress, energy
_FAILED = "the calculation failed"


@dataclass(frozen=True)
class LabelResult:
    """Labelled structures; those the method failed for are left out."""

    dataset: Dataset
    path: Path
    failed: dict[int, str]  # why structures are left out, by their number from 0
    summary: dict[str, Any]


def label(
    structures: Dataset,
    config: MethodConfig,
    out: str | os.PathLike[str],
    *,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> LabelResult:
    """Compute energy and forces of all structures, and write them to `out` (npz or extxyz).

    Finished ones are kept in `OUT.parts`: the same call continues after any interruption. `progress` is
    called with the number of structures done since the last call.
    """
    require("data", structures, Dataset, "geomatt.read(FILE)")
    require("settings", config, MethodConfig, "MethodConfig()")
    workers = workers or Workers()
    tell: Progress = progress or (lambda structures: None)
    method = Method(config.calculator, config.arguments)
    todo = [unlabelled(s, config.charge, config.multiplicity) for s in structures]
    settings = {**config.to_dict(), "structures": structures.fingerprint()[:16]}
    began = time.monotonic()
    with work_folder(path_of("out", out), settings) as folder:
        log = RecordLog(folder.path / "labels.log")
        labels = {found.index: found for found in map(_Label.from_bytes, log.read())}
        if labels:
            tell(len(labels))

        def job(items: list[tuple[int, Structure]]) -> Job:
            """Structures that are labelled one after the other."""
            while items:
                records = yield label_some, (method, items, workers.seconds)
                log.append(records)
                labels.update((found.index, found) for found in map(_Label.from_bytes, records))
                items = items[len(records) :]
                tell(len(records))

        left = [(i, s) for i, s in enumerate(todo) if i not in labels]
        workers.run(job(left[k : k + _CHUNK]) for k in range(0, len(left), _CHUNK))
        good = [i for i in range(len(todo)) if np.isfinite(labels[i].energy)]
        failed = {i: cannot(method, todo[i], labels[i].why) for i in sorted(set(labels) - set(good))}
        if not good:
            raise GeomAttError(
                f"{method.calculator} failed for all {len(todo)} structures, at first: {failed[0]}. Check "
                "the structures, their `charge` and `multiplicity`, and the method."
            )
        summary = {
            "structures": len(good),
            "failed": list(failed),
            "reasons": list(failed.values()),
            "repeated_calculations": sum(found.failures for found in labels.values()),
            "seconds": round(time.monotonic() - began, 3),
            "made_by": method.made_by(config),
        }
        theory = method.theory
        dataset = Dataset.from_structures(
            (labels[i].applied(todo[i], theory) for i in good),
            name=structures.name,
            origin=method.origin(config),
        )
        folder.finish(dataset, summary)
    return LabelResult(dataset, Path(out), failed, summary)


@dataclass(frozen=True)
class _Label:
    index: int
    failures: int
    energy: float  # nan: the method failed
    forces: np.ndarray  # (N, 3)
    stress: np.ndarray | None = None  # (3, 3)
    why: str = ""  # the method failed

    def to_bytes(self) -> bytes:
        head = [self.index, self.failures, self.stress is not None, self.energy]
        if self.why:  # in place of forces
            return np.array(head, dtype="<f8").tobytes() + self.why.encode()
        stress = np.zeros(0) if self.stress is None else self.stress.reshape(-1)
        return np.concatenate([head, stress, self.forces.reshape(-1)]).astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, record: bytes) -> _Label:
        index, failures, has_stress, energy = np.frombuffer(record, "<f8", _HEAD).tolist()
        body = record[8 * _HEAD :]
        if np.isnan(energy):
            return cls(
                int(index), int(failures), energy, np.zeros((0, 3)), why=body.decode().strip("\0") or _FAILED
            )
        rest = np.frombuffer(body, dtype="<f8")
        stress = rest[:9].reshape(3, 3) if has_stress else None
        return cls(int(index), int(failures), energy, rest[9 * int(has_stress) :].reshape(-1, 3), stress)

    def applied(self, structure: Structure, theory: str) -> Structure:
        info = {**structure.info, "theory": theory}
        return replace(structure, energy=self.energy, forces=self.forces, stress=self.stress, info=info)


def label_some(method: Method, items: Sequence[tuple[int, Structure]], seconds: float) -> list[bytes]:
    """Labels of the first structures, as many as the time allows."""
    records: list[bytes] = []
    ends = time.monotonic() + seconds
    for index, structure in items:
        reference = Reference(method, structure)
        try:
            reference.fresh()
            energy, forces = reference(structure.positions)
            found = _Label(index, reference.failures, energy, forces, reference.stress())
        except NotConverged as error:
            nothing = np.zeros((0, 3))
            found = _Label(index, reference.failures, np.nan, nothing, why=str(error) or _FAILED)
        records.append(found.to_bytes())
        if time.monotonic() > ends:
            break
    return records
