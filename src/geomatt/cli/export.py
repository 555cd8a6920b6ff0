"""`geomatt export`: a model compiled for one molecule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geomatt.cli.console import console, output
from geomatt.cli.options import Key, LengthUnit
from geomatt.cli.use import WITHOUT_LABELS, Dtype, Model, read_data
from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from rich.table import Table

    from geomatt.bench.timing import Timing
    from geomatt.model.compiled import CompiledMolecule


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: geomatt export runs/ethanol ethanol.xyz -o ethanol.pt2")(export)


def export(
    model: Model,
    structure: Annotated[str, typer.Argument(help="A file with the molecule: its atoms, in their order.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The .pt2 file to write.", show_default=False)],
    frame: Annotated[int, typer.Option(help="Which structure of the file; -1 is the last.")] = 0,
    length_unit: LengthUnit = None,
    keys: Key = None,
    dtype: Dtype = None,
) -> None:
    """Compile a model for one molecule: faster dynamics on a processor, with the same numbers.

    GeomAttCalculator opens the result: for these atoms in this order, such processors, this torch.

    Needs a C++ compiler. A .pt2 contains machine code: only open files you trust.
    """
    from geomatt.model.export import export_molecule
    from geomatt.model.files import load
    from geomatt.model.potential import Committee

    loaded = load(model, "cpu", dtype)
    if isinstance(loaded, Committee):
        raise GeomAttError(
            f"{model} is a committee. Compile its members one by one: {model}/member_0/model.safetensors ..."
        )
    dataset = read_data(structure, None, length_unit, [*WITHOUT_LABELS, *(keys or [])])
    if not -len(dataset) <= frame < len(dataset):
        raise GeomAttError(f"There is no structure {frame}: {structure} has {len(dataset)}, counted from 0.")
    with console.status("compiling, half a minute or so ..."):
        compiled = export_molecule(loaded, dataset[frame], out)
    with console.status("timing ..."):
        times = _times(compiled)
    output.print(_table(compiled, times))
    output.print(
        f'compiled: {out}\nnext: atoms.calc = GeomAttCalculator("{out}")   # or: geomatt info {out}',
        soft_wrap=True,
        highlight=False,
    )


def _times(compiled: CompiledMolecule) -> list[Timing]:
    """Energy and forces by the model itself, then by the compiled code, in turns; also on one thread."""
    import torch

    from geomatt.bench.timing import Contender, measure
    from geomatt.data.batch import Batch
    from geomatt.model.inference import Evaluates, Evaluator

    potential, count, threads = compiled.potential, 20, torch.get_num_threads()
    positions = torch.from_numpy(compiled.positions - compiled.positions.mean(0)).to(potential.dtype)
    batch = Batch(torch.from_numpy(compiled.numbers)[None], positions[None])

    def contender(name: str, evaluator: Evaluates, on: int) -> Contender:
        def run() -> None:
            torch.set_num_threads(on)
            for _ in range(count):
                evaluator(batch, forces=True, attention=False)

        return Contender(f"{name}, {on} thread{'s' if on > 1 else ''}", run, count)

    contenders = [contender("model", Evaluator(potential.network), threads)]
    contenders += [contender("compiled", compiled, on) for on in sorted({threads, 1}, reverse=True)]
    try:
        return measure(contenders, [15] * len(contenders), "cpu", lambda _: None)
    finally:
        torch.set_num_threads(threads)


def _table(compiled: CompiledMolecule, times: list[Timing]) -> Table:
    from rich.table import Table

    from geomatt.bench.timing import Ratio
    from geomatt.elements import formula

    table = Table(title=f"Energy and forces of {formula(compiled.numbers)}", title_justify="left")
    table.add_column("")
    for heading in ("time (ms)", "times faster", "deviation"):
        table.add_column(heading, justify="right")
    model, *codes = times
    table.add_row(model.name, f"{model.median * 1e3:.2f}", "1", "–")
    for code in codes:
        ratio = Ratio.of(model, code).median
        table.add_row(code.name, f"{code.median * 1e3:.2f}", f"{ratio:.1f}", f"{compiled.deviation:.0e}")
    table.caption = "deviation: the largest from the weights in float64, over the forces' root mean square"
    table.caption_justify = "left"
    return table
