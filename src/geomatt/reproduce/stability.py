"""Stability: do models stay intact in long dynamics, and do they sample the right distances?

The protocol of Fu et al. 2023 ("Forces are not enough", arXiv 2210.07237): 500 K, Nosé–Hoover, 0.5 fs,
300 ps, five seeds; a run has failed once a bond is more than 0.5 Å from its mean length in the data.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from geomatt.data import Dataset, collate
from geomatt.errors import GeomAttError
from geomatt.model import Network, Potential, fingerprint
from geomatt.reproduce.frame import Experiment, ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.inputs import STAND_IN, described_md17, load_md17, md17_model, unseen_frames
from geomatt.reproduce.published import NOT_RUN, left_table, title
from geomatt.reproduce.table import ResultTable
from geomatt.simulation import (
    BatchedDynamics,
    DynamicsConfig,
    Group,
    Replica,
    engine_forces,
    frame_histogram,
    read_extra,
)

SEEDS = 5
PICOSECONDS = {"nvt": 300.0, "nve": 50.0}
QUICK_PICOSECONDS = {"nvt": 0.05, "nve": 0.05}
SHIPPED = ("pair", "pair-s", "fast", "paper")  # models, as in md17/aspirin:fast
KINDS = (*SHIPPED, "schnet")  # the last: those that table 1 has trained
# Walls where the data end; "bounded": with bounds of the network as well (`geomatt.model.bounds`). Models
# ship with both, those of networks without bounds with walls.
WALLS = {"bounded": True, "walls": True, "free": False}
BOUNDED = "bounded"
SO_FAR = "-so-far"  # ends the names of pieces of simulations that are not at their end
PART = 10_000  # steps between looks at the time
TOGETHER = 2  # molecules in a call


class Stability(Experiment):
    name = "stability"
    title = "Stability in dynamics"
    description = (
        "Every shipped model of MD17, and SchNet, in 300 ps of dynamics at 500 K, five seeds, with and "
        "without bounds of the network and walls where its data end; and its energy drift at 300 K."
    )
    parts: ClassVar[tuple[str, ...]] = (*KINDS, *WALLS, *PICOSECONDS)

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        data, stand_in = load_md17(settings)
        pieces = Pieces(settings, self.name)
        length = QUICK_PICOSECONDS if settings.quick else PICOSECONDS
        rows: dict[str, Any] = {}
        used: dict[str, dict[str, str]] = {}  # fingerprints of the models of each kind
        reached: dict[str, float] = {}  # ps of simulations that are not at their end
        missing: dict[str, int] = {}
        for kind, ensemble in itertools.product(("fast",) if settings.quick else KINDS, length):
            shipped = {m: model for m in data if (model := md17_model(settings, m, kind)) is not None}
            if kind in settings.parts and not shipped:
                raise GeomAttError(
                    f"There are no {kind} models to simulate. "
                    "SchNet is trained by: geomatt reproduce table1 --part schnet-all, with the same --out."
                )
            for models, conditions in variants(shipped):
                inputs = piece_inputs(models, data, ensemble, ps := length[ensemble])
                used[used_name(kind, conditions[0])] = inputs["models"]
                names = {walls: f"{kind}-{walls}-{ensemble}" for walls in conditions}
                wanted = [
                    walls
                    for walls, name in names.items()
                    if pieces.find(name, inputs) is None
                    and settings.chooses({kind, walls, ensemble}, KINDS, WALLS, PICOSECONDS)
                ]
                for together in _together(settings, f"{kind}-{ensemble}", wanted) if models else ():
                    new, done, made = _simulate(
                        models, data, settings, progress, f"{kind}-{ensemble}", together, ensemble, ps
                    )
                    for walls, own in new.items():
                        put_rows(pieces, names[walls], inputs, own, done, made)
                for name in names.values():
                    rows[name] = pieces.find(name, inputs)
                    if rows[name] is None:
                        missing[name] = len(data)
                        earlier = pieces.find(name + SO_FAR, inputs) or {"rows": None}
                        rows[name], reached[name] = earlier["rows"], earlier.get("ps", 0.0)
        return {
            "settings": {
                "ps": length,
                "seeds": SEEDS,
                "nvt": stability_config("nvt").to_dict(),
                "stand_in": stand_in,
            },
            "data": described_md17(data, stand_in),
            "split": "starts: frames that no model was trained on",
            "models": used,
            "rows": {name: own for name, own in rows.items() if own is not None},
            "reached_ps": {name: ps for name, ps in reached.items() if ps},
            "missing": missing,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            *(
                _table(result, kind)
                for kind in KINDS
                if any(n.rsplit("-", 2)[0] == kind for n in result["rows"])
            ),
            left_table(
                {" ".join(name.rsplit("-", 2)): count for name, count in result["missing"].items()},
                "geomatt reproduce stability --part {} --device cuda --data DIR",
            ),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        sentences = [STAND_IN] if result["settings"]["stand_in"] else []
        for name, replicas in result["rows"].items():
            if name.endswith("-nvt"):
                kind, walls, _ = name.rsplit("-", 2)
                intact = sum(not r["failure"] for r in replicas)
                what = _words(result, kind, walls)
                ps = result["reached_ps"].get(name, result["settings"]["ps"]["nvt"])
                sentences.append(
                    f"{kind}, {what}: {intact} of {len(replicas)} runs stayed intact for {ps:g} ps."
                )
        return " ".join(sentences) or "Not run yet."


def variants(models: Mapping[str, Potential]) -> list[tuple[dict[str, Potential], list[str]]]:
    """Models as they ship and without bounds, each with the conditions under which they are simulated."""
    bounded = {m: model for m, model in models.items() if model.bounded}
    free = {m: model.without_bounds() for m, model in models.items()}
    others = (free, [walls for walls in WALLS if walls != BOUNDED])
    return [(bounded, [BOUNDED]), others] if bounded else [others]


def used_name(kind: str, condition: str) -> str:
    """Of the models of a kind, in the result."""
    return f"{kind}-{BOUNDED}" if condition == BOUNDED else kind


def piece_inputs(
    models: Mapping[str, Potential], data: Mapping[str, Dataset], ensemble: str, ps: float
) -> dict[str, Any]:
    """Everything that simulations of these models depend on."""
    return {
        "models": {m: fingerprint(model) for m, model in models.items()},
        "data": {m: data[m].fingerprint() for m in models},
        "config": stability_config(ensemble).to_dict(),
        "ps": ps,
        "seeds": SEEDS,
    }


def put_rows(
    pieces: Pieces, name: str, inputs: Mapping[str, Any], rows: Any, done: float, made: dict[str, Any]
) -> None:
    """Keep the rows of simulations that have come to `done` ps; of those not at their end the longest."""
    if done >= inputs["ps"]:
        pieces.put(name, inputs, rows, made)
    elif done > (pieces.find(name + SO_FAR, inputs) or {"ps": 0.0})["ps"]:
        pieces.put(name + SO_FAR, inputs, {"ps": done, "rows": rows}, made)


def stability_config(ensemble: str) -> DynamicsConfig:
    if ensemble == "nve":
        return DynamicsConfig(ensemble="nve", temperature_K=300.0)
    return DynamicsConfig(ensemble="nose-hoover", temperature_K=500.0)


def _checkpoint(settings: ExperimentSettings, name: str, wanted: Sequence[str]) -> Path:
    return settings.work("stability") / f"{name}-{'-'.join(wanted)}.safetensors"


def _together(settings: ExperimentSettings, name: str, wanted: Sequence[str]) -> list[list[str]]:
    """Which of `wanted` to run as one simulation: all, or each by itself if one was begun so."""
    alone = [[walls] for walls in wanted]
    begun = any(_checkpoint(settings, name, one).is_file() for one in alone)
    return alone if begun else [list(wanted)] if wanted else []


def _simulate(
    models: Mapping[str, Potential],
    data: Mapping[str, Dataset],
    settings: ExperimentSettings,
    progress: ProgressBar,
    name: str,
    wanted: Sequence[str],
    ensemble: str,
    ps: float,
) -> tuple[dict[str, list[dict[str, Any]]], float, dict[str, Any]]:
    """All molecules and seeds, with and without walls as `wanted`, as one simulation.

    Returns for each of `wanted` a row of every replica, the ps reached, and provenance. A deadline ends it
    early, and the next call continues it; no rows if it has not begun.
    """
    checkpoint = _checkpoint(settings, name, wanted)
    if settings.out_of_time and not checkpoint.is_file():
        return {}, 0.0, {}
    started, made = time.monotonic(), provenance(settings, 0.0)
    config = stability_config(ensemble)
    dynamics = BatchedDynamics(
        simulated_groups(models, data, settings, wanted), config, device=settings.device
    )
    steps = round(ps * 1000 / config.timestep_fs / config.interval) * config.interval
    if checkpoint.is_file():
        dynamics.restore(checkpoint)
        earlier = read_extra(checkpoint)
        made = earlier if settings.out_of_time else {**made, "seconds": earlier["seconds"]}
    with progress(f"dynamics, {name}", steps) as advance:
        advance(dynamics.steps)
        while dynamics.steps < steps and not settings.out_of_time:
            part = min(PART, steps - dynamics.steps)
            dynamics.advance(part)
            advance(part)
    made["seconds"] += round(time.monotonic() - started, 3)
    if dynamics.steps < steps:
        dynamics.save(checkpoint, made)
    else:
        checkpoint.unlink(missing_ok=True)
    outcome = dynamics.outcome()
    references = {m: frame_histogram(data[m].positions.reshape(len(data[m]), -1, 3)) for m in models}
    rows: dict[str, list[dict[str, Any]]] = {walls: [] for walls in wanted}
    for r, row in enumerate(outcome.rows()):
        walls, _, row["name"] = row["name"].partition(" ")
        row["histogram_error"] = float(outcome.histogram_error(references[row["name"]])[r])
        rows[walls].append({key: _finite(value) for key, value in row.items()})
    return rows, dynamics.steps * config.timestep_fs / 1000, made


def simulated_groups(
    models: Mapping[str, Potential],
    data: Mapping[str, Dataset],
    settings: ExperimentSettings,
    wanted: Sequence[str],
) -> list[Group]:
    """Replicas of all molecules. Models of equal settings are evaluated by one call for two molecules each.

    Next to each other in size, as the smaller one is padded to the larger: with all in one call padding would
    be half of the work. Calls run at the same time (`BatchedDynamics`).
    """
    elements = sorted({z for model in models.values() for z in model.network.config.elements})
    networks = {m: model.network.with_elements(elements) for m, model in models.items()}
    alike: dict[Any, list[str]] = {}
    for molecule in models:
        alike.setdefault(networks[molecule].config, []).append(molecule)
    groups = []
    for members in alike.values():
        members.sort(key=lambda m: data[m].sizes.max())
        size = TOGETHER if networks[members[0]].vectorises else 1
        for part in (members[k : k + size] for k in range(0, len(members), size)):
            groups.append(_group({m: models[m] for m in part}, networks, data, settings, wanted))
    return groups


def _group(
    models: Mapping[str, Potential],
    networks: Mapping[str, Network],
    data: Mapping[str, Dataset],
    settings: ExperimentSettings,
    wanted: Sequence[str],
) -> Group:
    """Five replicas of each molecule, with and without walls, from frames that its model has not seen."""
    replicas, numbers, offsets = [], [], []
    for molecule, model in models.items():
        starts = unseen_frames(model, data[molecule], SEEDS, settings.seed)
        for walls in wanted:
            for seed, start in enumerate(starts):
                name = f"{walls} {molecule}"
                replicas.append(Replica.of(start, seed, model.domain, walls=WALLS[walls], name=name))
        batch = collate(starts * len(wanted), model.dtype, settings.device)
        numbers.append(batch.numbers)
        offsets.append(model.normalisation.offset(batch.numbers).sum(-1))
    size = max(z.shape[-1] for z in numbers)
    padded = torch.stack([functional.pad(z, (0, size - z.shape[-1])) for z in numbers])  # (M, B, N)
    members = [networks[molecule].to(settings.device) for molecule in models]
    engine = members[0].engine()
    every = [network.tensors() for network in members]
    prepared = engine.prepare({n: torch.stack([own[n] for own in every]) for n in every[0]}, keep=True)
    scale = torch.tensor([model.normalisation.scale for model in models.values()], dtype=torch.float64)
    dtype = next(iter(models.values())).dtype
    return Group(
        replicas,
        engine_forces(engine, prepared, padded, dtype, torch.stack(offsets), scale.to(settings.device)),
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _table(result: Mapping[str, Any], kind: str) -> ResultTable:
    molecules = [name.rpartition("/")[2] for name in result["data"]]
    conditions = [walls for walls in WALLS if any(n.startswith(f"{kind}-{walls}-") for n in result["rows"])]
    bounded = used_name(kind, BOUNDED) in result["models"]
    headings = ["molecule"]
    for walls in conditions:
        what = "" if walls == ("bounded" if bounded else "walls") else f"{_words(result, kind, walls)}: "
        headings += [f"{what}intact", "failed at, ps", "h(r) error", "drift"]
        headings += ["wall active, %"] if WALLS[walls] else []
    lines = []
    for molecule in molecules:
        line = [title(molecule)]
        for walls in conditions:
            runs = _of(result, f"{kind}-{walls}-nvt", molecule)
            drifts = _of(result, f"{kind}-{walls}-nve", molecule)
            line += [
                f"{sum(not r['failure'] for r in runs)} of {len(runs)}" if runs else NOT_RUN,
                ", ".join(f"{r['survived_ps']:.1f}" for r in runs if r["failure"]) or NOT_RUN,
                _mean(runs, "histogram_error", ".3f"),
                _drift(drifts),
            ]
            if WALLS[walls]:
                line.append(f"{100 * mean(r['wall_share'] for r in runs):.2f}" if runs else NOT_RUN)
        lines.append(line)
    ps = result["settings"]["ps"]
    shorter = [
        f"{done:g} ps so far: {_words(result, kind, name.rsplit('-', 2)[1])}"
        for name, done in result["reached_ps"].items()
        if name in [f"{kind}-{walls}-nvt" for walls in conditions]
    ]
    length = f"{ps['nvt']:g} ps ({', '.join(shorter)})" if shorter else f"{ps['nvt']:g} ps"
    return ResultTable(
        f"stability-{kind}",
        f"Models md17/…:{kind}" if kind in SHIPPED else "SchNet, trained here",
        headings,
        lines,
        f"{length} at 500 K (Nosé–Hoover, 0.5 fs), {result['settings']['seeds']} seeds; failed "
        f"once a bond is 0.5 Å off its mean length. Drift: NVE at 300 K for {ps['nve']:g} ps, meV/atom/ps, "
        "the largest of the seeds, and how many of those runs failed. "
        "h(r) error: of the distribution of distances against the data's, runs that completed or not.",
    )


def _words(result: Mapping[str, Any], kind: str, walls: str) -> str:
    """What simulations had that keeps them where the model was trained."""
    if used_name(kind, BOUNDED) not in result["models"]:
        return "without walls" if walls == "free" else "with walls"
    return {BOUNDED: "walls and bounds", "walls": "walls, no bounds", "free": "no walls, no bounds"}[walls]


def summary_by_model(result: Mapping[str, Any]) -> dict[str, Any]:
    """For each shipped model, by condition, how many runs stayed intact, and when others failed.

    Models that have bounds and were simulated only without them have None for "bounded".
    """
    found: dict[str, Any] = {}
    for name, rows in sorted(result["rows"].items()):
        kind, walls, ensemble = name.rsplit("-", 2)
        if ensemble != "nvt" or kind not in SHIPPED:
            continue
        ps = result["reached_ps"].get(name, result["settings"]["ps"]["nvt"])
        for molecule in dict.fromkeys(row["name"] for row in rows):
            runs = _of(result, name, molecule)
            failed = [round(r["survived_ps"], 1) for r in runs if r["failure"]]
            model = f"md17/{molecule}" + ("" if kind == "paper" else f":{kind}")
            about = {"intact": len(runs) - len(failed), "runs": len(runs), "ps": ps, "failed_at_ps": failed}
            if WALLS[walls]:
                about["wall_share"] = round(mean(r["wall_share"] for r in runs), 4)
            has_bounds = used_name(kind, BOUNDED) in result["models"]
            found.setdefault(model, {BOUNDED: None} if has_bounds else {})[walls] = about
    return found


def _of(result: Mapping[str, Any], name: str, molecule: str) -> Sequence[Mapping[str, Any]]:
    return [row for row in result["rows"].get(name, ()) if row["name"] == molecule]


def _drift(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest drift of runs at constant energy without its sign, and how many of them failed."""
    values = [abs(row["drift_meV_per_atom_ps"]) for row in rows if row["drift_meV_per_atom_ps"] is not None]
    failed = sum(bool(row["failure"]) for row in rows)
    largest = f"{max(values):.1g}" if values else NOT_RUN
    return f"{largest}, {failed} failed" if failed else largest


def _mean(rows: Sequence[Mapping[str, Any]], key: str, form: str) -> str:
    values = [row[key] for row in rows if row[key] is not None]
    return format(mean(values), form) if values else NOT_RUN


EXPERIMENT = Stability()
