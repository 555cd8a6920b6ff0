"""Sample the motion of a molecule with a reference method, and write a labelled data set."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.arguments import path_of, require
from geomatt.data.files import atomic_output
from geomatt.data.make.config import NOT_COMPARED, SampleConfig
from geomatt.data.make.folder import Progress, work_folder
from geomatt.data.make.intact import Bonding
from geomatt.data.make.log import RecordLog
from geomatt.data.make.method import Method, ProbeJob
from geomatt.data.make.starts import make_start
from geomatt.data.make.walker import BROKEN, DIVERGED, FAILED, MOST_STARTS, Frame, Start, Walk, walk
from geomatt.data.make.workers import Workers
from geomatt.data.structures import Dataset, Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError


@dataclass(frozen=True)
class SampleResult:
    """A sampled data set and what happened on the way."""

    dataset: Dataset
    path: Path
    summary: dict[str, Any]  # as in the JSON file beside the data


def sample(
    molecule: Sequence[Structure],
    config: SampleConfig,
    out: str | os.PathLike[str],
    *,
    workers: Workers | None = None,
    progress: Progress | None = None,
    name: str = "",
) -> SampleResult:
    """Run dynamics from the conformers of `molecule` and write `out` (npz or extxyz) with a JSON summary.

    Finished frames are kept in `OUT.parts`: the same call continues after any interruption, with the same
    result. `progress` is called with the number of frames done since the last call, those that equilibrate
    included (`total_frames`).
    """
    for structure in molecule if isinstance(molecule, Sequence) else [molecule]:
        require("molecule", structure, Structure, 'one of read_molecule("CCO")')
    require("settings", config, SampleConfig, "SampleConfig(frames=1000)")
    workers = workers or Workers()
    settings = {**config.to_dict(), "molecule": fingerprint(molecule)}
    method = Method(config.calculator, config.arguments)
    began = time.monotonic()
    with work_folder(path_of("out", out), settings, NOT_COMPARED) as folder:
        workers.run([ProbeJob(method, molecule[0])])
        starts = [
            _StartJob(config, structure, folder.path / f"start-{i}.npz")
            for i, structure in enumerate(molecule)
        ]
        workers.run(starts)
        walkers = [
            _WalkerJob(
                Walk(starts[i % len(starts)].start(), config, i),
                RecordLog(folder.path / f"walker-{i}.log"),
                workers.seconds,
                progress,
            )
            for i in range(config.walkers)
        ]

        def summary() -> dict[str, Any]:
            return _summary(config, method, [s.start() for s in starts], molecule, walkers, name, began)

        try:
            workers.run(walkers)
        except GeomAttError as error:
            kept = folder.rescue(_dataset(config, method, walkers, summary(), name), summary())
            raise GeomAttError(f"{error}{kept}") from error
        found = summary()
        dataset = _dataset(config, method, walkers, found, name)
        assert dataset is not None
        folder.finish(dataset, found)
    return SampleResult(dataset, Path(out), found)


def total_frames(config: SampleConfig) -> int:
    """Frames that `sample` computes if nothing falls apart."""
    return config.frames + config.walkers * config.equilibration_frames


class _StartJob:
    """Prepares one start, or reads it."""

    def __init__(self, config: SampleConfig, structure: Structure, path: Path) -> None:
        self.config, self.structure, self.path = config, structure, path

    def task(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        return None if self.path.is_file() else (make_start, (self.config, self.structure))

    def take(self, result: Start) -> None:
        found = result.structure
        arrays = {"positions": found.positions, "energy": np.array(found.energy), "forces": found.forces}
        if result.hessian is not None:
            arrays["hessian"] = result.hessian
        with atomic_output(self.path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]

    def start(self) -> Start:
        with np.load(self.path, allow_pickle=False) as stored:
            structure = replace(
                self.structure,
                positions=stored["positions"],
                energy=float(stored["energy"]),
                forces=stored["forces"],
            )
            return Start(
                structure, self.config.relax, stored["hessian"] if "hessian" in stored.files else None
            )


class _WalkerJob:
    """A walker with its log."""

    def __init__(self, walk: Walk, log: RecordLog, seconds: float, progress: Progress | None) -> None:
        self.walk, self.log, self.seconds, self.progress = walk, log, seconds, progress
        self.share = walk.config.share(walk.walker)
        self.frames = [Frame.from_bytes(record) for record in log.read()]
        self._report(self.frames)

    @property
    def kept(self) -> list[Frame]:
        """Frames of the data set."""
        return [f for f in self.frames if f.counts(self.walk.config.broken)][: self.share]

    def task(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        wanted = self.share - len(self.kept)
        if wanted <= 0:
            return None
        self._refuse_hopeless()
        last = self.frames[-1] if self.frames else None
        return walk, (self.walk, last, len(self.frames), wanted, self.seconds)

    def take(self, result: list[bytes]) -> None:
        self.log.append(result)
        new = [Frame.from_bytes(record) for record in result]
        self.frames += new
        self._report(new)

    def _report(self, frames: Sequence[Frame]) -> None:
        done = sum(f.status not in (BROKEN, FAILED, DIVERGED) for f in frames)
        if self.progress is not None and done:
            self.progress(done)

    def _refuse_hopeless(self) -> None:
        """Raise an error if the walker cannot go on."""
        config, faults = self.walk.config, 0
        for frame in reversed(self.frames):
            if frame.counts(config.broken):
                break
            faults += frame.begins_anew(config.broken)
        if not faults:
            return
        last = next(f for f in reversed(self.frames) if f.begins_anew(config.broken))
        where = f"at {self.walk.temperature:g} K"
        fault = "an atom moved too far in one step"
        if last.status == BROKEN:
            fault = Bonding.of(self.walk.start.structure).fault(last.positions)
        if config.broken == "stop" and last.status != FAILED:
            raise GeomAttError(f"The molecule fell apart {where} ({fault}). Use a lower `temperature`.")
        if faults < MOST_STARTS:
            return
        if last.status == FAILED:
            raise GeomAttError(
                f"{config.calculator} failed {faults} times in a row {where}: its iterations do not "
                "converge. Use a lower `temperature` or a shorter `timestep`, and check `charge` and "
                "`multiplicity`."
            )
        raise GeomAttError(
            f"The molecule fell apart {faults} times in a row {where} (last: {fault}). Use a lower "
            "`temperature` or a shorter `timestep`, or keep such frames with `broken` keep."
        )


def _dataset(
    config: SampleConfig, method: Method, walkers: Sequence[_WalkerJob], summary: dict[str, Any], name: str
) -> Dataset | None:
    """The frames that count, walker after walker; None if there are none."""
    frames = [(job.walk.walker, frame) for job in walkers for frame in job.kept]
    if not frames:
        return None
    first = walkers[0].walk.start.structure
    return Dataset.from_structures(
        (
            replace(
                first,
                positions=frame.positions,
                energy=frame.energy,
                forces=frame.forces,
                info={
                    "walker": walker,
                    "temperature": config.temperature_of(walker),
                    "theory": method.theory,
                },
            )
            for walker, frame in frames
        ),
        name=name or formula(first.numbers),
        origin={"theory": method.theory, "made_by": json.dumps(summary["made_by"]), "energy_unit": "eV"},
    )


def _summary(
    config: SampleConfig,
    method: Method,
    starts: Sequence[Start],
    molecule: Sequence[Structure],
    walkers: Sequence[_WalkerJob],
    name: str,
    began: float,
) -> dict[str, Any]:
    from geomatt import __version__

    frames = [f for job in walkers for f in job.frames]
    kept = [f for job in walkers for f in job.kept]
    changed = [i for i, s in enumerate(starts) if _rearranged(molecule[i], s.structure)]
    temperatures: dict[str, list[float]] = {}
    for job in walkers:
        temperatures.setdefault(f"{job.walk.temperature:g}", []).extend(f.temperature for f in job.kept)
    return {
        "name": name or formula(starts[0].structure.numbers),
        "formula": formula(starts[0].structure.numbers),
        "frames": len(kept),
        "starts": len(starts),
        "broken": sum(f.status in (BROKEN, DIVERGED) for f in frames),
        "not_converged": sum(f.status == FAILED for f in frames),
        "repeated_calculations": sum(f.failures for f in frames),
        "mean_temperature_K": {t: float(np.mean(v)) for t, v in temperatures.items() if v},
        "energy_spread_eV": float(np.std([f.energy for f in kept])) if kept else None,
        "force_rms_eV_per_A": float(np.sqrt(np.mean([f.forces**2 for f in kept]))) if kept else None,
        "rearranged_starts": changed,
        "seconds": round(time.monotonic() - began, 3),
        "made_by": {"geomatt": __version__, "method": method.describe(), "settings": config.to_dict()},
    }


def _rearranged(before: Structure, after: Structure) -> bool:
    """True if relaxing changed which atoms are bonded."""
    return bool((Bonding.of(before).bonds != Bonding.of(after).bonds).any())


def fingerprint(molecule: Sequence[Structure]) -> str:
    """A short hash of the structures to start from."""
    digest = hashlib.sha256()
    for s in molecule:
        digest.update(s.numbers.tobytes() + s.positions.tobytes() + f"{s.charge} {s.multiplicity}".encode())
    return digest.hexdigest()[:16]
