"""One HTML file with its style, scripts and numbers inside."""

from __future__ import annotations

import base64
import html
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError
from geomatt.files import atomic_write, finite, require_writable

# In the order in which they need each other.
SCRIPTS = (
    "arrays", "dom", "colours", "geometry", "painters", "molecule", "matrix", "charts", "files",
    "explorer_data", "explorer", "controls", "switching", "panels", "report",
)  # fmt: skip
TYPES = ("uint8", "uint16", "uint32", "int16", "float32")  # of arrays
NOTEBOOK_HEIGHT = 900  # pixels

Block = dict[str, Any]  # what report.js draws: a kind, and what belongs to it


@dataclass(frozen=True)
class Page:
    """A page: blocks from top to bottom, and the arrays they use. A notebook displays it."""

    title: str
    subtitle: str = ""
    blocks: Sequence[Block] = ()
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def render(self) -> str:
        """The whole page as HTML."""
        from geomatt import __version__

        static = files("geomatt.pages") / "static"
        scripts = "\n".join((static / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
        content = json.dumps({"blocks": list(self.blocks)}, default=_plain, allow_nan=False)
        parts = {
            "title": html.escape(self.title),
            "subtitle": html.escape(self.subtitle),
            "version": html.escape(__version__),
            "style": (static / "page.css").read_text(encoding="utf-8"),
            # A script element ends at "</script", wherever that stands: no "<" may be left in the text.
            "content": content.replace("<", "\\u003c"),
            "arrays": "\n".join(_array_element(name, array) for name, array in self.arrays.items()),
            "script": scripts,
        }
        page = (static / "page.html").read_text(encoding="utf-8")
        head, *rest = page.split("{{")
        return head + "".join(parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, complete or not at all."""
        target = page_path(path)
        atomic_write(target, self.render().encode())
        return target

    def _repr_html_(self) -> str:
        source = html.escape(self.render())
        look = f"width:100%;height:{NOTEBOOK_HEIGHT}px;border:0"
        return f'<iframe srcdoc="{source}" style="{look}" title="{html.escape(self.title)}"></iframe>'


def page_path(path: str | os.PathLike[str]) -> Path:
    """The path of a page; an error before anything is computed if it cannot be written."""
    target = require_writable(Path(path))
    if target.suffix.lower() not in (".html", ".htm"):
        raise GeomAttError(f"Cannot write {target}: the name of a page must end in .html.")
    return target


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many numbers from 0 to count − 1, at even distances."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def quantised(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Values as int16, and the factor that gives them back to 1/32767 of the largest."""
    scale = float(np.abs(values).max(initial=0.0)) / 32767.0
    if scale == 0.0:
        return np.zeros(values.shape, dtype=np.int16), 0.0
    return np.rint(values / scale).astype(np.int16), scale


def _array_element(name: str, array: np.ndarray) -> str:
    if array.dtype.name not in TYPES:
        raise TypeError(f"{name}: {array.dtype}")
    data = zlib.compress(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes(), 6)
    text = base64.b64encode(data).decode()
    return f'<script type="text/plain" id="array:{name}" data-type="{array.dtype.name}">{text}</script>'


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays for JSON; numbers that are not finite as null."""
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, np.generic):
        return finite(value.item())
    raise TypeError(f"{type(value).__name__} has no JSON")


def heading(text: str) -> Block:
    """The title of a part of a page."""
    return {"kind": "heading", "text": text}


def text_block(text: str, note: bool = False) -> Block:
    """A paragraph, which stands out if it is a note."""
    return {"kind": "text", "text": text, "note": note}


def notes(texts: Iterable[str]) -> list[Block]:
    """Paragraphs that stand out."""
    return [text_block(text, note=True) for text in texts]


def facts(rows: Iterable[Sequence[str]]) -> Block:
    """Names and values."""
    return {"kind": "facts", "rows": list(rows)}


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], **more: Any) -> Block:
    """A table; `note` is a text below it, `strong` are the numbers of rows that stand out."""
    return {"kind": "table", "title": title, "header": list(header), "rows": rows, **more}


def charts(items: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Charts side by side, if there are any."""
    return [{"kind": "charts", "items": items}] if items else []


def chart(
    title: str,
    series: Sequence[Mapping[str, Any]],
    x_label: str,
    y_label: str,
    note: str = "",
    **options: Any,
) -> dict[str, Any]:
    """An entry of `charts`; `options` are `logY`, `diagonal` and `zero`."""
    options |= {"xLabel": x_label, "yLabel": y_label}
    return {"title": title, "series": series, "options": options, "note": note}


def next_steps(commands: Sequence[str]) -> list[Block]:
    """Commands to run next, if there are any."""
    shown: list[Block] = [{"kind": "command", "text": command} for command in commands]
    return [heading("Next"), *shown] if shown else []


def short(values: Iterable[float], digits: int = 4) -> list[float | None]:
    """Numbers with as many digits as a plot needs; None for those that are not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]
