"""Several steps as one: from a molecule to a force field, and from a force field to a better one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.workflow.config import AutoConfig, ImproveConfig
    from geomatt.workflow.pipeline import auto
    from geomatt.workflow.rounds import improve

__all__, __getattr__, __dir__ = lazy_names(__name__)
