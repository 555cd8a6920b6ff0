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
from geomatt.data.files import FULL, write_error
from geomatt.errors import GeomAttError

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
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


COMMANDS = (
    "demo", "auto", "sample", "label", "data", "train", "improve", "evaluate", "predict", "attention",
    "explain", "relax", "vibrations", "scan", "md", "client", "info", "models", "import_authors",
    "reproduce", "bench",
)  # fmt: skip
# Each module registers its commands on `app` when imported, in the order users meet them.
for _module in COMMANDS:
    importlib.import_module(f"geomatt.cli.{_module}").register(app)


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
