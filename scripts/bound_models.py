"""Give model files the bounds of their networks (`geomatt.model.bounds`), which training adds by itself.

    python scripts/bound_models.py --data DIR MODEL.safetensors ...

For models of MD17 trained before there were bounds. The structures a model was trained on are found in DIR by
the hashes that its file holds; a file without all of them is left as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from geomatt.data import Dataset, read
from geomatt.errors import GeomAttError
from geomatt.model import Potential, load, save
from geomatt.model.bounds import with_bounds
from geomatt.reproduce.inputs import find_file


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with md17/")
    parser.add_argument("models", nargs="+", type=Path)
    given = parser.parse_args()
    for path in given.models:
        model = load(path).members[0]
        if not model.network.optional:
            print(f"{path}: this network has no bounds")
            continue
        with_bounds(
            model.network, trained(model, read(find_file(given.data, "md17/" + model.record["data"]["name"])))
        )
        save(model, path)
        print(f"{path}: {', '.join(model.network.optional)}")


def trained(model: Potential, data: Dataset) -> Dataset:
    """The frames a model was trained and validated on."""
    seen = model.trained_frames
    found = [index for index, name in enumerate(data.frame_hashes()) if name in seen]
    if len(found) != len(seen):
        raise GeomAttError(f"{len(seen) - len(found)} of {len(seen)} training frames are not in the data.")
    return data.select(found)


if __name__ == "__main__":
    main()
