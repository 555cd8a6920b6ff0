"""Physics: drift, hot dynamics, distances, a vibrational spectrum, a torsion and a million steps.

What a reader of a force-field paper asks of its models. Energies and forces of a reference are compared where
one can be computed: GFN2-xTB, with a model trained on its trajectory of ethanol that ships with the package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from geomatt.data import Dataset, Structure, collate, ethanol, random_split
from geomatt.errors import GeomAttError
from geomatt.model import Potential, fingerprint, load
from geomatt.reproduce.frame import (
    Drawing,
    Experiment,
    ExperimentSettings,
    Pieces,
    ProgressBar,
    provenance,
)
from geomatt.reproduce.inputs import described, load_md17, md17_model, unseen_frames
from geomatt.reproduce.physics_tables import (
    REFERENCE,
    dynamics_table,
    spectrum_figure,
    torsion_figure,
    xtb_table,
)
from geomatt.reproduce.published import left_table
from geomatt.reproduce.table import ResultTable
from geomatt.simulation import (
    BatchedDynamics,
    Coordinate,
    DynamicsConfig,
    Group,
    PotentialForces,
    RelaxSettings,
    Replica,
    ScanSettings,
    frame_histogram,
    relax,
    scan,
    velocity_spectrum,
)

KINDS = ("pair-s", "pair", "fast")  # the first that there is for a molecule, as in md17/aspirin:pair-s
CONFIGS = {
    "nve": DynamicsConfig(ensemble="nve", temperature_K=300.0, timestep_fs=0.5),
    "nvt": DynamicsConfig(ensemble="langevin", temperature_K=500.0, timestep_fs=0.5),
    "million": DynamicsConfig(ensemble="langevin", temperature_K=500.0, timestep_fs=0.5, interval=100),
}
STEPS = {"nve": 100_000, "nvt": 200_000, "million": 1_000_000}  # 50, 100 and 500 ps
QUICK_STEPS = {"nve": 200, "nvt": 200, "million": 200}
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


class Physics(Experiment):
    name = "physics"
    title = "Physics"
    description = (
        "Energy drift at 300 K, dynamics and distances at 500 K, a million steps, and against GFN2-xTB a "
        "torsion profile and a vibrational spectrum of ethanol."
    )
    parts: ClassVar[tuple[str, ...]] = (*STEPS, "xtb")

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        data, stand_in = load_md17(settings)
        pieces = Pieces(settings, self.name)
        rows: dict[str, dict[str, Any]] = {part: {} for part in STEPS}
        missing: dict[str, int] = {}
        for part in STEPS:
            for molecule, frames in data.items():
                if part == "million" and molecule != "ethanol":
                    continue
                found = _molecule(settings, pieces, progress, part, molecule, frames)
                if found is None:
                    missing[part] = missing.get(part, 0) + 1
                else:
                    rows[part][molecule] = found
        xtb = _against_xtb(settings, pieces, progress)
        if xtb is None:
            missing["xtb"] = 1
        return {
            "settings": {"steps": QUICK_STEPS if settings.quick else STEPS, "stand_in": stand_in},
            "data": {f"md17/{m}": described(d) for m, d in data.items()},
            "split": "starts: frames that no model was trained on",
            "rows": rows,
            "xtb": xtb,
            "missing": missing,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            dynamics_table(result),
            xtb_table(result["xtb"]),
            left_table(result["missing"], "geomatt reproduce physics --part {} --data DIR"),
        ]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        found = result["xtb"]
        if found is None:
            return []
        return [
            Drawing(
                "physics-torsion",
                f"Relaxed torsion C–C–O–H of ethanol: the model, and {REFERENCE} at the same geometries.",
                lambda: torsion_figure(found),
            ),
            Drawing(
                "physics-spectrum",
                f"Vibrational density of states of ethanol at 300 K, from velocities: model and {REFERENCE}.",
                lambda: spectrum_figure(found),
            ),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        sentences = []
        drifts = [row["drift_meV_per_atom_ps"] for row in result["rows"]["nve"].values()]
        if drifts:
            worst = max(drifts, key=abs)
            of = f"{len(drifts)} molecule{'s' if len(drifts) > 1 else ''}"
            sentences.append(f"The largest energy drift of {of} is {worst:+.2g} meV per atom and ps.")
        for row in result["rows"]["million"].values():
            end = "intact" if not row["failure"] else f"stopped: {row['failure']}"
            sentences.append(f"{row['steps']:,} steps of ethanol at 500 K: {end}.")
        if result["xtb"] is not None:
            found = result["xtb"]
            torsion = found["torsion"]
            halves = 100 * found["spectrum"]["halves_reference"]
            sentences.append(
                f"Torsion of ethanol against {REFERENCE}: RMS difference {1000 * torsion['rms_eV']:.1f} meV, "
                f"barrier {1000 * torsion['barrier_model_eV']:.0f} and "
                f"{1000 * torsion['barrier_reference_eV']:.0f} meV. Spectra overlap by "
                f"{100 * found['spectrum']['overlap']:.0f} %; those of two halves of the {REFERENCE} runs "
                f"by {halves:.0f} %."
            )
        return " ".join(sentences) or "Not run yet."


# --- molecules of MD17 -------------------------------------------------------------------------------------


def _molecule(
    settings: ExperimentSettings,
    pieces: Pieces,
    progress: ProgressBar,
    part: str,
    molecule: str,
    frames: Dataset,
) -> Any:
    """One simulation of a molecule; None if it is not finished."""
    kind, model = next(
        ((k, m) for k in KINDS if (m := md17_model(settings, molecule, k)) is not None), ("", None)
    )
    if model is None:
        return None
    steps = (QUICK_STEPS if settings.quick else STEPS)[part]
    inputs = {
        "model": fingerprint(model),
        "data": frames.fingerprint(),
        "config": CONFIGS[part].to_dict(),
        "steps": steps,
    }
    name = f"{part}-{molecule}"
    found = pieces.find(name, inputs)
    if found is not None or not settings.wants(part) or settings.out_of_time:
        return found
    started = time.monotonic()
    start = unseen_frames(model, frames, 1, settings.seed)[0]
    dynamics = _dynamics(model.to(settings.device), [start], CONFIGS[part])
    done = _advance(dynamics, steps, settings, name, progress)
    if not done:
        return None
    outcome = dynamics.outcome()
    reference = frame_histogram(frames.positions.reshape(len(frames), -1, 3))
    row = outcome.rows()[0]
    seconds = time.monotonic() - started
    value = {
        "kind": kind,
        "steps": dynamics.steps,
        **{key: row[key] for key in ("survived_ps", "failure", "mean_temperature_K", "wall_share")},
        "drift_meV_per_atom_ps": row["drift_meV_per_atom_ps"],
        "highest_force_eV_per_A": row["highest_force_eV_per_A"],
        "histogram_error": float(outcome.histogram_error(reference)[0]),
    }
    plain = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in value.items()}
    return pieces.put(name, inputs, plain, provenance(settings, seconds))


def _dynamics(
    model: Potential, starts: list[Structure], config: DynamicsConfig, **options: Any
) -> BatchedDynamics:
    replicas = [Replica.of(start, seed, model.domain) for seed, start in enumerate(starts)]
    forces = PotentialForces(model, collate(starts, model.dtype, model.device))
    group = Group(replicas, forces)
    return BatchedDynamics([group], config, device=model.device, capture=forces.capturable, **options)


def _advance(
    dynamics: BatchedDynamics, steps: int, settings: ExperimentSettings, name: str, progress: ProgressBar
) -> bool:
    """Run to `steps`, from where an earlier call stopped; False if the time is over before.

    Saved once a minute, so that an interruption costs no more than that.
    """
    checkpoint = settings.work("physics") / f"{name}.safetensors"
    if checkpoint.is_file():
        dynamics.restore(checkpoint)
    saved = time.monotonic()
    with progress(f"dynamics, {name}", steps) as show:
        show(dynamics.steps)
        while dynamics.steps < steps and dynamics.alive:
            part = min(2000, steps - dynamics.steps)
            dynamics.advance(part)
            show(part)
            if settings.out_of_time or time.monotonic() - saved > 60.0:
                dynamics.save(checkpoint)
                saved = time.monotonic()
            if settings.out_of_time:
                return False
    checkpoint.unlink(missing_ok=True)
    return True


# --- ethanol against GFN2-xTB ------------------------------------------------------------------------------


def _against_xtb(settings: ExperimentSettings, pieces: Pieces, progress: ProgressBar) -> Any:
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
        with progress("training on GFN2-xTB", config.epochs) as advance:
            train(
                data,
                split,
                config,
                folder,
                resume=(folder / "checkpoint.safetensors").exists(),
                callback=lambda seen: advance(1),
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
        "model": _dynamics(model, starts, config, keep_frames=True),
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


EXPERIMENT = Physics()
