"""Ethanol against GFN2-xTB: a torsion and a vibrational spectrum of a model trained on its trajectory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from geomatt.data import Dataset, ethanol, random_split
from geomatt.errors import GeomAttError
from geomatt.model import Potential, load
from geomatt.reproduce.frame import ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.physics_molecules import batched
from geomatt.reproduce.physics_tables import REFERENCE
from geomatt.reproduce.study import STEPS, progress_teller
from geomatt.simulation import (
    BatchedDynamics,
    Coordinate,
    DynamicsConfig,
    Group,
    RelaxSettings,
    Replica,
    ScanSettings,
    relax,
    scan,
    velocity_spectrum,
)

HYDROXYL = Coordinate("torsion", (0, 1, 2, 3))  # C–C–O–H of the shipped trajectory of ethanol
POINTS, QUICK_POINTS = 25, 5
SPECTRUM_STEPS, QUICK_SPECTRUM_STEPS = 6000, 160  # of 0.5 fs
SPECTRUM_REPLICAS = 8
EVERY = 6  # steps between velocities: 3 fs resolve 5500 cm⁻¹
TRAINED = {
    "model": "pair",
    "network": {"channels": 64},
    "train": 800,
    "val": 200,
    "test": 1000,
    "epochs": 300,
    "patience": 0,
}


def against_xtb(settings: ExperimentSettings, pieces: Pieces, progress: ProgressBar) -> Any:
    """Torsion profile and spectrum of a model trained on GFN2-xTB; None if not run."""
    points, steps = (QUICK_POINTS, QUICK_SPECTRUM_STEPS) if settings.quick else (POINTS, SPECTRUM_STEPS)
    data = ethanol()
    trained = {**TRAINED, "epochs": 2} if settings.quick else TRAINED
    inputs = {
        "data": data.fingerprint(),
        "trained": trained,
        "torsion": HYDROXYL.atoms,
        "points": points,
        "steps": steps,
        "replicas": SPECTRUM_REPLICAS,
    }
    found = pieces.find("xtb", inputs)
    if found is not None or not settings.wants("xtb") or settings.out_of_time:
        return found
    try:
        import tblite.ase  # noqa: F401
    except ImportError as error:
        if "xtb" in settings.parts:
            raise GeomAttError(
                'The part xtb needs tblite. Install it with: pip install "geomatt[xtb]"'
            ) from error
        return None

    def compute() -> Any:
        model = _trained(data, trained, settings, progress)
        return {
            "torsion": _torsion(model, data, points, progress),
            "spectrum": _spectra(model, data, steps, progress),
        }

    return pieces.get("xtb", inputs, compute)


def _trained(
    data: Dataset, values: Mapping[str, Any], settings: ExperimentSettings, progress: ProgressBar
) -> Potential:
    """A model of the shipped GFN2-xTB trajectory; kept, so that an interrupted run does not train again."""
    from geomatt.training import resolve, train

    folder = settings.work("physics") / "ethanol-xtb"
    config = resolve({"data": "embedded/ethanol", **values, "device": settings.device})
    split = random_split(len(data), config.train or 0, config.val or 0, config.test or 0, seed=settings.seed)
    finished = folder / "finished"
    if not finished.exists():
        with progress("training on GFN2-xTB", STEPS) as advance:
            train(
                data,
                split,
                config,
                folder,
                resume=(folder / "checkpoint.safetensors").exists(),
                callback=progress_teller(advance),
            )
        finished.touch()
    return load(folder, settings.device).members[0]


def _torsion(model: Potential, data: Dataset, points: int, progress: ProgressBar) -> dict[str, Any]:
    """The relaxed profile of the model, with GFN2-xTB at its geometries."""
    energies = data.energies
    assert energies is not None
    exact = model.to(dtype="float64")
    lowest = relax(exact, data[int(energies.argmin())], RelaxSettings(fmax=0.002)).end
    with progress("torsion", points) as advance:
        found = scan(exact, lowest, HYDROXYL, ScanSettings(points=points, relaxed=True), progress=advance)
    reference = np.array([_xtb(s.numbers)(s.positions)[0] for s in found.structures])
    mine = found.energies - found.energies.min()
    theirs = reference - reference.min()
    model.to(dtype="float32")
    return {
        "values": found.values,
        "model_eV": mine,
        "reference_eV": theirs,
        "rms_eV": float(np.sqrt(((mine - theirs) ** 2).mean())),
        "barrier_model_eV": float(mine.max()),
        "barrier_reference_eV": float(theirs.max()),
    }


def _spectra(model: Potential, data: Dataset, steps: int, progress: ProgressBar) -> dict[str, Any]:
    """Spectra of the model and of GFN2-xTB from the same starts at constant energy."""
    rng = np.random.default_rng(0)
    starts = [data[int(i)] for i in rng.choice(len(data), SPECTRUM_REPLICAS, replace=False)]
    config = DynamicsConfig(ensemble="nve", temperature_K=300.0, timestep_fs=0.5, interval=EVERY)
    steps = steps // EVERY * EVERY
    calculators = [_xtb(s.numbers) for s in starts]

    def reference(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = [c(p) for c, p in zip(calculators, positions.cpu().numpy(), strict=True)]
        energy = torch.tensor([e for e, _ in found], dtype=torch.float64)
        return energy.to(positions.device), torch.from_numpy(np.stack([f for _, f in found])).to(positions)

    replicas = [Replica.of(start, seed) for seed, start in enumerate(starts)]
    runs = {
        "model": batched(model, starts, config, keep_frames=True),
        "reference": BatchedDynamics([Group(replicas, reference)], config, keep_frames=True),
    }
    found: dict[str, Any] = {}
    for name, dynamics in runs.items():
        velocities: list[np.ndarray] = []

        def keep(part: Any, velocities: list[np.ndarray] = velocities) -> None:
            velocities.append(part.frames[:, 1])

        with progress(f"spectrum, {name}", steps) as advance:
            outcome = dynamics.run(steps, progress=advance, on_part=keep)
        every = np.concatenate(velocities)
        half = SPECTRUM_REPLICAS // 2
        spectra = [
            velocity_spectrum(starts[0].numbers, v, EVERY * config.timestep_fs)[1]
            for v in (every, every[:, :half], every[:, half:])
        ]
        found[name], found[f"{name}_halves"] = spectra[0], float(np.minimum(*spectra[1:]).sum())
        found[f"{name}_drift"] = float(np.abs(outcome.drift).max())
    overlap = float(np.minimum(found["model"], found["reference"]).sum())
    grid = np.arange(len(found["model"]), dtype=np.float64)  # cm⁻¹
    high = grid > 3300
    peaks = {name: float((grid * found[name])[high].sum() / found[name][high].sum()) for name in runs}
    coarse = slice(None, None, 5)
    return {
        "wavenumbers": grid[coarse],
        "model": found["model"][coarse].round(9),
        "reference": found["reference"][coarse].round(9),
        "overlap": overlap,
        "halves_model": found["model_halves"],
        "halves_reference": found["reference_halves"],
        "stretch_model": peaks["model"],
        "stretch_reference": peaks["reference"],
        "drift_model": found["model_drift"],
        "drift_reference": found["reference_drift"],
        "picoseconds": steps * config.timestep_fs / 1000.0,
        "replicas": SPECTRUM_REPLICAS,
    }


def _xtb(numbers: np.ndarray) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Energy (eV) and forces (eV/Å) of positions with GFN2-xTB."""
    from ase import Atoms
    from tblite.ase import TBLite

    atoms = Atoms(numbers, np.zeros((len(numbers), 3)))
    atoms.calc = TBLite(method=REFERENCE, verbosity=0)

    def evaluate(positions: np.ndarray) -> tuple[float, np.ndarray]:
        atoms.positions[:] = positions
        return float(atoms.get_potential_energy()), atoms.get_forces()

    return evaluate
