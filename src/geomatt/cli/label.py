"""`geomatt label`: energies and forces of given structures."""

from __future__ import annotations

from typing import Annotated, Any

from geomatt.cli.console import finish, note, rate_bar, say
from geomatt.cli.generated import options_of, with_options
from geomatt.cli.options import LENGTH_UNIT, Dask, OutData, Processes, argument, open_pool, read_unlabelled
from geomatt.data.make.config import MethodConfig

_NAMED = 10  # failed structures in a message


@with_options(settings=options_of(MethodConfig), reading=LENGTH_UNIT)
def label(
    structures: Annotated[str, argument("Structures of any known format.")],
    out: OutData,
    settings: dict[str, Any],
    reading: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Label structures with a reference method: energies, forces, and stress of periodic cells.

    Labels the file may have are ignored. Everything finished is kept in
    OUT.parts: after Ctrl-C or a crash the same command continues. Structures for
    which the method fails are left out and named.
    """
    from geomatt.data.make import label as label_all

    config = MethodConfig(**settings)
    dataset = read_unlabelled(structures, reading)
    with open_pool(workers, dask) as pool, rate_bar("labelling", len(dataset), "structures") as advance:
        result = label_all(dataset, config, out, workers=pool, progress=advance)
    say(
        f"{len(result.dataset)} structures labelled with {result.dataset.origin['theory']}, "
        f"{result.summary['repeated_calculations']} calculations repeated."
    )
    if result.failed:
        note(f"Note: the method failed for {len(result.failed)} of {len(dataset)} structures, left out here:")
        for number, why in list(result.failed.items())[:_NAMED]:
            note(f"  {number}: {why}")
        if len(result.failed) > _NAMED:
            note(f"  … all of them are in {out.with_suffix('.json')}")
    finish({"data": out, "how it was made": out.with_suffix(".json")}, f"geomatt data info {out}")
