"""Self-contained HTML pages: the attention explorer and reports. They work offline and load nothing."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.pages.explorer import explain
    from geomatt.pages.members import members_report
    from geomatt.pages.page import Block, Page
    from geomatt.pages.reports import evaluation_report, run_report
    from geomatt.pages.simulations import dynamics_report

__all__, __getattr__, __dir__ = lazy_names(__name__)
