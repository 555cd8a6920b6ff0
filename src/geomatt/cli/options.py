"""Options that several commands share: what a data file means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from geomatt.errors import GeomAttError

PANEL = "Data"


def option(flag: str, text: str, panel: str, **rest: Any) -> Any:
    """An option in a panel of the help, without a default to show."""
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=False, **rest)


EnergyUnit = Annotated[
    str | None,
    option("--energy-unit", "Energy unit, if the file does not say: kcal/mol, eV, Hartree, kJ/mol.", PANEL),
]
LengthUnit = Annotated[
    str | None, option("--length-unit", "Length unit, if the file does not say: Ang, Bohr.", PANEL)
]
ForceUnit = Annotated[
    str | None,
    option("--force-unit", "Unit of the forces, if not energy/length unit: Hartree/Bohr.", PANEL),
]
Key = Annotated[
    list[str] | None,
    option(
        "--key",
        "Where the file keeps numbers, positions, energy or forces: forces=my_forces; none leaves out.",
        PANEL,
        metavar="QUANTITY=NAME",
    ),
]


def parse_keys(items: Sequence[str] | None) -> dict[str, str]:
    """`--key energy=my_E` options as a mapping."""
    return parse_pairs(items or [], "--key", "forces=my_forces")


def parse_pairs(items: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    mapping = {}
    for item in items:
        name, _, value = item.partition("=")
        if not name or not value:
            raise GeomAttError(f"{flag} {item!r} is not of the form {example}.")
        mapping[name.strip()] = value.strip()
    return mapping
