"""A table of text cells, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table

MANY = 7  # columns; a terminal has no room for lines between more of them, nor for spreads
NOT_RUN = "–"


@dataclass(frozen=True)
class ResultTable:
    """Rows of text; the first `labels` columns are names, the others numbers."""

    name: str  # of its block in the docs page, such as "shapes-accuracy"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # below the table: units, what is measured
    labels: int = 1
    strong: frozenset[int] = field(default_factory=frozenset)  # rows in bold

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        rows: Iterable[Mapping[str, Any]],
        columns: Mapping[str, str],
        note: str = "",
        **options: Any,
    ) -> ResultTable:
        """A line for each row; columns map their names to format strings of the row's entries.

        A number that is None is a dash.
        """
        lines = [[_formatted(form, row) for form in columns.values()] for row in rows]
        return cls(name, title, list(columns), lines, note, **options)

    def rich(self) -> Table:
        """For the terminal."""
        many = len(self.columns) > MANY
        table = Table(
            title=self.title,
            title_justify="left",
            caption=self.note or None,
            caption_justify="left",
            box=box.SIMPLE_HEAD if many else box.HEAVY_HEAD,
            padding=(0, 0, 0, 1) if many else (0, 1),
        )
        for i, column in enumerate(self.columns):
            table.add_column(
                column, justify="left" if i < self.labels else "right", no_wrap=i == 0, overflow="fold"
            )
        for i, row in enumerate(self.rows):
            cells = [cell.split(" ± ")[0] for cell in row] if many else row
            table.add_row(*cells, style="bold" if i in self.strong else None)
        return table

    def markdown(self) -> str:
        """For the docs, without the title."""
        line = ["---" if i < self.labels else "---:" for i in range(len(self.columns))]
        body = [
            [f"**{cell}**" if i in self.strong and cell else cell for cell in row]
            for i, row in enumerate(self.rows)
        ]
        rows = [list(self.columns), line, *body]
        text = "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows)
        return f"{text}\n\n{self.note}" if self.note else text


def _formatted(form: str, row: Mapping[str, Any]) -> str:
    try:
        return form.format(**row)
    except TypeError:  # None has no format
        return NOT_RUN
