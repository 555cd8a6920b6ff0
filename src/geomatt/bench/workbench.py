"""Common to all suites: the settings, the network to measure, and the report to fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from geomatt.bench.report import BenchReport, BenchRow, Check, Floor
from geomatt.bench.settings import TARGETS, WITH_RADIUS, BenchSettings, parse_model
from geomatt.bench.systems import ELEMENTS, aspirin_frames
from geomatt.bench.timing import Contender, Timing, measure
from geomatt.data import Batch
from geomatt.model import Network, Work, network_class, new_network
from geomatt.progress import ProgressBar

STEP, FASTER = "time of a step", "times faster"  # what targets of rows are about


@dataclass
class Workbench:
    """One network under measurement."""

    settings: BenchSettings
    model: str
    report: BenchReport
    stage: ProgressBar

    def network(
        self, elements: tuple[int, ...] = ELEMENTS, *, seed: int | None = None, **changes: Any
    ) -> Network:
        """The network as training starts with it."""
        kind, own = parse_model(self.model)
        if self.settings.quick:
            own = {**network_class(kind).small, **own}
        seed = self.settings.seed if seed is None else seed
        return new_network(kind, own | changes, elements, seed=seed).to(self.settings.device)

    @property
    def with_radius(self) -> dict[str, Any]:
        """Settings with which the network has a radius, if it does not have one by default."""
        return WITH_RADIUS.get(parse_model(self.model)[0], {})

    def frames(self, count: int, **changes: Any) -> Batch:
        """Frames of aspirin."""
        return aspirin_frames(
            count, **{"seed": self.settings.seed, "device": self.settings.device, **changes}
        )

    def measure(self, title: str, contenders: Sequence[Contender]) -> list[Timing]:
        """Time contenders in turns."""
        return measure(f"{title}, {self.model}", contenders, self.settings.device, self.stage)

    def compare(
        self, suite: str, what: str, contenders: Sequence[Contender], work: Work | None, unit: str = ""
    ) -> None:
        """Time contenders in turns, and add a row for the first against each other one.

        With `unit` the row also has a rate, the number of units per second.
        """
        ours, *others = self.measure(what, contenders)
        for other in others:
            rates = f"{1 / ours.median:.0f} {unit} per second; {other.name} {1 / other.median:.0f}"
            self.add(suite, what, ours, other, work=work, note=rates if unit else "")

    def add(
        self,
        suite: str,
        what: str,
        ours: Timing,
        baseline: Timing,
        *,
        work: Work | None = None,
        checks: Sequence[Check] = (),
        note: str = "",
    ) -> None:
        """Add a row, with its floor and its targets."""
        row = BenchRow(suite, what, ours, baseline, note=note, floor=self.floor(work, ours))
        if not self.settings.quick:
            row.checks = [*self._targets(row), *checks]
        self.report.rows.append(row)

    def floor(self, work: Work | None, timing: Timing) -> Floor | None:
        """A time in relation to the machine's ceilings; None for work that was not counted."""
        if work is None or self.report.ceilings is None:
            return None
        seconds = self.report.ceilings.floor(work)
        return Floor(work, seconds, timing.median / seconds)

    def _targets(self, row: BenchRow) -> list[Check]:
        device = torch.device(self.settings.device).type
        return target_checks(
            self.model, device, row.suite, row.baseline.name, row.ours.median, row.ratio.median
        )


def target_checks(
    model: str, device: str, suite: str, baseline: str, seconds: float, faster: float
) -> list[Check]:
    """The targets of a row, with its time and how many times faster than the baseline it is."""
    return [
        Check(STEP, 1e3 * seconds, goal, True, unit)
        if unit == "ms"
        else Check(FASTER, faster, goal, False, unit)
        for goal, unit in TARGETS.get((model, device, suite, baseline), ())
    ]
