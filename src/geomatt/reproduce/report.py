"""Results as pages: the report of all experiments, and the generated blocks of the docs."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomatt.data import atomic_output
from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Experiment, Figure

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#22252b;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
td,th{padding:.2rem .7rem}thead th{border-bottom:2px solid #22252b}tr+tr td{border-top:1px solid #e4e6ea}
img{max-width:100%}
"""
QUICK = (
    "Quick setting: less data, smaller models or shorter training than in the paper, to check that the "
    "experiment runs. Not a result."
)


@dataclass(frozen=True)
class Section:
    """One experiment in the report: its result and figures, or why there is none."""

    experiment: Experiment
    result: Mapping[str, Any] | None
    figures: Sequence[Figure] = ()
    missing: str = ""


def write_report(sections: Sequence[Section], folder: Path) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` (one file with its figures) into `folder`."""
    from markdown_it import MarkdownIt  # installed with rich

    markdown, page = folder / "report.md", folder / "report.html"
    title = "The paper, reproduced"
    text = "\n\n".join([f"# {title}", *(_markdown(s, folder) for s in sections)]) + "\n"

    def embedded(match: re.Match[str]) -> str:
        return f'src="data:image/png;base64,{base64.b64encode((folder / match[1]).read_bytes()).decode()}"'

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    document = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        + re.sub(r'src="([^":]+\.png)"', embedded, body)
        + "</html>\n"
    )
    for path, content in ((markdown, text), (page, document)):
        with atomic_output(path) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return markdown, page


def made_by(result: Mapping[str, Any]) -> str:
    """A sentence about the origin of the numbers."""
    commits = ", ".join(c[:10] for c in result["commits"]) or "unknown"
    data = [f"{name} ({d['fingerprint'][:10]})" for name, d in result.get("data", {}).items()]
    on = f" on {'; '.join(result['hardware'])}" if result["hardware"] else ""
    return (
        f"Made by `geomatt reproduce {result['experiment']}{' --quick' if result['quick'] else ''}`, "
        f"seed {result['seed']}, commit {commits}, {result['seconds']:.0f} s{on}"
        + (f"; data: {', '.join(data)}." if data else ".")
    )


def blocks(
    experiment: Experiment, result: Mapping[str, Any], figures: Sequence[Figure] = ()
) -> dict[str, str]:
    """The generated blocks of a docs page: tables by their names, `summary`, `figures` and `made`."""
    content = {table.name: table.markdown() for table in experiment.tables(result)}
    if summary := experiment.summary(result):
        content["summary"] = summary
    if figures:
        content["figures"] = "\n\n".join(f"![{f.caption}](figures/{f.path.name})" for f in figures)
    quick = f"**{QUICK}**\n\n" if result["quick"] else ""
    return {**content, "made": quick + made_by(result)}


def update_page(text: str, content: Mapping[str, str]) -> str:
    """The page with every block <!-- begin:NAME --> … <!-- end:NAME --> replaced by content[NAME].

    A block without content and unpaired markers are errors, so that no part of a page is left out of date.
    """
    pattern = re.compile(r"<!-- begin:([\w-]+) -->\n(.*?)<!-- end:\1 -->", re.DOTALL)
    marks = len(re.findall(r"<!-- (?:begin|end):", text))
    if marks != 2 * len(pattern.findall(text)):
        raise GeomAttError("The page has a begin or end marker without its partner.")

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name not in content:
            raise GeomAttError(f"The page has a block {name!r}, but there is only: {', '.join(content)}.")
        return f"<!-- begin:{name} -->\n{content[name].strip()}\n<!-- end:{name} -->"

    return pattern.sub(fill, text)


def _markdown(section: Section, folder: Path) -> str:
    experiment, result = section.experiment, section.result
    parts = [f"## {experiment.title}", experiment.description]
    if result is None:
        return "\n\n".join([*parts, f"Not available: {section.missing}"])
    parts += [f"**{QUICK}**"] * bool(result["quick"]) + [experiment.summary(result)]
    parts += [f"### {table.title}\n\n{table.markdown()}" for table in experiment.tables(result)]
    parts += [
        f"![{f.caption}]({f.path.relative_to(folder).as_posix()})\n\n{f.caption}" for f in section.figures
    ]
    return "\n\n".join([*filter(None, parts), made_by(result)])
