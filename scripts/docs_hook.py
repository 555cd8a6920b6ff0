"""Hook of mkdocs: pages generated from the code, files of the repository as pages, equations as MathML."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
from pathlib import Path
from typing import Any

import typer
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ("geomatt.data", "geomatt.model", "geomatt.training", "geomatt.evaluation", "geomatt.simulation",
          "geomatt.analysis", "geomatt.pages")  # fmt: skip


def on_config(config: Any) -> Any:
    """Pages that the navigation does not name go into a section "More guides"."""
    listed = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    found = [path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")]
    if more := sorted(set(found) - listed):
        config.nav.insert(-1, {"More guides": more})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, content in {
        "reference/commands.md": command_reference(),
        "reference/python.md": python_reference(),
        "contributing.md": from_root("CONTRIBUTING.md"),
        "changelog.md": from_root("CHANGELOG.md"),
    }.items():
        files.append(File.generated(config, path, content=content))
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=example_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to examples, and equations in pages that say `math: true`.

    Equations are $$ … $$ on lines of their own, and $ … $ in text.
    """
    markdown = markdown.replace("<!-- measured:explorer -->", explorer_table())
    markdown = markdown.replace("<!-- measured:shipped -->", shipped_rows())
    folder = (Path("docs") / page.file.src_uri).parent
    markdown = re.sub(
        r"\[([^\]\n]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)", lambda m: _link(m, folder), markdown
    )
    if not page.meta.get("math"):
        return markdown
    markdown = re.sub(
        r"^\$\$\n(.+?)\n\$\$$",
        lambda m: f"<div>{convert(m[1], display='block')}</div>",
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"\$(\S(?:[^$\n]*\S)?)\$", lambda m: convert(m[1]), markdown)


def _link(match: re.Match[str], folder: Path) -> str:
    """A link out of a page: to a page made from that file, or its text alone if there is none."""
    text, target, anchor = match[1], os.path.normpath(folder / match[2]), match[3] or ""
    if target.startswith("docs/"):
        return match[0]
    up = "../" * (len(folder.parts) - 1)
    made = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
    if target.startswith("examples/") and target.endswith(".py"):
        made[target] = f"{target.removesuffix('.py')}.md"
    return f"[{text}]({up}{made[target]}{anchor})" if target in made else text


def explorer_table() -> str:
    """Sizes and times of explorer pages, as measured."""
    result = json.loads((ROOT / "results" / "explorer.json").read_text(encoding="utf-8"))
    head = ["| network | atoms | frames | size | first paint | ready |", "|---|---:|---:|---:|---:|---:|"]
    rows = [
        f"| {r['network']} | {r['atoms']} | {r['frames']} | {r['megabytes']} MB | {r['first_paint_ms']} ms "
        f"| {r['ready_ms']} ms |"
        for r in result["rows"]
    ]
    source = f"`scripts/measure_explorer.py`, {result['browser']}, {result['hardware']}, a busy machine."
    return "\n".join([*head, *rows, "", source])


def shipped_rows() -> str:
    """Force errors of the models that come with the package, as rows of the table of published errors."""
    from geomatt.model.zoo import shipped_models

    errors = {m.name: m.record["test"]["force_mae"] for m in shipped_models()}
    networks = {"fast": "geomatt, geometric attention, fast recipe", "pair": "geomatt, pair states"}
    molecules = ("aspirin", "ethanol", "toluene", "uracil")
    return "\n".join(
        f"| **{words}** | " + " | ".join(f"{errors[f'md17/{m}:{kind}']:.2f}" for m in molecules) + " |"
        for kind, words in networks.items()
    )


def example_page(path: Path) -> str:
    """The source of an example."""
    return f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"


def from_root(name: str) -> str:
    """A file of the repository's root; links into docs/ become links between pages."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


# ---- commands ---------------------------------------------------------------------------------------------


def command_reference() -> str:
    """Every command with its help, arguments and options."""
    from geomatt.cli import app

    parts = ["# Commands", "Generated from the program. `geomatt COMMAND --help` shows the same."]
    parts += list(_commands("geomatt", typer.main.get_command(app)))
    return "\n\n".join(parts) + "\n"


def _commands(name: str, command: Any) -> Any:
    if hasattr(command, "commands"):
        for child, found in command.commands.items():
            yield from _commands(f"{name} {child}", found)
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)])
    yield f"## {name}"
    yield f"```sh\n{usage} [OPTIONS]\n```"
    yield _text(command.help)
    rows = [_row(p) for p in command.params if not getattr(p, "hidden", False)]
    yield "\n".join(["| | | default |", "|---|---|---|", *rows])
    if command.epilog:
        yield f"```sh\n{command.epilog.removeprefix('Example: ')}\n```"


def _row(parameter: Any) -> str:
    names = parameter.name.upper()
    if parameter.param_type_name == "option":
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = "" if default in (None, (), "", False) or callable(default) else f"`{default}`"
    if parameter.required:
        shown = "required"
    return (
        f"| `{names}` | {_text(getattr(parameter, 'help', '') or '').replace('|', chr(92) + '|')} | {shown} |"
    )


def _text(help_text: str | None) -> str:
    """Help without rich's markup."""
    return re.sub(r"\[/?[a-z ]*\]", "", inspect.cleandoc(help_text or ""))


# ---- Python -----------------------------------------------------------------------------------------------


def python_reference() -> str:
    """Every public name with its signature and docstring."""
    import geomatt

    start = (
        "Generated from the code. `import geomatt` gives the names of the first section; the others come "
        "from the module named in the heading. eV and Å everywhere."
    )
    parts = ["# Python", start, "## geomatt"]
    top = [name for name in geomatt.__all__ if not name.startswith("_")]
    parts += _names("geomatt", sorted(top, key=str.lower))
    for module in PUBLIC:
        found = __import__(module, fromlist=["__all__"])
        names = [name for name in found.__all__ if name not in top]
        parts += [f"## {module}", _text(found.__doc__), *_names(module, sorted(names, key=str.lower))]
    return "\n\n".join(parts) + "\n"


def _names(module: str, names: list[str]) -> list[str]:
    found = __import__(module, fromlist=names)
    return [text for name in names for text in _described(name, getattr(found, name))]


def _described(name: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        parts = [f"### {name}", f"```python\nclass {name}{_signature(value)}\n```", _text(value.__doc__)]
        for method, function in inspect.getmembers(value):
            own = method in {m for c in value.__mro__ if c.__module__.startswith("geomatt") for m in vars(c)}
            if own and not method.startswith("_") and callable(function) and function.__doc__:
                parts.append(f"**`{method}{_signature(function, short=True)}`** {_text(function.__doc__)}")
        return [part for part in parts if part]
    if callable(value):
        return [f"### {name}", f"```python\n{name}{_signature(value)}\n```", _text(value.__doc__)]
    return [f"### {name}", f"`{value!r}`"[:200]]


def _signature(value: Any, short: bool = False) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    kept = []
    for p in signature.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.default is not p.empty and (
            " at 0x" in repr(p.default) or isinstance(p.default, dataclasses.Field)
        ):
            p = p.replace(default=...)
        kept.append(p)
    text = str(signature.replace(parameters=kept)).replace("'", "")
    if short or len(text) < 90:
        return text
    lines = [f"    {p!s}," for p in kept]  # one parameter a line
    if starred := next((k for k, p in enumerate(kept) if p.kind is p.KEYWORD_ONLY), 0):
        lines.insert(starred, "    *,")
    returned = text.rpartition(") -> ")[2] if ") -> " in text else ""
    arrow = f" -> {returned}" if returned else ""
    return ("(\n" + "\n".join(lines) + f"\n){arrow}").replace("'", "")
