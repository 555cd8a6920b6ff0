"""The command line: `geomatt COMMAND`."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Annotated

import typer
from rich.markup import escape

from geomatt import __version__
from geomatt.cli.console import note, say
from geomatt.cli.generated import with_flags
from geomatt.cli.options import option
from geomatt.errors import GeomAttError
from geomatt.files import FULL, write_error

app = typer.Typer(
    help="Machine-learned molecular force fields whose attention can be read.",
    epilog="Start with: geomatt demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        say(f"geomatt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


# Every command with an example, in the order users meet them. Each is a function in the module of its name.
COMMANDS = {
    "demo": "--out my-demo",
    "auto": "ethanol.xyz --out runs/ethanol --workers 2",
    "sample": "ethanol.xyz --out ethanol.npz --frames 2000",
    "label": "frames.extxyz --out labelled.extxyz --workers 4",
    "data": "",  # a group with commands of its own
    "train": "md17/ethanol --out runs/ethanol",
    "transfer": "runs/aspirin/model.safetensors md17/toluene --out runs/toluene",
    "improve": "runs/ethanol ethanol.npz --out runs/better --rounds 3",
    "evaluate": "runs/ethanol md17/ethanol --unit kcal/mol",
    "predict": "runs/ethanol frames.xyz -o predicted.extxyz",
    "attention": "runs/ethanol ethanol.xyz -o attention.png",
    "explain": "runs/ethanol ethanol.xyz -o report.html",
    "relax": "md17/ethanol:pair-s ethanol.xyz",
    "vibrations": "md17/ethanol:pair-s ethanol.xyz",
    "scan": "md17/ethanol:pair-s ethanol.xyz --torsion 0,1,2,8 --reference xtb",
    "md": "md17/ethanol:pair-s ethanol.xyz --temperature 300 --time 10 --replicas 4",
    "client": "md17/ethanol:pair-s ethanol.xyz --unix ethanol",
    "info": "runs/ethanol",
    "models": "",
    "import-authors": "ethanol_model ethanol.safetensors --train-file train.npz",
    "reproduce": "shapes --quick",
    "bench": "--suite train,infer --json bench.json",
}
for _command, _example in COMMANDS.items():
    _name = _command.replace("-", "_")
    _made = getattr(
        importlib.import_module(f"geomatt.cli.{'train' if _name == 'transfer' else _name}"), _name
    )
    if isinstance(_made, typer.Typer):
        app.add_typer(_made, name=_command)
    else:
        app.command(_command, epilog=f"Example: geomatt {_command} {_example}".rstrip())(_made)


def main() -> None:
    """Run the command line; a `GeomAttError` is printed as a message, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: _tell("[bold yellow]Warning:[/]", message)
    try:
        app()
    except GeomAttError as error:
        _tell("[bold red]Error:[/]", error)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _tell("[bold red]Error:[/]", write_error(error.filename or "a file", error))
        sys.exit(1)


def _tell(kind: str, message: Warning | GeomAttError | str) -> None:
    note(f"{kind} {escape(with_flags(str(message)))}", markup=True)


if __name__ == "__main__":
    main()
