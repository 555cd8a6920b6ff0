"""Turn committed results into pieces, so that a later run adds to them instead of computing them again.

    python scripts/restore_results.py --data DIR --out runs/reproduce
    geomatt reproduce table1 --data DIR --out runs/reproduce --part schnet-all --device cuda
    cp runs/reproduce/table1.json results/
    python -m geomatt.reproduce.docs

Works for tables 1 to 3, DNA, pair states, learning curves, ablation and stability. A result of other data or
settings than today's is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from geomatt.errors import GeomAttError
from geomatt.reproduce import ExperimentSettings, silent, stability_runs
from geomatt.reproduce.ablation import VARIATIONS, AblationMember, AblationStudy
from geomatt.reproduce.dna_models import RECIPES, DnaModel, DnaStudy
from geomatt.reproduce.frame import Pieces, read_json
from geomatt.reproduce.inputs import load_md17, md17_model
from geomatt.reproduce.learning import LearningMember, LearningStudy
from geomatt.reproduce.md17 import UNTRAINED, Md17Study, Member
from geomatt.reproduce.pair import BY_SIZE, PairMember, PairStudy
from geomatt.reproduce.stability import EXPERIMENT, PICOSECONDS
from geomatt.reproduce.study import Study
from geomatt.reproduce.table2_pair import RECIPE, PairTransferStudy
from geomatt.training import TrainConfig

RESULTS = Path(__file__).resolve().parents[1] / "results"
WHICH = ("fold", "seed", "draw")  # what tells a member from others of its row


def members(result: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The members of a result, with their values; None for one that is not finished."""
    rows = result["rows"]
    if result["experiment"] == "table1":
        for kind, molecules in rows.items():
            other = {"formula": {"weighting": "paper"}, "draws": {}}.get(kind, {"recipe": kind})
            for molecule, models in molecules.items():
                for which, value in map(parted, models):
                    yield Member(molecule, **which, **other), value
        for molecule, value in result["schnet"].items():
            yield Member(molecule, recipe="schnet"), value
    elif result["experiment"] == "table2":
        for row in rows:
            yield Member(row["target"]), row["scratch"]
            yield Member(row["target"], base=row["base"]), row["transfer"]
            for kind, base in (("seeds", row["base"]), ("untrained", UNTRAINED)):
                for which, value in map(parted, row[kind]):
                    yield Member(row["target"], base=base, **which), value
            for kind, base in (("transfer", row["base"]), ("untrained", UNTRAINED)):
                yield Member(row["target"], base=base, recipe=RECIPE), row["pair"][kind]
    elif result["experiment"] == "table3":
        for orders in rows:
            streams = tuple(map(int, orders.split(",")))
            for molecule, value in rows[orders].items():
                yield Member(molecule, orders=streams), value
            for molecule, models in result["seeds"][orders].items():
                for which, value in map(parted, models):
                    yield Member(molecule, orders=streams, **which), value
    elif result["experiment"] == "dna":
        for recipe, row in rows.items():
            for split, value in row.items():
                yield DnaModel(recipe, split), value
            for which, value in map(parted, result["seeds"].get(recipe, [])):
                yield DnaModel(recipe, **which), value
    elif result["experiment"] == "learning":
        for molecule, networks in rows.items():
            for network, models in networks.items():
                for frames, value in models.items():
                    yield LearningMember(network, molecule, int(frames)), value
    elif result["experiment"] == "ablation":
        for molecule, models in rows.items():
            for variation in VARIATIONS:
                if value := models.get(variation.name):
                    kept = {name: item for name, item in value.items() if name != "group"}
                    yield AblationMember(variation, molecule), kept
    else:
        for place, models in rows.items():
            collection, size, molecule = place.split("/")
            for which, value in map(parted, models):
                yield PairMember(collection, molecule, size, **which), value


def parted(model: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Which member a model is, and its value."""
    which = {name: model[name] for name in WHICH if name in model}
    return which, {name: item for name, item in model.items() if name not in which}


def home(member: Any) -> type[Study[Any]]:
    """The study a member belongs to."""
    if isinstance(member, Member):
        return PairTransferStudy if member.recipe == RECIPE else Md17Study
    if isinstance(member, DnaModel):
        return DnaStudy
    if isinstance(member, AblationMember):
        return AblationStudy
    return LearningStudy if isinstance(member, LearningMember) else PairStudy


def others(result: Mapping[str, Any], study: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Pieces that are no members: their names, inputs and values."""
    if result["experiment"] == "dna":
        controls = result["controls"]
        if len(controls["untrained"]["covalent"]) == study.size.untrained:
            yield "controls", study.control_inputs(), controls
    for recipe, models in result.get("fitted_zero", {}).items() if type(study) is Md17Study else ():
        for molecule, errors in models.items():
            yield *study.fitted_piece(Member(molecule, recipe=recipe)), errors
    for row in result["rows"] if result["experiment"] == "table2" else ():
        if isinstance(study, PairTransferStudy):
            yield *study.scratch_piece(row["target"]), row["pair"]["scratch"]
            continue
        inputs = study.inputs(Member(row["target"], base=row["base"]))
        name = f"untouched-{row['base']}-{row['target']}"
        yield name, {**inputs, "control": "untouched base"}, row["untouched"]


def restore(study: Study[Any], result: Mapping[str, Any]) -> int:
    """Write the pieces of a result that belong to a study; returns how many models."""
    every = {member: value for member, value in members(result) if value is not None}
    found = {member: value for member, value in every.items() if home(member) is type(study)}
    for member, value in found.items():
        if member.name not in result["pieces"]:  # a shipped model, whose errors are computed again
            continue
        if isinstance(member, PairMember) and any(
            result["settings"].get(name, own)[member.size] != own[member.size]
            for name, own in BY_SIZE.items()
        ):
            continue  # of a size, or trained, as it was before
        inputs = study.inputs(member)
        own, theirs = (about[member.data]["fingerprint"] for about in (study.described, result["data"]))
        require(own == theirs, f"data of {member.data}")
        study.pieces.put(member.name, inputs, value, result["pieces"][member.name])
    settings = result["settings"]
    for recipe, stored in settings.get("recipes", {}).items() if type(study) is Md17Study else ():
        check(study, Member(next(iter(study.data)), recipe=recipe), stored)
    for recipe in RECIPES if result["experiment"] == "dna" else ():
        check(study, DnaModel(recipe), settings[recipe])
    if result["experiment"] == "ablation":
        check(study, AblationMember(VARIATIONS[0], next(iter(result["rows"]))), settings["config"])
    if result["experiment"] == "pair":
        check(study, PairMember("md17", "aspirin", "s"), settings["config"])
    for network, stored in settings["configs"].items() if result["experiment"] == "learning" else ():
        check(study, LearningMember(network, "ethanol", settings["frames"][-1]), stored)
    for name, inputs, value in others(result, study):
        if value is not None:
            study.pieces.put(name, inputs, value, result["pieces"][name])
    return len(found)


def restore_stability(settings: ExperimentSettings, result: Mapping[str, Any]) -> int:
    """The same for simulations, at their end or not, of the models that ship; returns how many."""
    data, _ = load_md17(settings)
    pieces = Pieces(settings, EXPERIMENT.name)
    for name, rows in result["rows"].items():
        kind, walls, ensemble = name.rsplit("-", 2)
        shipped = {m: model for m in data if (model := md17_model(settings, m, kind)) is not None}
        every = [own for own, conditions in stability_runs.variants(shipped) if walls in conditions]
        require(bool(every), f"models than {kind} with their {walls}")
        models, measured = every[0], dict.fromkeys(row["name"] for row in rows)
        if missing := measured.keys() - models.keys():
            print(f"stability: {name} of {', '.join(sorted(missing))} left out, which have no {kind} model")
        for molecule in (molecule for molecule in measured if molecule in models):
            inputs = stability_runs.piece_inputs(
                models[molecule], data[molecule], ensemble, PICOSECONDS[ensemble]
            )
            measured_on = result["data"][f"md17/{molecule}"]["fingerprint"]
            require(inputs["data"] == measured_on, f"data of {molecule}")
            used = result["models"][stability_runs.used_name(kind, walls)]
            require(inputs["model"] == used[molecule], f"model {kind} of {molecule}")
            piece, so_far = f"{name}-{molecule}", f"{name}-{molecule}{stability_runs.SO_FAR}"
            made = next(result["pieces"][n] for n in (piece, so_far) if n in result["pieces"])
            done = result["reached_ps"].get(name, {}).get(molecule, inputs["ps"])
            own = [row for row in rows if row["name"] == molecule]
            stability_runs.put_rows(pieces, piece, inputs, own, done, made)
    return len(result["pieces"])


def check(study: Study[Any], member: Any, stored: Mapping[str, Any]) -> None:
    config = TrainConfig.from_dict({**stored, "device": study.settings.device})
    require(config == study.config(member), f"settings of {member.name}")


def require(same: bool, what: str) -> None:
    if not same:
        raise GeomAttError(f"A committed result was made with other {what} than today's.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with md17/, rmd17/ and gfn2/")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    options = parser.parse_args()
    settings = ExperimentSettings(data=options.data, out=options.out)
    studies: dict[Callable[..., Study[Any]], tuple[str, ...]] = {
        Md17Study: ("table1", "table2", "table3"),
        DnaStudy: ("dna",),
        PairStudy: ("pair",),
        PairTransferStudy: ("table2",),
        LearningStudy: ("learning",),
        AblationStudy: ("ablation",),
    }
    for make, names in studies.items():
        try:
            study = make(settings, silent)
            for name in (name for name in names if (RESULTS / f"{name}.json").is_file()):
                print(f"{name}: {restore(study, read_json(RESULTS / f'{name}.json'))} models")
        except GeomAttError as error:
            print(f"{', '.join(names)} left out: {error}")
    try:
        result = read_json(RESULTS / "stability.json")
        print(f"stability: {restore_stability(settings, result)} simulations")
    except GeomAttError as error:
        print(f"stability left out: {error}")


if __name__ == "__main__":
    main()
