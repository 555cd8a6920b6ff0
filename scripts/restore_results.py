"""Turn committed results into pieces, so that a later run adds to them instead of computing them again.

    python scripts/restore_results.py --data DIR --out runs/reproduce
    geomatt reproduce table1 --data DIR --out runs/reproduce --part schnet-all --device cuda
    cp runs/reproduce/table1.json results/
    python -m geomatt.reproduce.docs

Works for tables 1 to 3 and DNA. A result of other data or settings than today's is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geomatt.errors import GeomAttError
from geomatt.reproduce import ExperimentSettings, silent
from geomatt.reproduce import dna_models as dna
from geomatt.reproduce.frame import Pieces, read_json
from geomatt.reproduce.inputs import described, load_data
from geomatt.reproduce.md17 import UNTRAINED, Md17Study, Member
from geomatt.training import TrainConfig

RESULTS = Path(__file__).resolve().parents[1] / "results"


def members(result: Mapping[str, Any]) -> Iterator[tuple[Member, dict[str, Any]]]:
    """The members of a table, with their values."""
    rows = result["rows"]
    if result["experiment"] == "table1":
        for kind, molecules in rows.items():
            for molecule, models in molecules.items():
                for model in models:
                    which = {key: model[key] for key in ("fold", "seed", "draw") if key in model}
                    value = {name: item for name, item in model.items() if name not in which}
                    other = {"formula": {"weighting": "paper"}, "draws": {}}.get(kind, {"recipe": kind})
                    yield Member(molecule, **which, **other), value
        for molecule, value in result["schnet"].items():
            yield Member(molecule, recipe="schnet"), value
    elif result["experiment"] == "table2":
        for row in rows:
            yield Member(row["target"]), row["scratch"]
            yield Member(row["target"], base=row["base"]), row["transfer"]
            for kind, base in (("seeds", row["base"]), ("untrained", UNTRAINED)):
                for model in row.get(kind, []):
                    value = {name: item for name, item in model.items() if name != "seed"}
                    yield Member(row["target"], base=base, seed=model["seed"]), value
    else:
        for orders, values in rows.items():
            streams = tuple(map(int, orders.split(",")))
            for molecule, value in values.items():
                yield Member(molecule, orders=streams), value
            for molecule, models in result.get("seeds", {}).get(orders, {}).items():
                for model in models:
                    value = {name: item for name, item in model.items() if name != "seed"}
                    yield Member(molecule, orders=streams, seed=model["seed"]), value


def restore_table(study: Md17Study, result: Mapping[str, Any]) -> int:
    """Write the pieces of a table; returns how many."""
    for molecule, about in study.described.items():
        require(about["fingerprint"] == result["data"][molecule]["fingerprint"], f"the data of {molecule}")
    for recipe, settings in result["settings"]["recipes"].items():
        stored = TrainConfig.from_dict({**settings, "device": study.settings.device})
        require(stored == study.config(Member(study.molecules[0], recipe=recipe)), f"the {recipe} recipe")
    found = {member: value for member, value in members(result) if value is not None}
    for member, value in found.items():
        if member.name in result["pieces"]:  # not: a shipped model, whose errors are computed again
            study.pieces.put(member.name, study.inputs(member), value, result["pieces"][member.name])
    for row in result["rows"] if result["experiment"] == "table2" else ():
        if row["untouched"] is None:
            continue
        name = f"untouched-{row['base']}-{row['target']}"
        inputs = study.inputs(Member(row["target"], base=row["base"]))
        study.pieces.put(
            name, {**inputs, "control": "untouched base"}, row["untouched"], result["pieces"][name]
        )
    return len(found)


def restore_dna(settings: ExperimentSettings, result: Mapping[str, Any]) -> int:
    """Write the pieces of the DNA experiment; returns how many."""
    about = described(load_data(settings, dna.DATA))
    require(about["fingerprint"] == result["data"][dna.DATA]["fingerprint"], "the data of the dimer")
    pieces = Pieces(settings, "dna")
    models = [
        (dna.DnaModel(recipe, split), value)
        for recipe, row in result["rows"].items()
        for split, value in row.items()
    ]
    for recipe, values in result.get("seeds", {}).items():
        models += [(dna.DnaModel(recipe, seed=v.pop("seed")), v) for v in values]
    for model, value in models:
        config = dna.dna_config(settings, dna.FULL, model.recipe, dna.DATA, model.seed)
        if not model.seed:
            stored = TrainConfig.from_dict({**result["settings"][model.recipe], "device": settings.device})
            require(stored == config, f"the {model.recipe} recipe")
        value.pop("untrained", None)  # of one network only, in older results
        inputs = dna.dna_inputs(config, about, model.split, dna.FULL)
        pieces.put(model.piece, inputs, value, result["pieces"][model.piece])
    config = dna.dna_config(settings, dna.FULL, "paper", dna.DATA)
    asked = dna.control_inputs(config, about, dna.FULL)
    pieces.put("controls", asked, result["controls"], result["pieces"]["controls"])
    return len(models)


def require(same: bool, what: str) -> None:
    if not same:
        raise GeomAttError(f"A committed result has other settings than today's code: {what} differ.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with md17/ and gfn2/")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    options = parser.parse_args()
    settings = ExperimentSettings(data=options.data, out=options.out)
    try:
        study = Md17Study(settings, silent)
        for name in ("table1", "table2", "table3"):
            print(f"{name}: {restore_table(study, read_json(RESULTS / f'{name}.json'))} models")
    except GeomAttError as error:
        print(f"The tables are left out: {error}")
    try:
        print(f"dna: {restore_dna(settings, read_json(RESULTS / 'dna.json'))} models")
    except GeomAttError as error:
        print(f"dna is left out: {error}")


if __name__ == "__main__":
    main()
