"""Plain values as TOML; the standard library reads it but does not write it."""

from __future__ import annotations

from typing import Any


def to_toml(value: Any) -> str:
    """A number, string, list or mapping as a TOML value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_string(k)} = {to_toml(v)}" for k, v in value.items()) + "}"
    raise TypeError(f"no TOML for {type(value)}")


def _string(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    body = "".join(escapes.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in value)
    return f'"{body}"'
