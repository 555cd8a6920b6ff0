"""Attention against covalent bonds (the paper's figures of attention matrices, with numbers)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Experiment, Figure, Pieces, Progress, Settings
from geomatt.reproduce.inputs import MD17, described, load_data
from geomatt.reproduce.table import ResultTable

if TYPE_CHECKING:
    from geomatt.data.structures import Dataset
    from geomatt.model.potential import Potential

TRANSFERS = (
    ("aspirin", "benzene"),
    ("aspirin", "toluene"),
    ("benzene", "naphthalene"),
    ("toluene", "benzene"),
)
# The quick setting: a small model, briefly trained on the data that ship with the package.
QUICK: dict[str, Any] = {"train": 200, "val": 50, "epochs": 15, "features": 16, "overlap_features": 32}
QUICK_FRAMES = 100


class Bonds(Experiment):
    """Average precision and AUROC of |α| for covalent bonds, with inverse distance as the control."""

    name = "bonds"
    title = "Bonds: what the attention matrices know"
    description = (
        "The paper shows attention matrices that resemble the molecule's bonds. Here every layer and order "
        "is scored on all frames against the bonds of the lowest-energy frame, beside plain inverse distance."
    )

    def run(self, settings: Settings, progress: Progress) -> dict[str, Any]:
        pieces = Pieces(settings, self.name)
        if settings.quick:
            return self._quick(settings, progress, pieces)
        folder = settings.models or settings.out / "models"
        models = {m: f for m in MD17 if (f := folder / "md17" / f"{m}.safetensors").is_file()}
        if not models:
            raise GeomAttError(
                f"There is no trained model {folder / 'md17' / 'MOLECULE.safetensors'}. Train them with: "
                "geomatt reproduce table1, or name a folder that has them with --models DIR."
            )
        data = {m: load_data(settings, f"md17/{m}") for m in MD17 if m in models}
        about = {name: described(dataset) for name, dataset in data.items()}
        wanted = [(m, m) for m in models] + [t for t in TRANSFERS if t[0] in models and t[1] in data]
        found = {}
        for base, target in wanted:
            frames = np.arange(len(data[target]))
            found[_key(base, target)] = self._scored(
                settings, progress, pieces, models[base], data[target], about[target], frames, (base, target)
            )
        return {
            "settings": {"frames": "all", "missing": [m for m in MD17 if m not in models]},
            "data": {f"md17/{name}": description for name, description in about.items()},
            "split": "all frames are scored; attention is not trained on bonds",
            "models": {name: _model_record(path) for name, path in models.items()},
            "scored": found,
            "pieces": pieces.made,
        }

    def _scored(
        self,
        settings: Settings,
        progress: Progress,
        pieces: Pieces,
        path: Path,
        dataset: Dataset,
        about: Mapping[str, Any],
        frames: np.ndarray,
        names: tuple[str, str],
    ) -> Any:
        from geomatt.data.files import sha256
        from geomatt.model.files import load_file
        from geomatt.reproduce.bonds_scores import score

        def compute() -> dict[str, Any]:
            model = load_file(path).to(settings.device)
            # Nobody asks for energies: that a transferred model's have no zero need not be said.
            model.normalisation = replace(model.normalisation, composition={})
            with progress(f"attention of {_key(*names)}", len(frames)) as advance:
                return score(model, dataset, frames, advance)

        inputs = {"model": sha256(path), "data": about["fingerprint"], "frames": len(frames)}
        return pieces.get(_key(*names).replace(" → ", " to "), inputs, compute)

    def _quick(self, settings: Settings, progress: Progress, pieces: Pieces) -> dict[str, Any]:
        from geomatt.data.public.embedded import ethanol
        from geomatt.reproduce.bonds_scores import score

        frames = ethanol()
        chosen = np.linspace(0, len(frames) - 1, QUICK_FRAMES).astype(int)
        setting = {**QUICK, "frames": QUICK_FRAMES}

        def compute() -> dict[str, Any]:
            model = _quick_model(frames, settings, progress)
            with progress("attention of ethanol", len(chosen)) as advance:
                return score(model, frames, chosen, advance)

        found = pieces.get("ethanol", {**setting, "data": frames.fingerprint()}, compute)
        return {
            "settings": {**setting, "missing": []},
            "data": {"embedded/ethanol": described(frames)},
            "split": {"kind": "random", "seed": settings.seed, "train": QUICK["train"], "val": QUICK["val"]},
            "models": {},
            "scored": {"ethanol": found},
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        own = {name: item for name, item in result["scored"].items() if "→" not in name}
        moved = {name: item for name, item in result["scored"].items() if "→" in name}
        tables = [
            _score_table("bonds-ap", "Average precision for covalent bonds", own, "ap"),
            _score_table("bonds-auroc", "AUROC for covalent bonds", own, "auroc"),
            ResultTable(
                "bonds-distance",
                "Share of the variance of |α| that distance alone explains",
                ["attention", *own],
                [
                    [label, *(f"{_row(item, label)['explained']:.2f}" for item in own.values())]
                    for label in _labels(own)
                ],
                "Over all pairs and frames. 1 for k=2 by construction (up to the 0.02 Å bins); what is "
                "missing to 1 is the surroundings of the pair.",
            ),
        ]
        title = "Attention of one molecule on another: average precision for covalent bonds"
        if moved:
            return [*tables, _score_table("bonds-transfer", title, moved, "ap")]
        note = "Needs the models of geomatt reproduce table1 for aspirin, benzene and toluene."
        return [*tables, ResultTable("bonds-transfer", title, ["transfer"], [["not run"]], note)]

    def figures(self, result: Mapping[str, Any], folder: Path) -> list[Figure]:
        from geomatt.reproduce.bonds_figures import curves_figure, matrices_figure

        drawn = []
        for name, item in result["scored"].items():
            file = folder / f"bonds-{name.replace(' → ', '-to-')}.png"
            orders = [2] if "→" in name else None
            drawn.append(
                Figure(
                    matrices_figure(name, item, file, orders),
                    f"{name}: |α| (both directions averaged, no diagonal) of the lowest-energy frame, beside "
                    "distances and covalent bonds; darker is stronger, blue boxes are bonds, AP is the mean "
                    "over all scored frames.",
                )
            )
        own = {name: item for name, item in result["scored"].items() if "→" not in name}
        drawn.append(
            Figure(
                curves_figure(own, folder / "bonds-curves.png"),
                "α of order 2 as the function of distance that it is, one line per layer; bars mark the "
                "lengths of bonds (dark) and the distances of others (light) in the lowest-energy frame.",
            )
        )
        return drawn

    def summary(self, result: Mapping[str, Any]) -> str:
        own = [item for name, item in result["scored"].items() if "→" not in name]
        rows = [(item, row) for item in own for row in item["rows"]]
        best = {order: max(r["ap"] for _, r in rows if r["order"] == order) for order in _orders(own)}
        above = sum(row["ap"] > item["controls"]["1 / distance"]["ap"] for item, row in rows)
        control = np.mean([item["controls"]["1 / distance"]["ap"] for item in own])
        explained = {
            order: np.mean([row["explained"] for _, row in rows if row["order"] == order])
            for order in _orders(own)
        }
        return (
            f"Plain inverse distance ranks bonds with a mean average precision of {control:.3f}; {above} of "
            f"{len(rows)} attention matrices rank them better. The best matrix reaches "
            + ", ".join(f"{value:.3f} (k={order})" for order, value in best.items())
            + ". Distance alone explains "
            + ", ".join(f"{100 * value:.0f} % (k={order})" for order, value in explained.items())
            + " of the variance of |α|."
        )


def _quick_model(frames: Dataset, settings: Settings, progress: Progress) -> Potential:
    from geomatt.data.splits import random_split
    from geomatt.training import resolve, train

    config = resolve({**QUICK, "patience": 0, "seed": settings.seed, "device": settings.device})
    split = random_split(len(frames), QUICK["train"], QUICK["val"], 0, seed=settings.seed)
    folder = settings.work("bonds") / "model"
    with progress("training a small model", config.epochs) as advance:
        result = train(
            frames, split, config, folder, resume=True, callback=lambda p: advance(1 if p.new_row else 0)
        )
    return result.potential


def _score_table(name: str, title: str, items: Mapping[str, Any], key: str) -> ResultTable:
    rows = [[label, *(_cell(_row(item, label), key) for item in items.values())] for label in _labels(items)]
    controls = [
        [label.removeprefix("covalent "), *(_cell(item["controls"][label], key) for item in items.values())]
        for label in ("1 / distance", "covalent radii / distance")
    ]
    counts = "; ".join(f"{n}: {i['bonds']} bonds in {i['pairs']} pairs" for n, i in items.items())
    frames = "–".join(str(f) for f in sorted({item["frames"] for item in items.values()}))
    return ResultTable(
        name,
        title,
        ["attention", *items],
        rows + controls,
        f"Mean over {frames} frames, ± standard deviation where it is 0.01 or more. {counts}. The last two "
        "rows are controls: the first knows what α^(2) knows, the second, of covalent radii, knows the "
        "elements too.",
        strong=frozenset({len(rows), len(rows) + 1}),
    )


def _cell(row: Mapping[str, float], key: str) -> str:
    spread = row[f"{key}_spread"]
    return f"{row[key]:.3f}" + (f" ± {spread:.2f}" if spread >= 0.01 else "")


def _labels(items: Mapping[str, Any]) -> list[str]:
    return [row["label"] for row in next(iter(items.values()))["rows"]]


def _row(item: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(row for row in item["rows"] if row["label"] == label)
    return found


def _orders(items: list[Any]) -> list[int]:
    return sorted({row["order"] for row in items[0]["rows"]})


def _key(base: str, target: str) -> str:
    return base if base == target else f"{base} → {target}"


def _model_record(path: Path) -> dict[str, Any]:
    """Which model was looked at, and how good it is."""
    from geomatt.data.files import sha256
    from geomatt.model.files import load_file

    record = load_file(path).record
    kept: dict[str, Any] = {"sha256": sha256(path)}
    for key in ("test", "epochs", "commit", "seed"):
        kept[key] = record.get(key)
    return kept


EXPERIMENT = Bonds()
