"""Train a force field in Python, test it on frames it has not seen, and save it.

python examples/train.py --epochs 45

A split says which frames train, which choose the best epoch and which test: `geomatt.random_split`,
`geomatt.blocked_split`, or `geomatt.Split` with your own indices. `geomatt.resolve` fills in the settings
that are not given; `geomatt train --help` lists them all. `geomatt.train(..., resume=True)` continues a run.
"""

import argparse

import geomatt
from geomatt.data import ethanol

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=45)
parser.add_argument("--out", default="runs/example")
options = parser.parse_args()

data = ethanol()  # 2000 frames, GFN2-xTB at 500 K; geomatt.read("file.npz") reads your own
split = geomatt.random_split(len(data), train=800, validation=200, test=200, seed=0)
config = geomatt.resolve({"epochs": options.epochs, "network": {"channels": 64}})
result = geomatt.train(data, split, config, options.out)

errors = geomatt.evaluate(result.potential, data, indices=split.test, unit="kcal/mol")
force_mae = errors.to_dict()["overall"]["forces_mae"]
print(f"force error on {len(split.test)} frames: {force_mae:.2f} kcal/mol/Å")
print(f"model: {result.folder / 'model.safetensors'}")
