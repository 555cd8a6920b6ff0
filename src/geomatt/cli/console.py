"""What all commands share of the terminal: one console on stderr for talk, stdout for results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(stderr=True)
output = Console()


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


def compile_fast_code() -> None:
    """What work on a CPU does at its first use, with a word about the seconds it takes."""
    from geomatt.model.geometric_attention.cpu.library import library, to_be_compiled

    if to_be_compiled():
        with console.status("Compiling fast code for this processor, once …"):
            library()
