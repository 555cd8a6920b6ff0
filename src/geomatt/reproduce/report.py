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
from geomatt.pages import Block, Page
from geomatt.reproduce.frame import Experiment, Figure

TITLE = "The paper, reproduced"
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
    """Write `report.md` and `report.html` (one page in the style of all reports) into `folder`."""
    markdown = folder / "report.md"
    text = "\n\n".join([f"# {TITLE}", *(_markdown(s, folder) for s in sections)]) + "\n"
    with atomic_output(markdown) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return markdown, report_page(sections).save(folder / "report.html")


def report_page(sections: Sequence[Section]) -> Page:
    """All experiments on one page."""
    found = [s for s in sections if s.result is not None]
    subtitle = f"{len(found)} of {len(sections)} experiments"
    contents: Block = {"kind": "contents", "headings": [s.experiment.title for s in sections]}
    return Page(TITLE, subtitle, [contents, *(block for s in sections for block in _blocks(s))])


def _blocks(section: Section) -> list[Block]:
    experiment, result = section.experiment, section.result
    made: list[Block] = [
        {"kind": "heading", "text": experiment.title},
        {"kind": "prose", "text": experiment.description},
    ]
    if result is None:
        return [*made, {"kind": "text", "text": f"Not available: {section.missing}", "note": True}]
    if result["quick"]:
        made.append({"kind": "text", "text": QUICK, "note": True})
    made.append({"kind": "prose", "text": experiment.summary(result)})
    for table in experiment.tables(result):
        made.append(
            {
                "kind": "table",
                "title": table.title,
                "header": list(table.columns),
                "rows": [list(row) for row in table.rows],
                "strong": sorted(table.strong),
                "note": table.note,
            }
        )
    figures = [{"source": _embedded(f.path), "caption": f.caption} for f in section.figures]
    return [*made, {"kind": "figures", "items": figures}, {"kind": "prose", "text": made_by(result)}]


def _embedded(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def plain_summary(experiment: Experiment, result: Mapping[str, Any]) -> str:
    """The findings without the marks of Markdown that summaries have, for a terminal."""
    return re.sub(r"\*\*|`", "", experiment.summary(result))


def made_by(result: Mapping[str, Any]) -> str:
    """A sentence about the origin of the numbers."""
    commits = ", ".join(c[:10] for c in result["commits"]) or "unknown"
    data = [f"{name} ({d['fingerprint'][:10]})" for name, d in _sources(result).items()]
    on = f" on {'; '.join(result['hardware'])}" if result["hardware"] else ""
    return (
        f"Made by `geomatt reproduce {result['experiment']}{' --quick' if result['quick'] else ''}`, "
        f"seed {result['seed']}, commit {commits}, {result['seconds']:.0f} s{on}"
        + (f"; data: {', '.join(data)}." if data else ".")
    )


def _sources(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The data of a result by the names of what was used, not of what it stood in for."""
    data: Mapping[str, Mapping[str, Any]] = result.get("data", {})
    if not result.get("settings", {}).get("stand_in"):
        return dict(data)
    return {n if n.startswith("embedded/") else f"embedded/{d['name']}": d for n, d in data.items()}


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
