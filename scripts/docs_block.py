"""Generated parts of documentation pages, between <!-- begin:NAME --> and <!-- end:NAME -->."""

from __future__ import annotations

from pathlib import Path


def write_block(page: Path, name: str, text: str) -> None:
    """Replace the block of a page."""
    start, end = f"<!-- begin:{name} -->", f"<!-- end:{name} -->"
    whole = page.read_text(encoding="utf-8")
    if whole.count(start) != 1 or whole.count(end) != 1:
        raise SystemExit(f"{page} has no block {name}.")
    before, rest = whole.split(start)
    page.write_text(f"{before}{start}\n{text.strip()}\n{end}{rest.split(end)[1]}", encoding="utf-8")
