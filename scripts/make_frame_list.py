"""Write the list of public frames that ships with the package: numbers and geometries, no labels.

    python scripts/make_frame_list.py --data DIR

DIR contains md17/ (the frames used) and rmd17/ (the same frames in the same order, with `old_indices`, their
numbers in the public MD17 files).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from geomatt.data import Dataset, find_entry, read
from geomatt.data.public import frames
from geomatt.reproduce.inputs import MD17, find_file

TARGET = Path(frames.__file__).parent / "embedded" / "md17_frames.npz"


def arrays(dataset: Dataset, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """The stored form: differences of ascending frame numbers, and geometries as integers."""
    if len(numbers) != len(dataset) or (np.diff(numbers) <= 0).any():
        raise SystemExit(f"The frame numbers of {dataset.name} are not ascending, or not one per frame.")
    stored = np.round(frames.geometries(dataset) / frames.UNIT).astype(np.int32)
    if len(np.unique(stored, axis=0)) < len(stored):
        raise SystemExit(f"Two frames of {dataset.name} have the same geometry.")
    return {"gaps": np.diff(numbers, prepend=0).astype(np.uint16), "geometries": stored}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with md17/ and rmd17/")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    content: dict[str, np.ndarray] = {}
    for molecule in MD17:
        entry = find_entry(f"md17/{molecule}")
        assert entry is not None
        with np.load(find_file(options.data, f"rmd17/{molecule}")) as file:
            numbers = file["old_indices"].astype(np.int64)
        if np.diff(numbers, prepend=0).max() > np.iinfo(np.uint16).max:
            raise SystemExit(f"The frame numbers of {molecule} are too far apart for 16 bits.")
        made = arrays(read(find_file(options.data, f"md17/{molecule}")), numbers)
        content |= {f"{entry.name.replace('/', '_')}_{key}": array for key, array in made.items()}
        print(f"{molecule}: {len(numbers)} frames, numbers {numbers[0]} to {numbers[-1]}")
    np.savez_compressed(options.out, **content)  # type: ignore[arg-type]
    print(f"{options.out}: {options.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
