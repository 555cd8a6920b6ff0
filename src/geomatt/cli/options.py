"""Options that several commands share: units and names in data files, the model, device and precision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import console
from geomatt.cli.generated import parse_pairs, train_fields
from geomatt.errors import GeomAttError
from geomatt.training.config import DATA

if TYPE_CHECKING:
    from geomatt.data.structures import Dataset, Structure
    from geomatt.model import AnyPotential


def _data_option(name: str, flag: str, **rest: Any) -> Any:
    text = train_fields()[name].metadata["help"]
    return typer.Option(
        flag, help=f"{text[0].upper()}{text[1:]}.", rich_help_panel=DATA, show_default=False, **rest
    )


EnergyUnit = Annotated[str | None, _data_option("energy_unit", "--energy-unit")]
LengthUnit = Annotated[str | None, _data_option("length_unit", "--length-unit")]
ForceUnit = Annotated[str | None, _data_option("force_unit", "--force-unit")]
Key = Annotated[list[str] | None, _data_option("keys", "--key", metavar="QUANTITY=NAME")]
Model = Annotated[
    Path,
    typer.Argument(
        help="A model file, the folder of a run, or a name of `geomatt models`.", show_default=False
    ),
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one.", show_default=False)
]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", help="float32 or float64; the model's own by default.", show_default=False),
]
FrameNumber = Annotated[int, typer.Option("--frame", help="Which structure of the file; -1 is the last.")]
Precise = Annotated[str, typer.Option("--dtype", help="float64, or float32, which is faster.")]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for the results; named after STRUCTURE by default.", show_default=False
    ),
]
BatchSize = Annotated[int, typer.Option("--batch", help="Structures computed at once.", min=1)]
Processes = Annotated[
    int, typer.Option("--workers", min=1, help="Processes on this machine, with one thread each.")
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        help="Spread over Dask instead: local:4, or the address of a scheduler (tcp://…).",
        show_default=False,
    ),
]

# For commands that need no labels: their names and units in the file do not matter then.
WITHOUT_LABELS = ("energy=none", "forces=none")


def parse_keys(items: Sequence[str] | None) -> dict[str, str]:
    """`--key energy=my_E` options as a mapping."""
    return parse_pairs(items or [], "--key", "forces=my_forces")


def load_model(model: Path, device: str | None, dtype: str | None) -> AnyPotential:
    """The model on the chosen device, with its code compiled."""
    import torch

    from geomatt.model import load

    loaded = load(model, device or ("cuda" if torch.cuda.is_available() else "cpu"), dtype)
    for member in loaded.members:
        set_up(member.network.engine(member.engine), member.device.type)
    return loaded


def set_up(engine: Any, device: str) -> None:
    """Compile what an engine compiles at first use on a CPU, with a message about the seconds it takes."""
    if device == "cpu" and engine.setup_pending():
        with console.status("Compiling fast code for this processor, once …"):
            engine.setup()


def read_data(
    path: str,
    energy_unit: str | None,
    length_unit: str | None,
    keys: Sequence[str] | None,
    force_unit: str | None = None,
) -> Dataset:
    """Structures from a file or by name."""
    from geomatt.data import read

    return read(
        path,
        energy_unit=energy_unit,
        length_unit=length_unit,
        force_unit=force_unit,
        keys=parse_keys(keys),
    )


def read_structure(
    path: str, frame: int, length_unit: str | None, keys: Sequence[str] | None = None
) -> Structure:
    """One structure of a file, without labels."""
    dataset = read_data(path, None, length_unit, [*WITHOUT_LABELS, *(keys or [])])
    if not -len(dataset) <= frame < len(dataset):
        raise GeomAttError(f"There is no structure {frame}: {path} has {len(dataset)}, counted from 0.")
    return dataset[frame]


def result_folder(out: Path | None, structure: str, command: str) -> AbstractContextManager[Path]:
    """The folder for the results of a command, made if needed; no other process may write into it."""
    from geomatt.simulation.folders import locked_folder

    return locked_folder(out or Path(f"{Path(structure).name.partition('.')[0]}_{command}"))
