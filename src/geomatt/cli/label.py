"""`geomatt label`: energies and forces of given structures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from geomatt.cli.console import note, rate_bar, say
from geomatt.cli.generated import with_config
from geomatt.cli.options import WITHOUT_LABELS, Dask, LengthUnit, Processes, read_data
from geomatt.cli.sample import stopped
from geomatt.data.make.config import MethodConfig

_NAMED = 10  # failed structures in a message


@with_config(MethodConfig)
def label(
    structures: Annotated[str, typer.Argument(help="Structures of any known format.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Data to write: .npz, .xyz or .extxyz.")],
    settings: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
    length_unit: LengthUnit = None,
) -> None:
    """Label structures with a reference method: energies, forces, and stress of periodic cells.

    Labels the file may have are ignored. Everything finished is kept in
    OUT.parts: after Ctrl-C or a crash the same command continues. Structures for
    which the method fails are left out and named.
    """
    from geomatt.data.make import label as label_all
    from geomatt.data.make import open_workers
    from geomatt.data.make.method import parse_arguments

    config = MethodConfig(**{**settings, "arguments": parse_arguments(settings.get("arguments", {}))})
    dataset = read_data(structures, None, length_unit, WITHOUT_LABELS)
    try:
        with (
            open_workers(workers, dask) as chosen,
            rate_bar("labelling", len(dataset), "structures") as advance,
        ):
            result = label_all(dataset, config, out, workers=chosen, progress=advance)
    except KeyboardInterrupt:
        stopped()
    say(
        f"{len(result.dataset)} structures labelled with {result.dataset.origin['theory']}, "
        f"{result.summary['repeated_calculations']} calculations repeated."
    )
    if result.failed:
        listed = ", ".join(map(str, result.failed[:_NAMED])) + (" …" if len(result.failed) > _NAMED else "")
        note(f"Note: the method failed for {len(result.failed)} structures, which are left out: {listed}")
    say(f"data: {out}\nhow it was made: {out.with_suffix('.json')}")
    note(f"Next:\n  geomatt data info {out}")
