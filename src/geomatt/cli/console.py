"""Terminal output of all commands: messages and progress on stderr, results on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console(stderr=True)
output = Console()


def note(text: str, **style: Any) -> None:
    """A line on stderr; long lines, such as paths, are not broken."""
    console.print(text, highlight=False, soft_wrap=True, **style)


def say(text: str, **style: Any) -> None:
    """A line on stdout, as `note`."""
    output.print(text, highlight=False, soft_wrap=True, **style)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values in two columns on stdout."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(value))
    output.print(table, highlight=False)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr; yields a callback that advances it by the number of items done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)
