"""Self-contained HTML pages: the attention explorer and reports. They work offline and load nothing."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.pages.explain import explain
    from geomatt.pages.page import Page

_MODULES = {
    "Page": "page",
    "explain": "explain",
}

__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
