"""`geomatt models`: the trained models that come with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from geomatt.cli.console import count, number, output, say, table
from geomatt.cli.options import option

if TYPE_CHECKING:
    from geomatt.model.stability import Outcome
    from geomatt.model.zoo import Shipped


def models(
    as_json: Annotated[bool, option("Print the metadata of the files as JSON instead.", "--json")] = False,
    stability: Annotated[
        bool,
        option("Print what came of long dynamics with them, with and without walls, instead.", "--stability"),
    ] = False,
) -> None:
    """List the trained models that come with geomatt: errors, data, licence, and how they were made.

    With --stability, how they fared in long dynamics.
    """
    from geomatt.model.zoo import HOW_TO_MAKE, shipped_models, stability_of

    found = shipped_models()
    if as_json:
        described = {m.name: {**m.header, "stability": stability_of(m.path)} for m in found}
        print(json.dumps(described, indent=2))
        return
    if not found:
        say(
            f"No models ship with this version. Make them with: {HOW_TO_MAKE}\n"
            "They are then in runs/reproduce/models; load one by its path."
        )
        return
    tried = {model.name: stability_of(model.path) for model in found}
    if stability:
        _print_stability(tried)
    else:
        _print_models(found, tried)


def _print_models(found: Sequence[Shipped], tried: Mapping[str, Mapping[str, Any]]) -> None:
    from geomatt.model.stability import LEANS

    rows = []
    notes: dict[str, None] = {}
    for model in found:
        record = model.record
        test = record.get("test", {})
        errors = [number(test.get(name)) for name in ("energy_mae", "force_mae")]
        seen, tested = len(record.get("trained_frames", ())), test.get("frames", "–")
        kept = [_intact(tried[model.name], walls) for walls in (True, False)]
        rows.append([model.name, *errors, str(seen), str(tested), *kept])
        unit = test.get("unit", "eV")
        notes[f"Mean absolute errors in {unit} and {unit}/Å, on frames not seen."] = None
        notes[f"Data: {record.get('licence', 'licence not stated')}."] = None
        notes[
            f"Made with {record.get('made_by', 'an unknown command')} (geomatt {record.get('geomatt', '?')}, "
            f"commit {str(record.get('commit'))[:10]}, {record.get('hardware', '?')})."
        ] = None
    notes[
        "With walls, no walls: runs at 500 K that broke no bond, of how many, and their length in ps; "
        "*: before the model had the bounds it has; "
        f"w: a wall acted in more than {100 * LEANS:.0f} % of the steps, so that distances are those of the "
        "walls; –: not run. More: geomatt models --stability"
    ] = None
    headings = ("name", "energy", "forces", "seen", "tested", "with walls", "no walls")
    output.print(_narrow("Models that come with geomatt", headings, rows, gap=2))
    _print_notes(notes)
    say(f'next: geomatt info {found[0].name}; in Python geomatt.load("{found[0].name}")')


def _intact(tried: Mapping[str, Any], walls: bool) -> str:
    """5/5 115; with a star if the runs lacked the bounds of the model, with a w if it leans on walls.

    Of the runs most alike, or of those that speak against it although they are less alike.
    """
    from geomatt.model.stability import against, outcomes

    bounds = "bounded" in tried
    every = [*against(tried, walls, bounds), *outcomes(tried)]
    runs = next((outcome for outcome in every if outcome.condition.walls == walls), None)
    if runs is None:
        return "–"
    return _share(runs) + ("" if runs.as_it_ships else "*") + f" {runs.runs['ps']:g}" + " w" * runs.leans


def _print_stability(tried: Mapping[str, Mapping[str, Any]]) -> None:
    from geomatt.model.stability import outcomes

    rows = [_stability_row(name, outcome) for name in tried for outcome in outcomes(tried[name])]
    if not rows:
        say("No long dynamics were run with these models. Run them with: geomatt reproduce stability")
        return
    headings = ("name", "walls", "bounds", "intact", "ps", "first", "acted", "h(r)", "drift")
    output.print(_narrow("Long dynamics with models that come with geomatt, 500 K", headings, rows, gap=1))
    waiting = sum("bounded" in of_model and not of_model["bounded"] for of_model in tried.values())
    without = [name for name, of_model in tried.items() if not outcomes(of_model)]
    notes = [
        "Walls: where the training data end. Bounds: of the network; no: run without those the model ships "
        "with; –: it has none.",
        "Intact: runs that broke no bond, of how many, each of so many ps. First: when the first of them "
        "failed, in ps. Acted: the steps in which a wall did, in %.",
        "h(r): error of the distribution of distances, the mean of the runs. Drift: the largest of runs at "
        "constant energy and 300 K, in meV/atom/ps; f: some of these failed; –: not measured.",
    ]
    if waiting:
        notes.append(f"{count(waiting, 'model')} not run yet as shipped, with walls and bounds.")
    if without:
        notes.append(f"Not run: {', '.join(without)}.")
    _print_notes(notes)


def _stability_row(name: str, outcome: Outcome) -> list[str]:
    runs, condition = outcome.runs, outcome.condition
    constant = runs.get("nve", {})
    share = runs.get("wall_share")
    drift = number(constant.get("drift_meV_per_atom_ps"), ".1g")
    return [
        name,
        "yes" if condition.walls else "no",
        ("yes" if condition.bounds else "no") if outcome.has_bounds else "–",
        _share(outcome),
        f"{runs['ps']:g}",
        number(min(outcome.failed, default=None), ".1f"),
        number(None if share is None else 100 * share, ".2f"),
        number(runs.get("histogram_error")),
        drift + " f" * (constant.get("intact") != constant.get("runs")),
    ]


def _share(outcome: Outcome) -> str:
    return f"{outcome.runs['intact']}/{outcome.runs['runs']}"


def _narrow(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> Table:
    """A table that fits a terminal of 80 columns, which is also what files and pipes are given."""
    return table(
        title,
        headings,
        rows,
        left=("name",),
        no_wrap=True,
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, gap - 1, 0, 0),
    )


def _print_notes(notes: Sequence[str] | Mapping[str, None]) -> None:
    """Lines broken between words."""
    output.print("\n".join(notes), highlight=False, markup=False)
