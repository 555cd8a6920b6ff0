"""Terminal output of all commands: messages and progress on stderr, results on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console(stderr=True)
output = Console()
PLAIN_SECONDS = 10.0  # between lines where there is no terminal to redraw


def note(text: str, *, markup: bool = False, **style: Any) -> None:
    """A line on stderr; long lines, such as paths, are not broken."""
    console.print(text, highlight=False, soft_wrap=True, markup=markup, **style)


def say(text: str, *, markup: bool = False, **style: Any) -> None:
    """A line on stdout, as `note`."""
    output.print(text, highlight=False, soft_wrap=True, markup=markup, **style)


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


@contextmanager
def rate_bar(description: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Like `progress_bar`, with items per second; without a terminal, a line now and then.

    Speed is measured from the first call on: what comes before is preparation, or was done earlier.
    """
    done, first, began, said = 0, 0, 0.0, time.monotonic()

    def text() -> str:
        speed = (done - first) / max(time.monotonic() - began, 1e-9)
        left = f", {speed:.3g} per second, {_short_time((total - done) / speed)} left" if speed > 0 else ""
        return f"{done} of {total} {unit}{left}"

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total, state="")

        def advance(items: int) -> None:
            nonlocal done, first, began, said
            if not done:
                first, began = items, time.monotonic()
            done += items
            bar.update(task, completed=done, state=text())
            if not console.is_terminal and time.monotonic() - said > PLAIN_SECONDS:
                said = time.monotonic()
                console.print(f"{description}: {text()}", highlight=False, soft_wrap=True)

        yield advance


def _short_time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
