"""`geomatt models`: the trained models that come with the package."""

from __future__ import annotations

import json
from typing import Annotated, Any

from geomatt.cli.console import number, output, say, table
from geomatt.cli.options import option


def models(
    as_json: Annotated[bool, option("Print the metadata of the files as JSON instead.", "--json")] = False,
) -> None:
    """List the trained models that come with geomatt: errors, data, licence, and how they were made."""
    from geomatt.model.zoo import HOW_TO_MAKE, LEANS, shipped_models, stability_of

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
    rows = []
    notes: dict[str, None] = {}
    for model in found:
        record = model.record
        test = record.get("test", {})
        errors = [number(test.get(name)) for name in ("energy_mae", "force_mae")]
        seen, tested = len(record.get("trained_frames", ())), test.get("frames", "–")
        rows.append([model.name, *errors, str(seen), str(tested), _intact(stability_of(model.path))])
        unit = test.get("unit", "eV")
        notes[f"Mean absolute errors in {unit} and {unit}/Å, on frames not seen."] = None
        notes[f"Data: {record.get('licence', 'licence not stated')}."] = None
        notes[
            f"Made with {record.get('made_by', 'an unknown command')} (geomatt {record.get('geomatt', '?')}, "
            f"commit {str(record.get('commit'))[:10]}, {record.get('hardware', '?')})."
        ] = None
    notes[
        "Intact: runs at 500 K that broke no bond, of how many, and their length; "
        "* before the model had the walls or bounds it has; – not run; w: a wall acted in more than "
        f"{100 * LEANS:.0f} % of the steps, so that distances are those of the walls."
    ] = None
    headings = ("name", "energy", "forces", "seen", "tested", "intact")
    output.print(table("Models that come with geomatt", headings, rows, left=("name",), no_wrap=True))
    say("\n".join(notes))
    say(f'next: geomatt info {found[0].name}; in Python geomatt.load("{found[0].name}")')


def _intact(tried: dict[str, Any]) -> str:
    """5/5 115 ps; with a star if the model was not simulated as it is, with a w if it leans on walls."""
    from geomatt.model.zoo import LEANS, most_alike

    runs, _, as_it_is = most_alike(tried, walls=True, bounded="bounded" in tried)
    if not runs:
        return "–"
    star = "" if as_it_is else "*"
    leans = " w" if runs.get("wall_share", 0.0) > LEANS else ""
    return f"{runs['intact']}/{runs['runs']}{star} {runs['ps']:g} ps{leans}"
