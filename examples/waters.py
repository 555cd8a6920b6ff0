"""Water: a network trained on clusters of one to eight molecules, used on twenty and on sixty-four.

python examples/waters.py --out waters

Labels are GFN2-xTB's. With a radius nothing in the network depends on the number of atoms. Two models that
differ by seed are tested on trajectories of the method that they were not trained on, and on frames of their
own dynamics. Another call with --data DIR and another --radius tests on the same frames. Everything goes to
OUT/waters.json; what is there is not computed again.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

import geomatt
from geomatt import Dataset, Split, Structure, read, resolve
from geomatt.data import concatenate
from geomatt.data.make import SampleConfig, label, sample
from geomatt.data.make.config import MethodConfig
from geomatt.simulation import MDSettings, RelaxSettings, relax, run_dynamics
from geomatt.training import train_members

METHOD = "GFN2-xTB"
WATER = np.array([[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]])
NEAREST, VOLUME = 1.7, 30.0  # Å between atoms of different molecules at the start; Å³ of a molecule

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6, 7, 8], help="to train on")
parser.add_argument("--large", type=int, nargs="+", default=[20, 64], help="to use the model on")
parser.add_argument("--frames", type=int, default=100, help="of each size, of ten trajectories")
parser.add_argument("--tests", type=int, default=10, help="frames of each size to test on")
parser.add_argument("--equilibrate", type=float, default=300.0, help="fs before the first frame")
parser.add_argument("--radius", type=float, default=5.0)
parser.add_argument("--channels", type=int, default=64)
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--energy-weight", type=float, default=0.1, help="of energies in the loss")
parser.add_argument("--members", type=int, default=2, help="models that differ by seed")
parser.add_argument("--time", type=float, default=5.0, help="of dynamics in ps")
parser.add_argument("--out", type=Path, default=Path("waters"))
parser.add_argument("--data", type=Path, help="folder of labelled frames (OUT)")
given = parser.parse_args()
folder = given.data or given.out
for path in (folder, given.out):
    path.mkdir(parents=True, exist_ok=True)


def cluster(count: int, rng: np.random.Generator) -> Structure:
    """Molecules at random places and orientations in a ball."""
    radius, atoms = (3 * VOLUME * count / (4 * np.pi)) ** (1 / 3), np.zeros((0, 3))
    while len(atoms) < 3 * count:
        place = rng.uniform(-radius, radius, 3)
        new = Rotation.random(random_state=rng).apply(WATER) + place
        apart = np.linalg.norm(atoms[:, None] - new, axis=-1)
        if np.linalg.norm(place) < radius and apart.min(initial=9.0) > NEAREST:
            atoms = np.concatenate([atoms, new])
        radius *= 1.0005  # so that it ends
    return Structure(np.array([8, 1, 1] * count), atoms)


def sampled(count: int, frames: int, walkers: int) -> Dataset:
    """Trajectories of the method, at 300 and 450 K in turns."""
    path, rng = folder / f"sampled-{count}.npz", np.random.default_rng(count)
    if not path.is_file():
        config = SampleConfig(
            METHOD, frames=frames, walkers=walkers, relax=False, temperature=(300.0, 450.0), stride=40,
            friction=0.02, equilibrate=given.equilibrate, seed=count,
        )  # fmt: skip
        sample([cluster(count, rng) for _ in range(walkers)], config, path, name=f"{count} waters")
    return read(path)


# The last two of ten trajectories of each size test, and one of twenty of the other frames validates.
parts = [sampled(count, given.frames, 10) for count in given.sizes]
data = concatenate(parts)
first = np.concatenate([np.arange(len(part)) < 0.8 * len(part) for part in parts])
chosen = np.random.default_rng(0).permutation(np.flatnonzero(first))
validation = max(1, len(chosen) // 20)
split = Split(chosen[validation:], chosen[:validation], np.flatnonzero(~first))
# Forces do not tell how the energies of clusters of different sizes compare: energies weigh more than usual.
config = resolve(
    {"model": "pair", "network": {"channels": given.channels, "radius": given.radius}, "epochs": given.epochs,
     "learning_rate": 3e-3, "members": given.members, "train": len(split.train), "val": validation,
     "rho": given.energy_weight}
)  # fmt: skip
finished = (given.out / "model" / "config.toml").is_file()
results = train_members(data, [split] * given.members, config, given.out / "model", resume=finished)
models = [result.potential for result in results]

# Dynamics of the first model, without walls, from relaxed random clusters; frames of it are then labelled.
dynamics, own = {}, {}
for count in (max(given.sizes), *given.large):
    path, report = folder / f"own-{count}.npz", folder / f"dynamics-{count}.json"
    if not path.is_file():
        rough = RelaxSettings(fmax=0.3, steps=200, optimiser="fire")
        start = relax(models[0], cluster(count, np.random.default_rng(count)), rough)
        settings = MDSettings(time=given.time, temperature=300.0, walls=False)
        place = given.out / f"md-{count}"
        again = (place / "restart.safetensors").is_file()
        run = run_dynamics(models[0], start.end, settings, place, resume=again)
        report.write_text(json.dumps({"steps": run.steps, **run.outcome.rows()[0]}, default=float))
        frames = read(run.folder / "trajectory.extxyz")
        late = np.linspace(len(frames) // 5, len(frames) - 1, given.tests).astype(int)
        label(frames.select(np.unique(late)), MethodConfig(METHOD), path)
    own[count], dynamics[count] = read(path), json.loads(report.read_text())

tests = {f"{given.sizes[0]} to {given.sizes[-1]}, sampled": data.select(split.test)}
tests |= {f"{given.large[0]}, sampled": sampled(given.large[0], given.tests, 2)}
tests |= {f"{count}, own dynamics": frames for count, frames in own.items()}
rows = []
for name, frames in tests.items():
    molecules = np.array([len(frame) // 3 for frame in frames])
    found = [geomatt.evaluate(model, frames) for model in models]
    errors = [1e3 * (each.energies - frames.energies) / molecules for each in found]
    spread = 1e3 * np.std([each.forces for each in found], axis=0).mean()
    rows.append(
        {
            "clusters": name,
            "frames": len(frames),
            "energy_mae": [float(np.abs(error).mean()) for error in errors],  # meV per molecule
            "energy_shift": [float(error.mean()) for error in errors],
            "force_mae": [1e3 * each.overall.forces_mae for each in found],  # meV/Å
            "force_spread": float(spread),  # between the models
        }
    )
    print(f"waters {name}: {rows[-1]['energy_mae'][0]:.2f} meV per molecule, ", end="")
    print(f"forces {rows[-1]['force_mae'][0]:.1f} meV/Å")
for count, run in dynamics.items():
    print(f"{count} waters, {run['survived_ps']:g} ps: {run['failure'] or 'intact'}, ", end="")
    print(f"{run['mean_temperature_K']:.0f} K, drift {run['drift_meV_per_atom_ps']:.4f} meV per atom and ps")
record = models[0].record
about = {"method": METHOD, "data": record["data"]["fingerprint"], "seed": config.seed, "radius": given.radius}
about |= {"train": len(split.train), "val": validation, "epochs": given.epochs, "channels": given.channels}
about |= {"energy_weight": given.energy_weight}
about |= {"commit": record["commit"], "hardware": record["hardware"], "members": given.members}
content = {**about, "tests": rows, "dynamics": {str(count): run for count, run in dynamics.items()}}
(given.out / "waters.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
