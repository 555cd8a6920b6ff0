"""Long dynamics of a model: under which conditions it was run, and which of the runs speak against its use.

`record["stability"]` of a shipped model has results by the name of a condition: of the runs at 500 K the
number of `runs`, those `intact`, their length `ps`, when others failed (`failed_at_ps`) and the mean
error of the distribution of distances (`histogram_error`); with walls the share of steps in which one
acted (`wall_share`); and runs at constant energy (`nve`). The key "bounded" is there for models that ship
with bounds, with None if they were not run with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEANS = 0.05  # share of steps with an active wall above which a model leans on walls
Tried = Mapping[str, Any]  # results by condition


@dataclass(frozen=True)
class Condition:
    """What simulations had that keeps them where the model was trained."""

    name: str  # in results
    walls: bool
    bounds: bool  # of the network, see `Network.bounds`

    def words(self, has_bounds: bool) -> str:
        """In words; bounds are left out for models that never had any."""
        walls = "with walls" if self.walls else "without walls"
        if not has_bounds:
            return walls
        if self.walls and self.bounds:
            return "with walls and bounds"
        return f"{walls} and {'with' if self.bounds else 'without'} bounds"


CONDITIONS = (
    Condition("bounded", walls=True, bounds=True),
    Condition("walls", walls=True, bounds=False),
    Condition("free", walls=False, bounds=False),
)


@dataclass(frozen=True)
class Outcome:
    """The results of one condition."""

    condition: Condition
    runs: Mapping[str, Any]
    has_bounds: bool  # the model that ships

    @property
    def as_it_ships(self) -> bool:
        """The runs had the bounds that the model has."""
        return self.condition.bounds == self.has_bounds

    @property
    def failed(self) -> list[float]:
        """After how many ps runs failed."""
        return list(self.runs["failed_at_ps"])

    @property
    def leans(self) -> bool:
        return bool(self.runs.get("wall_share", 0.0) > LEANS)

    @property
    def words(self) -> str:
        """What happened, in a clause."""
        condition, count = self.condition.words(self.has_bounds), self.runs["runs"]
        if failed := self.failed:
            return (
                f"{len(failed)} of {count} runs of {self.runs['ps']:g} ps {condition} fell apart, "
                f"the first after {min(failed):.1f} ps"
            )
        if self.leans:
            share = 100 * self.runs["wall_share"]
            return (
                f"in runs of {self.runs['ps']:g} ps {condition} a wall held it in {share:.0f} % of the steps"
            )
        return f"{self.runs['intact']} of {count} runs of {self.runs['ps']:g} ps {condition} stayed intact"


def outcomes(tried: Tried, has_bounds: bool = False) -> list[Outcome]:
    """Of every condition that was run, those with walls first. `has_bounds`: the model does, in any case."""
    has_bounds = has_bounds or "bounded" in tried
    return [Outcome(c, tried[c.name], has_bounds) for c in CONDITIONS if tried.get(c.name)]


def against(tried: Tried, walls: bool, bounds: bool) -> list[Outcome]:
    """What speaks against dynamics with or without walls and bounds; runs that failed come first.

    Failures of runs that were kept in more ways, or in others, count: nothing says that fewer are safer.
    Those of runs that were kept in fewer count if they came later than runs more alike have got to. If
    anything does count, the runs most alike are there, too.
    """
    found = sorted(
        outcomes(tried, bounds), key=lambda o: (o.condition.walls != walls, o.condition.bounds != bounds)
    )  # those most alike first
    counted = []
    reached = 0.0  # ps of runs that had no more than is asked about
    for outcome in found:
        own = outcome.condition
        no_more = own.walls <= walls and own.bounds <= bounds
        fewer = no_more and (own.walls, own.bounds) != (walls, bounds)
        if any(not fewer or ps > reached for ps in outcome.failed) or (outcome.leans and not reached):
            counted.append(outcome)
        if no_more:
            reached = max(reached, outcome.runs["ps"])
    if counted and found[0] not in counted:
        counted.append(found[0])
    return sorted(counted, key=lambda outcome: not outcome.failed)


def warning(tried: Tried, walls: bool, bounds: bool) -> str:
    """A warning for dynamics with or without walls and bounds; empty if nothing speaks against it."""
    found = against(tried, walls, bounds)
    if not found:
        return ""
    longest = max(outcome.runs["ps"] for outcome in found)
    clauses = [
        outcome.words + (", but were shorter" if _intact(outcome) and outcome.runs["ps"] < longest else "")
        for outcome in found
    ]
    return (
        f"This model failed in long dynamics at 500 K: {'; '.join(clauses)}. "
        "`geomatt models --stability` lists those that stay intact."
    )


def _intact(outcome: Outcome) -> bool:
    return not outcome.failed and not outcome.leans
