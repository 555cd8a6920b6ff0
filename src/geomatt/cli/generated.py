"""Command-line options generated from the fields of config dataclasses: each option is written once."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from geomatt.elements import atomic_number
from geomatt.errors import GeomAttError
from geomatt.model.registry import network_config, network_names
from geomatt.simulation.settings import ENSEMBLES, SIMULATIONS
from geomatt.training.config import MODEL, TrainConfig
from geomatt.training.recipes import RECIPES
from geomatt.workflow.config import AutoConfig, ImproveConfig

Options = dict[str, tuple[Any, Callable[[Any], Any]]]  # annotation and conversion, by the name of the setting


def with_options(**groups: Options) -> Callable[[Any], Any]:
    """Give a command the options of each group; it receives those that were given as a dictionary `group`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in signature.parameters.values()
            if p.name not in groups
        ]
        for options in groups.values():
            for name, (annotation, _) in options.items():
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters.append(inspect.Parameter(name, kind, default=None, annotation=annotation))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for group, options in groups.items():
                given = {name: values.pop(name) for name in options}
                values[group] = {n: options[n][1](v) for n, v in given.items() if v not in (None, [], ())}
            command(**values)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        del run.__wrapped__
        return run

    return decorate


def options_of(config: Any, *only: str, leave_out: Iterable[str] = ()) -> Options:
    """An option for every field of a config dataclass, or for those named."""
    hints = get_type_hints(config)
    fields = {f.name: f for f in dataclasses.fields(config) if f.metadata.get("option", True)}
    return {
        name: _option(name, hints[name], f.metadata, f.default, recipes=config is TrainConfig)
        for name, f in fields.items()
        if name not in set(leave_out) and (not only or name in only)
    }


def network_options() -> Options:
    """An option for each setting of any network; the help says whose it is if not all have it."""
    options: Options = {}
    for name, owners in _network_owners().items():
        config = network_config(owners[0])
        field = config.settings()[name]
        metadata = {**field.metadata, "group": MODEL}
        if len(owners) < len(network_names()):
            metadata["help"] = f"{', '.join(owners)}: {field.metadata['help']}"
        options[name] = _option(name, get_type_hints(config)[name], metadata, field.default, recipes=True)
    return options


def with_flags(message: str) -> str:
    """A message with every setting in backticks (`name`) replaced by its option (--name)."""
    known = {**_flags(), "out": "--out", "resume": "--resume", "include_trained": "--include-trained",
             "tensorboard": "--tensorboard", "unfreeze": "--unfreeze", "elements": "--elements",
             "models": "--models", "workers": "--workers", "dask": "--dask"}  # fmt: skip

    def flag(match: re.Match[str]) -> str:
        name, off = match.groups()
        if name not in known:
            return match.group(0)
        return known[name].replace("--", "--no-", 1) if off else known[name]

    return re.sub(r"`([a-z_]+)`( False)?", flag, message)


def _flags() -> dict[str, str]:
    """The option of every setting, to be named in messages."""
    networks = {
        name: network_config(owners[0]).settings()[name] for name, owners in _network_owners().items()
    }
    configs = (ImproveConfig, AutoConfig, *SIMULATIONS)
    others = {f.name: f for config in configs for f in dataclasses.fields(config)}
    own = {f.name: f for f in dataclasses.fields(TrainConfig) if f.metadata.get("option", True)}
    return {name: _flag(name, f.metadata) for name, f in {**others, **networks, **own}.items()}


def _network_owners() -> dict[str, list[str]]:
    """The kinds of networks that have a setting, by its name."""
    owners: dict[str, list[str]] = {}
    for kind in network_names():
        for name in network_config(kind).settings():
            owners.setdefault(name, []).append(kind)
    return owners


def _flag(name: str, metadata: Any) -> str:
    return str(metadata.get("flag") or "--" + name.replace("_", "-"))


def _option(
    name: str, hint: Any, metadata: Any, default: Any, recipes: bool
) -> tuple[Any, Callable[[Any], Any]]:
    """The annotation of an option, and what turns its value into the setting's."""
    flag, text = _flag(name, metadata), metadata["help"]
    values = {*network_names(), *ENSEMBLES, *metadata.get("choices", ())}
    if text[0].isascii() and re.split(r"[\s,:]", text)[0] not in values:
        text = text[0].upper() + text[1:]  # values of options stay as they are typed
    if recipes and name in RECIPES["fast"].settings:
        text += ", by the recipe unless given"
    elif default not in (None, "", (), False) and "(" not in text:
        shown = {True: "yes"}.get(default, default) if isinstance(default, bool) else default
        text += f" ({','.join(map(str, shown)) if isinstance(shown, tuple) else shown})"
    kind, convert, metavar = _kind(flag, str(hint), metadata)
    if kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}" if default else flag
    option = typer.Option(
        flag, help=f"{text}.", rich_help_panel=metadata["group"], show_default=False, metavar=metavar
    )
    return Annotated[kind | None, option], convert


def _kind(flag: str, hint: str, metadata: Any) -> tuple[Any, Callable[[Any], Any], str | None]:
    """The type of an option, the conversion of its value, and what stands for the value in the help."""
    if metadata.get("path"):
        return Path, lambda value: str(Path(value).resolve()), None
    if hint.startswith("dict"):
        kinds: dict[str, Callable[[Any], Any]] = {"dict[str, str]": dict, "dict[str, float]": _reference}
        into = kinds.get(hint, parse_values)
        return list[str], lambda items: into(parse_pairs(items, flag, metadata["example"])), "NAME=VALUE"
    if hint == "tuple[str, ...]":
        return list[str], lambda names: tuple(map(from_anywhere, names)), "FILE"
    if hint == "tuple[int, ...]":
        return str, functools.partial(parse_numbers, flag=flag), "2,3,4"
    if hint == "tuple[float, ...]":
        return str, functools.partial(parse_numbers, flag=flag, kind=float), "300,1000"
    plain = {str(bool): bool, str(int): int, "int | None": int, str(float): float, "float | None": float}
    return plain.get(hint, str), lambda value: value, None


def from_anywhere(name: str | Path) -> str:
    """The absolute path of a file, so that a run can be repeated from any folder; other names unchanged."""
    return str(Path(name).resolve()) if Path(name).exists() else str(name)


def parse_numbers(text: str, flag: str, kind: type = int) -> tuple[Any, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        what = "whole numbers such as 2,3,4" if kind is int else "numbers such as 300,1000"
        raise GeomAttError(f"{flag} must be {what}, not {text!r}.") from None


def parse_pairs(items: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    mapping = {}
    for item in items:
        name, _, value = item.partition("=")
        if not name or not value:
            raise GeomAttError(f"{flag} {item!r} is not of the form {example}.")
        mapping[name.strip()] = value.strip()
    return mapping


def parse_values(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Texts as the numbers, truth values or lists they stand for."""
    from geomatt.data.make.method import parse_arguments

    return parse_arguments(pairs)


def _reference(pairs: Mapping[str, str]) -> dict[str, float]:
    """Energies of atoms, H=-13.6, by atomic number."""
    try:
        return {str(atomic_number(z)): float(e) for z, e in pairs.items()}
    except ValueError as error:
        raise GeomAttError(f"--reference needs energies in eV, such as H=-13.6 ({error}).") from None
