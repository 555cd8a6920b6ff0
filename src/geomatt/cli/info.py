"""`geomatt info`: the metadata of a model file, and what is used of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from geomatt.cli.console import facts, output
from geomatt.cli.options import OptionalModel, option
from geomatt.errors import GeomAttError


def info(
    model: OptionalModel = None,
    as_json: Annotated[bool, option("Print all of it as JSON instead.", "--json")] = False,
    system: Annotated[
        bool, option("Versions, processor, threads, GPU, compiler and engines here.", "--system")
    ] = False,
) -> None:
    """Print the metadata of a model file: units, elements, data, training, versions.

    With --system, what geomatt uses of this machine.
    """
    if system:
        _system(as_json)
    if model is not None:
        _model(model, as_json)
    elif not system:
        raise GeomAttError(
            "Which model? Name a file, a run or a model of geomatt models; or ask for --system."
        )


def _system(as_json: bool) -> None:
    from geomatt.cli.system import system_report

    rows = system_report()
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    facts(rows.items())


def _model(model: Path, as_json: bool) -> None:
    from geomatt.cli.model_tables import info_rows
    from geomatt.model import load
    from geomatt.model.files import describe

    members = load(model).members
    if as_json:
        described = [describe(member) for member in members]
        print(json.dumps(described if len(members) > 1 else described[0], indent=2))
        return
    if len(members) > 1:
        output.print(f"A committee of {len(members)} members. The first of them:")
    facts(info_rows(members[0], str(model)))
