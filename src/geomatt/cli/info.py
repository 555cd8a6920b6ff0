"""`geomatt info`: the metadata of a model file."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from geomatt.cli.console import output
from geomatt.cli.options import Model


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: geomatt info runs/ethanol")(info)


def info(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON instead.")] = False,
) -> None:
    """Print the metadata of a model file: units, elements, data, training, versions."""
    from geomatt.cli.model_tables import info_table
    from geomatt.model import load
    from geomatt.model.files import describe

    members = load(model).members
    if as_json:
        described = [describe(member) for member in members]
        print(json.dumps(described if len(members) > 1 else described[0], indent=2))
        return
    if len(members) > 1:
        output.print(f"A committee of {len(members)} members. The first of them:")
    output.print(info_table(members[0], str(model)))
