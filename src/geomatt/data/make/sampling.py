"""Sample the motion of a molecule with a reference method, and write a labelled data set."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.arguments import path_of, require
from geomatt.data.dataset import Dataset
from geomatt.data.make.config import NOT_COMPARED, SampleConfig
from geomatt.data.make.folder import Progress, work_folder
from geomatt.data.make.intact import Bonding
from geomatt.data.make.log import RecordLog
from geomatt.data.make.method import Method, probe
from geomatt.data.make.starts import prepare, read_start
from geomatt.data.make.walker import (
    BROKEN,
    DIVERGED,
    EQUILIBRATING,
    FAILED,
    MOST_STARTS,
    Start,
    Walk,
    WalkerFrame,
    walk,
)
from geomatt.data.make.workers import Job, Workers, single
from geomatt.data.structures import Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError
from geomatt.files import WriteError


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
    tell: Progress = progress or (lambda frames: None)
    settings = {**config.to_dict(), "molecule": fingerprint(molecule)}
    method = Method(config.calculator, config.arguments)
    began = time.monotonic()
    with work_folder(path_of("out", out), settings, NOT_COMPARED) as folder:
        workers.run([single(probe, method, molecule[0])])
        stored = [(config, s, folder.path / f"start-{i}.npz") for i, s in enumerate(molecule)]
        workers.run(prepare(*start) for start in stored)
        starts = [read_start(*start) for start in stored]
        walkers = [
            Walker(Walk(starts[i % len(starts)], config, i), RecordLog(folder.path / f"walker-{i}.log"))
            for i in range(config.walkers)
        ]
        run = _Sampling(
            config, method, molecule, starts, walkers, name or formula(molecule[0].numbers), began
        )
        if any(walker.frames for walker in walkers):  # in one call: they were not made at this speed
            tell(sum(walker.progress(walker.frames) for walker in walkers))
        try:
            workers.run(walker.job(workers.seconds, tell) for walker in walkers)
        except WriteError:
            raise
        except GeomAttError as error:
            raise GeomAttError(f"{error}{folder.rescue(run.dataset(), run.summary())}") from error
        dataset, summary = run.dataset(), run.summary()
        assert dataset is not None
        folder.finish(dataset, summary)
    return SampleResult(dataset, Path(out), summary)


def total_frames(config: SampleConfig) -> int:
    """Frames that `sample` computes if nothing falls apart."""
    return config.frames + config.walkers * config.equilibration_frames


def frames_word(config: SampleConfig) -> str:
    """What `total_frames` counts, for a progress bar."""
    return "frames with equilibration" if config.equilibration_frames else "frames"


class Walker:
    """The frames of a walker so far, with the log that holds them."""

    def __init__(self, walk: Walk, log: RecordLog) -> None:
        self.walk, self.log = walk, log
        self.frames = [WalkerFrame.from_bytes(record) for record in log.read()]

    @property
    def kept(self) -> list[WalkerFrame]:
        """Frames of the data set."""
        config = self.walk.config
        return [f for f in self.frames if f.counts(config.broken)][: config.share(self.walk.walker)]

    def progress(self, frames: Sequence[WalkerFrame]) -> int:
        """The number of these frames that equilibrate or belong to the data set."""
        return sum(f.status == EQUILIBRATING or f.counts(self.walk.config.broken) for f in frames)

    def job(self, seconds: float, tell: Progress) -> Job:
        """Walk until all frames are there."""
        while (wanted := self.walk.config.share(self.walk.walker) - len(self.kept)) > 0:
            self._refuse_hopeless()
            last = self.frames[-1] if self.frames else None
            records = yield walk, (self.walk, last, len(self.frames), wanted, seconds)
            self.log.append(records)
            new = [WalkerFrame.from_bytes(record) for record in records]
            self.frames += new
            tell(self.progress(new))

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


@dataclass(frozen=True)
class _Sampling:
    """The state of a call of `sample`."""

    config: SampleConfig
    method: Method
    molecule: Sequence[Structure]
    starts: Sequence[Start]
    walkers: Sequence[Walker]
    name: str
    began: float

    def dataset(self) -> Dataset | None:
        """The frames that count, walker after walker; None if there are none."""
        first, theory = self.starts[0].structure, self.method.theory
        found = [
            replace(
                first,
                positions=frame.positions,
                energy=frame.energy,
                forces=frame.forces,
                info={"walker": w.walk.walker, "temperature": w.walk.temperature, "theory": theory},
            )
            for w in self.walkers
            for frame in w.kept
        ]
        if not found:
            return None
        return Dataset.from_structures(found, name=self.name, origin=self.method.origin(self.config))

    def summary(self) -> dict[str, Any]:
        """For the JSON file beside the data."""
        frames = [f for walker in self.walkers for f in walker.frames]
        kept = [f for walker in self.walkers for f in walker.kept]
        temperatures: dict[str, list[float]] = {}
        for walker in self.walkers:
            measured = [f.temperature for f in walker.kept]
            temperatures.setdefault(f"{walker.walk.temperature:g}", []).extend(measured)
        return {
            "name": self.name,
            "formula": formula(self.molecule[0].numbers),
            "frames": len(kept),
            "starts": len(self.starts),
            "broken": sum(f.status in (BROKEN, DIVERGED) for f in frames),
            "not_converged": sum(f.status == FAILED for f in frames),
            "repeated_calculations": sum(f.failures for f in frames),
            "mean_temperature_K": {t: float(np.mean(v)) for t, v in temperatures.items() if v},
            "energy_spread_eV": float(np.std([f.energy for f in kept])) if kept else None,
            "force_rms_eV_per_A": float(np.sqrt(np.mean([f.forces**2 for f in kept]))) if kept else None,
            "rearranged_starts": [
                i
                for i, (before, start) in enumerate(zip(self.molecule, self.starts, strict=True))
                if _rearranged(before, start.structure)
            ],
            "seconds": round(time.monotonic() - self.began, 3),
            "made_by": self.method.made_by(self.config),
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
