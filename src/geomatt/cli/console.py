"""Terminal output of all commands: messages and progress on stderr, results on stdout."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

console = Console(stderr=True)
output = Console()
BAR = 24  # characters of a bar with text
PLAIN_SECONDS = 10.0  # between lines where there is no terminal to redraw


def note(text: str, *, markup: bool = False, **style: Any) -> None:
    """A line on stderr; long lines, such as paths, are not broken."""
    console.print(text, highlight=False, soft_wrap=True, markup=markup, **style)


def say(text: str, *, markup: bool = False, **style: Any) -> None:
    """A line on stdout, as `note`."""
    output.print(text, highlight=False, soft_wrap=True, markup=markup, **style)


def warn(text: str) -> None:
    """A warning on stderr."""
    note(f"Warning: {text}", style="yellow")


def finish(files: Mapping[str, object], *commands: str) -> None:
    """The end of a command: what it wrote, and what to run next."""
    say("\n".join(f"{what}: {path}" for what, path in files.items()))
    if commands:
        say("\n  ".join(["next:", *commands]))


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values in two columns on stdout."""
    shown = Table(show_header=False, box=None, pad_edge=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in rows:
        shown.add_row(name, escape(value))
    output.print(shown, highlight=False)


def table(
    title: str,
    headings: Iterable[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    left: Sequence[str] = (),
    no_wrap: bool = False,
    **more: Any,
) -> Table:
    """A table with its columns to the right, but for those with the headings `left`."""
    made = Table(title=title, title_justify="left", caption_justify="left", **more)
    for heading in headings:
        made.add_column(heading, justify="left" if heading in left else "right", no_wrap=no_wrap)
    for row in rows:
        made.add_row(*row)
    return made


def number(value: float | None, digits: str = ".3f") -> str:
    """A number for a table; a dash for None and NaN."""
    return "–" if value is None or math.isnan(value) else format(value, digits)


def count(items: int, what: str) -> str:
    """A number of things in words: 1 structure, 2 structures."""
    return f"{items:,} {what}{'' if items == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds in words short enough for a progress line."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 3 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400:,} days"


@contextmanager
def bars(*columns: ProgressColumn) -> Iterator[Callable[[str, int, int | None], None]]:
    """Bars on stderr, one for each part of the work; yields `tell(part, done, total)`.

    Without a terminal, as in the log of a batch job, lines now and then.
    """
    if not console.is_terminal:
        yield _lines()
        return
    shown = (TextColumn("{task.description}"), BarColumn(), *(columns or (MofNCompleteColumn(),)))
    with Progress(*shown, TimeRemainingColumn(), console=console, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield tell


def _lines() -> Callable[[str, int, int | None], None]:
    """As `tell` of `bars`: a line when a part has taken a while, and again after a tenth of its time so far.

    So a part of ten minutes has some thirty lines and one of ten hours some seventy.
    """
    parts: dict[str, tuple[float, int]] = {}  # when a part was first told, and what was done by then
    said: dict[str, float] = {}

    def tell(what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        began, first = parts.setdefault(what, (now, done))
        spent = now - began
        if now - said.setdefault(what, began) < max(PLAIN_SECONDS, spent / 10) or not total:
            return
        said[what] = now
        left = f", {duration(spent * (total - done) / (done - first))} left" if done > first else ""
        note(f"{what}  {done / total:.0%} after {duration(spent)}{left}")

    return tell


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr; yields a callback that advances it by the number of items done."""
    done = 0
    with bars() as tell:

        def advance(items: int) -> None:
            nonlocal done
            done += items
            tell(description, done, total)

        if console.is_terminal:
            advance(0)  # lines begin with what was done before, so that it does not count as speed
        yield advance


@contextmanager
def live_bar(*, at_once: bool = False) -> Iterator[Callable[..., None]]:
    """Yields `show(name, share, text)`, which draws a bar; without a terminal, it prints a line now and then.

    `more` is a second line, so that both fit 80 columns; the `last` line is printed in any case, and with
    `at_once` the first one, too.
    """
    said = 0.0 if at_once else time.monotonic()
    terminal = Live(console=console, transient=True) if console.is_terminal else nullcontext()
    with terminal as live:

        def show(name: str, share: float, text: str, *, more: str = "", last: bool = False) -> None:
            nonlocal said
            if live is not None:
                done = round(BAR * share)
                live.update(Text(f"{name}  {'━' * done}{'─' * (BAR - done)}  {text}\n{more}".rstrip()))
            elif last or time.monotonic() - said >= PLAIN_SECONDS:
                said = time.monotonic()
                note("  ".join(part for part in (name, more, text) if part))

        yield show


@contextmanager
def rate_bar(description: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar that is advanced by the number of items done, with items per second and the time left.

    Speed is measured from the first call on: what comes before is preparation, or was done earlier.
    """
    done, first, began = 0, 0, 0.0
    with live_bar() as show:

        def advance(items: int) -> None:
            nonlocal done, first, began
            if not done:
                first, began = items, time.monotonic()
            done += items
            speed = (done - first) / max(time.monotonic() - began, 1e-9)
            left = f", {speed:.3g} per second, {duration((total - done) / speed)} left" if speed > 0 else ""
            show(description, done / max(total, 1), f"{done} of {total} {unit}{left}")

        show(description, 0.0, f"0 of {total} {unit}")
        yield advance
