"""`geomatt client`: energies and forces for i-PI, or for another program with its protocol."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from geomatt.cli.console import console, output
from geomatt.cli.generated import with_options
from geomatt.cli.options import (
    LENGTH_UNIT,
    Device,
    Dtype,
    Model,
    argument,
    load_model,
    option,
    read_structure,
)


@with_options(reading=LENGTH_UNIT)
def client(
    model: Model,
    structure: Annotated[str, argument("File whose first structure has the atoms in the server's order.")],
    reading: dict[str, Any],
    unix: Annotated[str | None, option("Name of a Unix socket, <address> in i-PI's input.")] = None,
    host: Annotated[str, option("Machine the server runs on.")] = "localhost",
    port: Annotated[int, option("Port the server listens at.")] = 31415,
    wait: Annotated[float, option("Seconds to wait for the server to start.")] = 60.0,
    walls: Annotated[bool, option("Add walls where the training data end.", "--walls/--no-walls")] = True,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Give energies, forces and the virial to i-PI or ASE's socket server until it ends the simulation.

    A structure with periodic boundaries uses the server's cell; without them the cell has no meaning.
    """
    from geomatt.simulation.engines import run_client

    loaded = load_model(model, device, dtype)
    first = read_structure(structure, 0, reading)
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        status.update(f"{done} calculations for {where}")

    where = unix or f"{host}:{port}"
    try:
        with console.status(f"Waiting for {where} …") as status:
            calculator = run_client(
                loaded, first, unix=unix, host=host, port=port, wait=wait,
                device=loaded.device, walls=walls, progress=count,
            )  # fmt: skip
    except KeyboardInterrupt:
        output.print(f"stopped after {done} calculations; the server waits for another client")
        raise typer.Exit(130) from None
    output.print(f"{done} calculations, {calculator.wall_steps} with a wall active", highlight=False)
