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

from geomatt.errors import GeomAttError
from geomatt.model.registry import network_config, network_names
from geomatt.simulation.settings import SIMULATIONS
from geomatt.training.config import MODEL, TrainConfig
from geomatt.training.recipes import RECIPES
from geomatt.workflow.config import AutoConfig, ImproveConfig

Fields = dict[str, dataclasses.Field[Any]]


def train_fields(leave_out: Iterable[str] = ()) -> Fields:
    """The fields of `TrainConfig` that are options."""
    found = {f.name: f for f in dataclasses.fields(TrainConfig) if f.metadata.get("option", True)}
    return {name: f for name, f in found.items() if name not in set(leave_out)}


def with_settings(*, networks: bool, leave_out: Iterable[str] = ()) -> Callable[[Any], Any]:
    """Give a command an option for every setting of a run; it receives what was given as `settings`.

    With `networks` also the settings of every kind of network.
    """
    fields = train_fields(leave_out)
    hints = get_type_hints(TrainConfig)
    options = {name: _option(name, hints[name], f.metadata, f.default) for name, f in fields.items()}
    if networks:
        for name, described in _network_settings().items():
            options.setdefault(name, described)
    return _with_options(options)


def with_config(config: Any, leave_out: Iterable[str] = ()) -> Callable[[Any], Any]:
    """Give a command an option for every field of a config dataclass; it receives `settings`."""
    hints = get_type_hints(config)
    fields = [f for f in dataclasses.fields(config) if f.name not in set(leave_out)]
    return _with_options(
        {f.name: _option(f.name, hints[f.name], f.metadata, f.default, recipes=False) for f in fields}
    )


def _with_options(options: Mapping[str, tuple[Any, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "settings"]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, (annotation, _) in options.items()
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in options}
            settings = {
                name: options[name][1](value) for name, value in given.items() if value not in (None, [], ())
            }
            command(**values, settings=settings)

        parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *added]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        del run.__wrapped__
        return run

    return decorate


def _flags() -> dict[str, str]:
    """The option of every setting, to be named in messages."""
    configs = (ImproveConfig, AutoConfig, *SIMULATIONS)
    others = {f.name: f for config in configs for f in dataclasses.fields(config)}
    known = {**others, **_all_network_fields()[0], **train_fields()}
    return {name: _flag(name, f.metadata) for name, f in known.items()}


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


def _network_settings() -> dict[str, Any]:
    """An option for each setting of any network; the help says whose it is if not all have it."""
    fields, owners, hints = _all_network_fields()
    result = {}
    for name, field in fields.items():
        metadata = {**field.metadata, "group": MODEL}
        if len(owners[name]) < len(network_names()):
            metadata["help"] = f"{', '.join(owners[name])}: {field.metadata['help']}"
        result[name] = _option(name, hints[name], metadata, field.default)
    return result


def _all_network_fields() -> tuple[Fields, dict[str, list[str]], dict[str, Any]]:
    fields: Fields = {}
    owners: dict[str, list[str]] = {}
    hints: dict[str, Any] = {}
    for kind in network_names():
        config = network_config(kind)
        for name, field in config.settings().items():
            fields.setdefault(name, field)
            owners.setdefault(name, []).append(kind)
            hints.setdefault(name, get_type_hints(config)[name])
    return fields, owners, hints


def _flag(name: str, metadata: Any) -> str:
    return str(metadata.get("flag") or "--" + name.replace("_", "-"))


def _option(
    name: str, hint: Any, metadata: Any, default: Any, recipes: bool = True
) -> tuple[Any, Callable[[Any], Any]]:
    """The annotation of an option, and what turns its value into the setting's."""
    flag, text = _flag(name, metadata), metadata["help"]
    text = (text[0].upper() if text[0].isascii() else text[0]) + text[1:]
    if recipes and name in RECIPES["fast"]:
        text += ", by the recipe unless given"
    elif default not in (None, "", (), False) and "(" not in text:
        shown = {True: "yes"}.get(default, default) if isinstance(default, bool) else default
        text += f" ({','.join(map(str, shown)) if isinstance(shown, tuple) else shown})"
    kind, convert, rest = _kind(name, str(hint), metadata)
    if kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}" if default else flag
    option = typer.Option(
        flag, help=f"{text}.", rich_help_panel=metadata["group"], show_default=False, **rest
    )
    return Annotated[kind | None, option], convert


def _kind(name: str, hint: str, metadata: Any) -> tuple[Any, Callable[[Any], Any], dict[str, Any]]:
    """The type of an option, the conversion of its value, and more arguments for it."""
    if metadata.get("path"):
        return Path, lambda value: str(Path(value).resolve()), {}
    if hint.startswith("dict"):
        example = metadata["example"]
        pairs = functools.partial(parse_pairs, flag=_flag(name, metadata), example=example)
        return list[str], parse_reference if "float" in hint else pairs, {"metavar": "NAME=VALUE"}
    if hint == "tuple[str, ...]":
        return list[str], lambda names: tuple(map(from_anywhere, names)), {"metavar": "FILE"}
    if hint == "tuple[int, ...]":
        return str, functools.partial(parse_integers, flag=_flag(name, metadata)), {"metavar": "2,3,4"}
    if hint == "tuple[float, ...]":
        return str, functools.partial(parse_numbers, flag=_flag(name, metadata)), {"metavar": "300,1000"}
    plain = {str(bool): bool, str(int): int, "int | None": int, str(float): float, "float | None": float}
    return plain.get(hint, str), lambda value: value, {}


def from_anywhere(name: str) -> str:
    """The absolute path of a file, so that a run can be repeated from any folder; other names unchanged."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def parse_integers(text: str, flag: str) -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise GeomAttError(f"{flag} must be whole numbers such as 2,3,4, not {text!r}.") from None


def parse_numbers(text: str, flag: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise GeomAttError(f"{flag} must be numbers such as 300,1000, not {text!r}.") from None


def parse_pairs(items: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    mapping = {}
    for item in items:
        name, _, value = item.partition("=")
        if not name or not value:
            raise GeomAttError(f"{flag} {item!r} is not of the form {example}.")
        mapping[name.strip()] = value.strip()
    return mapping


def parse_reference(items: Sequence[str]) -> dict[str, float]:
    """Energies of atoms, H=-13.6, by atomic number."""
    from geomatt.elements import atomic_number

    pairs = parse_pairs(items, "--reference", "H=-13.6")
    try:
        return {str(atomic_number(z)): float(e) for z, e in pairs.items()}
    except ValueError as error:
        raise GeomAttError(f"--reference needs energies in eV, such as H=-13.6 ({error}).") from None
