"""Shared by several commands: options, loading of models and structures, and folders for results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import console, note
from geomatt.cli.generated import options_of
from geomatt.errors import GeomAttError
from geomatt.training.config import TrainConfig

if TYPE_CHECKING:
    from geomatt.data.dataset import Dataset
    from geomatt.data.make import Workers
    from geomatt.data.structures import Structure
    from geomatt.model import AnyPotential

# Groups of options about data files, for `with_options`; a command reads with `read(path, **reading)`.
LENGTH_UNIT = options_of(TrainConfig, "length_unit")
GEOMETRY = options_of(TrainConfig, "length_unit", "keys")
LABELLED = options_of(TrainConfig, "energy_unit", "length_unit", "force_unit", "keys")


def option(text: str, *flags: str, **more: Any) -> Any:
    """An option of a command; its flag is the name of the parameter if none is given."""
    return typer.Option(*flags, help=text, **more)


def argument(text: str, **more: Any) -> Any:
    """A positional argument of a command."""
    return typer.Argument(help=text, **more)


def out_option(text: str, panel: str | None = None) -> Any:
    """The option for what a command writes."""
    return typer.Option("--out", "-o", help=text, rich_help_panel=panel)


_MODEL = typer.Argument(help="A model file, the folder of a run, or a name of `geomatt models`.")
Model = Annotated[Path, _MODEL]
OptionalModel = Annotated[Path | None, _MODEL]
StructureFile = Annotated[str, typer.Argument(help="A file with the structure.")]
FrameNumber = Annotated[int, typer.Option("--frame", help="Which structure of the file; -1 is the last.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="float32 or float64; the model's own by default.")]
Precise = Annotated[str, typer.Option("--dtype", help="float64, or float32, which is faster.")]
BatchSize = Annotated[int, typer.Option("--batch", help="Structures computed at once.", min=1)]
Unit = Annotated[
    str | None, typer.Option("--unit", help="Energy unit of the report; the training data's by default.")
]
OutFolder = Annotated[Path | None, out_option("Folder for the results; named after STRUCTURE by default.")]
OutData = Annotated[Path, out_option("Data to write: .npz, .xyz or .extxyz.")]
Everything = Annotated[Path, out_option("Folder for everything.")]
Processes = Annotated[
    int, typer.Option("--workers", min=1, help="Processes on this machine, with one thread each.")
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask", help="Spread over Dask instead: local:4, or the address of a scheduler (tcp://…)."
    ),
]


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


def set_up_training(config: TrainConfig) -> None:
    """`set_up` of the engine that a run will use."""
    from geomatt.training.start import fresh_network

    set_up(fresh_network(config, (1,), 0).engine(config.engine), config.device)


def read_unlabelled(path: str, reading: Mapping[str, Any]) -> Dataset:
    """Structures without labels, whose names and units in the file do not matter then."""
    from geomatt.data import read

    keys = {"energy": "none", "forces": "none", **reading.get("keys", {})}
    return read(path, **{**reading, "keys": keys})


def read_structure(path: str, frame: int, reading: Mapping[str, Any]) -> Structure:
    """One structure of a file, without labels."""
    dataset = read_unlabelled(path, reading)
    if not -len(dataset) <= frame < len(dataset):
        raise GeomAttError(f"There is no structure {frame}: {path} has {len(dataset)}, counted from 0.")
    return dataset[frame]


def result_folder(out: Path | None, structure: str, command: str) -> AbstractContextManager[Path]:
    """The folder for the results of a command, made if needed; no other process may write into it."""
    from geomatt.files import locked_folder

    return locked_folder(out or default_folder(structure, command))


def default_folder(structure: str, command: str) -> Path:
    """`ethanol_md` for ethanol.xyz."""
    return Path(f"{Path(structure).name.partition('.')[0]}_{command}")


@contextmanager
def open_pool(
    workers: int, dask: str | None, *, again: str = "The same command continues."
) -> Iterator[Workers]:
    """Processes that share the work of a command; `again` says how to go on after Ctrl-C."""
    from geomatt.data.make import open_workers

    try:
        with open_workers(workers, dask) as pool:
            yield pool
    except KeyboardInterrupt:
        note(f"Stopped; everything finished is kept. {again}")
        raise typer.Exit(130) from None
