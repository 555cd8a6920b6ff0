"""Settings of sampling and labelling."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from geomatt.errors import GeomAttError
from geomatt.settings import check_not_negative, check_types, setting

METHOD, START, MOTION, LENGTH = "Reference method", "Start", "Motion", "Length"
NOT_COMPARED = ("frames", "walkers")  # may differ when a run is continued: frames do not depend on them


@dataclass(frozen=True)
class MethodConfig:
    """The reference method."""

    calculator: str = setting(
        "GFN2-xTB",
        "GFN2-xTB, GFN1-xTB, or any ASE calculator by import path, such as mace.calculators:mace_off",
        group=METHOD,
    )
    arguments: dict[str, Any] = setting(
        None,
        "keyword argument of the calculator: accuracy=0.1, model=small",
        group=METHOD,
        flag="--argument",
        example="accuracy=0.1",
    )
    charge: int | None = setting(None, "total charge; what the input says by default, else 0", group=METHOD)
    multiplicity: int | None = setting(
        None,
        "spin multiplicity 2S + 1; what the input says by default, else the lowest",
        group=METHOD,
        least=1,
    )

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "arguments", dict(self.arguments or {}))
        if not self.calculator:
            raise GeomAttError("`calculator` is empty. Use GFN2-xTB, GFN1-xTB or an import path.")

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        values = dataclasses.asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


@dataclass(frozen=True)
class SampleConfig(MethodConfig):
    """Settings for the sampling of a molecule."""

    conformers: int = setting(
        1, "conformers made of a SMILES string; walkers take turns", group=START, least=1
    )
    relax: bool = setting(True, "relax the start with the method first", group=START)

    how: str = setting(
        "dynamics",
        "dynamics: with a Langevin thermostat; modes: displacements along normal modes",
        group=MOTION,
        choices=("dynamics", "modes"),
    )
    temperature: tuple[float, ...] = setting(
        (500.0,), "temperature in K; with several, such as 300,1000, walkers take turns", group=MOTION
    )
    timestep: float = setting(0.5, "length of a step in fs", group=MOTION)
    friction: float = setting(0.01, "coupling to the thermostat, 1/fs", group=MOTION)
    broken: str = setting(
        "drop",
        "frames of a molecule that fell apart: drop them and start that walker anew, keep them, or stop",
        group=MOTION,
        choices=("drop", "keep", "stop"),
    )

    frames: int = setting(1000, "labelled frames in all", group=LENGTH, least=1)
    walkers: int = setting(4, "independent trajectories that share them", group=LENGTH, least=1)
    stride: int = setting(20, "steps between frames", group=LENGTH, least=1)
    equilibrate: float = setting(500.0, "time before the first frame of a walker in fs", group=LENGTH)
    seed: int = setting(0, "seed of velocities and random forces", group=LENGTH, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature or not all(0 < t < math.inf for t in self.temperature):
            raise GeomAttError(f"`temperature` must be positive, not {_listed(self.temperature)}.")
        if not 0 < self.timestep <= 10:
            raise GeomAttError(
                f"`timestep` must be above 0 and at most 10 fs, not {self.timestep:g}. Molecules with "
                "hydrogen need about 0.5 fs."
            )
        check_not_negative(self, "friction", "equilibrate")

    @property
    def equilibration_frames(self) -> int:
        """Strides that a walker runs before its first frame."""
        if self.how == "modes":
            return 0
        return math.ceil(self.equilibrate / (self.timestep * self.stride))

    def share(self, walker: int) -> int:
        """Frames wanted of a walker."""
        return self.frames // self.walkers + (walker < self.frames % self.walkers)

    def temperature_of(self, walker: int) -> float:
        return self.temperature[walker % len(self.temperature)]


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values) or "nothing"
