"""Attention compared with covalent bonds (the paper's figures of attention matrices, with numbers)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from geomatt.elements import COVALENT_RADII, symbols
from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.inputs import (
    MD17,
    STAND_IN,
    captioned,
    described_md17,
    load_md17,
    md17_model,
    noted,
)
from geomatt.reproduce.table import ResultTable

if TYPE_CHECKING:
    from geomatt.data import Dataset
    from geomatt.model import Network, Potential

TRANSFERS = (
    ("aspirin", "benzene"),
    ("aspirin", "toluene"),
    ("benzene", "naphthalene"),
    ("toluene", "benzene"),
)
QUICK_FRAMES = 100
UNTRAINED, UNTRAINED_FRAMES = 100, 100  # networks with random weights, and frames they are scored on
QUICK_UNTRAINED = 20
CURVE = np.arange(0.0, 6.001, 0.05)  # Å, where α of order 2 is drawn as a function of distance
CONTROLS = ("1 / distance", "covalent radii / distance")


class BondsExperiment(Experiment):
    """Average precision and AUROC of |α| for covalent bonds, with inverse distance as the control."""

    name = "bonds"
    title = "Bonds: covalent bonds in the attention matrices"
    description = (
        "The paper shows attention matrices that resemble the molecule's bonds. Here every layer and order "
        "is scored, frame by frame, against the bonds of the lowest-energy frame, with inverse distance and "
        "networks with random weights as controls."
    )

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        from geomatt.model import fingerprint

        data, stand_in = load_md17(settings)
        models = {m: model for m in data if (model := md17_model(settings, m)) is not None}
        if not models:
            raise GeomAttError(
                f"There is no model md17/MOLECULE.safetensors in {settings.models}. Leave out `models` for "
                "the models that ship with the package, or train some with: geomatt reproduce table1."
            )
        pieces, scored = Pieces(settings, self.name), {}
        wanted = [(m, m) for m in models] + [t for t in TRANSFERS if set(t) <= set(models)]
        for base, target in wanted:
            name = base if base == target else f"{base} → {target}"
            frames = np.arange(len(data[target]))
            if settings.quick:
                frames = np.linspace(0, len(frames) - 1, QUICK_FRAMES).astype(int)
            untrained = (QUICK_UNTRAINED if settings.quick else UNTRAINED) if base == target else 0
            inputs = {
                "model": fingerprint(models[base]),
                "data": data[target].fingerprint(),
                "frames": len(frames),
                "untrained": [untrained, UNTRAINED_FRAMES],
            }
            network = models[base].to(settings.device).network
            with progress(f"attention: {name}", len(frames)) as advance:
                compute = partial(score, network, data[target], frames, untrained, advance)
                scored[name] = pieces.get(name.replace(" → ", " to "), inputs, compute)
        return {
            "settings": {
                "frames": QUICK_FRAMES if settings.quick else "all",
                "missing": [m for m in MD17 if m not in models],
                "stand_in": stand_in,
            },
            "data": described_md17({m: data[m] for m in models}, stand_in),
            "split": "all frames are scored; attention is not trained on bonds",
            "models": {name: _record(model) for name, model in models.items()},
            "scored": scored,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        own, moved = _own(result), {n: item for n, item in result["scored"].items() if "→" in n}
        title = "Attention of one molecule's model on another molecule: average precision for covalent bonds"
        if moved:
            transfer = _score_table("bonds-transfer", title, moved, "ap")
        else:
            note = "Needs the data and models of aspirin, benzene and toluene."
            transfer = ResultTable("bonds-transfer", title, ["transfer"], [["not run"]], note)
        measured = [
            _score_table("bonds-ap", "Average precision for covalent bonds", own, "ap"),
            _untrained_table(own),
            _score_table("bonds-auroc", "AUROC for covalent bonds", own, "auroc"),
            ResultTable(
                "bonds-distance",
                "Share of the variance of |α| that is explained by distance",
                ["attention", *own],
                _lines(own, "explained", ".2f"),
                "Over all pairs and frames. 1 for k=2 by construction (up to the 0.02 Å bins); for higher "
                "orders the rest is due to the atoms around the pair.",
            ),
        ]
        return [*noted(result, measured), transfer]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        from geomatt.reproduce.bonds_figures import curves_figure, matrices_figure, transfer_figure

        drawings = []
        for name, item in result["scored"].items():
            caption = (
                "|α| (both directions averaged, no diagonal) of the lowest-energy frame, with 1 / distance "
                "and the covalent bonds; darker is stronger, blue frames are bonds, AP is the mean over "
                f"{item['frames']} frames."
            )
            base, arrow, target = name.partition(" → ")
            draw = partial(matrices_figure, name, item)
            if arrow:
                caption = f"{name}, the same model on both molecules: {caption}"
                draw = partial(transfer_figure, {base: result["scored"][base], target: item})
            else:
                caption = f"{name}: {caption}"
            drawings.append(Drawing(f"bonds-{name.replace(' → ', '-to-')}", caption, draw))
        caption = (
            "α of order 2 as a function of distance, one line per layer; ticks at the bottom mark the "
            "lengths of bonds (dark) and the distances of other pairs (light) in the lowest-energy frame."
        )
        drawings.append(Drawing("bonds-curves", caption, lambda: curves_figure(_own(result))))
        return captioned(result, drawings)

    def summary(self, result: Mapping[str, Any]) -> str:
        own = list(_own(result).values())
        rows = [(item, row) for item in own for row in item["rows"]]
        orders = sorted({row["order"] for _, row in rows})
        above = sum(row["ap"] > item["controls"][CONTROLS[0]]["ap"] for item, row in rows)
        control = np.mean([item["controls"][CONTROLS[0]]["ap"] for item in own])
        sentences = [STAND_IN] if result["settings"]["stand_in"] else []
        sentences.append(
            f"Inverse distance ranks bonds with a mean average precision of {control:.3f}; {above} of "
            f"{len(rows)} attention matrices rank them better."
        )
        for order in orders:
            matrices = [row for _, row in rows if row["order"] == order]
            sentences.append(
                f"k={order}: the best matrix reaches {max(row['ap'] for row in matrices):.3f}, distance "
                f"explains {100 * np.mean([row['explained'] for row in matrices]):.0f} % of the variance of "
                f"|α|, and {_beside_untrained(result, order)}."
            )
        return " ".join(sentences)


def score(
    network: Network,
    dataset: Dataset,
    frames: np.ndarray,
    untrained: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Average precision and AUROC of every attention matrix for the bonds of `dataset`, over `frames`.

    The bonds are those of the frame of lowest energy. With bonds from the distances of the scored frame
    itself, distance would be right by definition. With `untrained`, the best layer and the union of the
    layers are compared with those of so many networks with random weights, on some of the frames.
    """
    from geomatt.analysis import bond_matrix, untrained_networks
    from geomatt.reproduce import pair_scores as scores

    reference = scores.lowest_frame(dataset)
    lowest = dataset[reference]
    pairs = np.triu_indices(len(lowest), 1)
    truth = bond_matrix(lowest)[pairs]
    radii = COVALENT_RADII[lowest.numbers - 1]
    expected = (radii[:, None] + radii)[pairs]
    found = scores.pair_strengths(network, dataset.select(frames), advance)
    rows = [
        {
            "label": record.label,
            "order": record.order,
            "layer": record.layer + 1,
            **scores.ranking(truth, strength),
            "explained": scores.explained_by_distance(strength, found.distance),
        }
        for record, strength in zip(found.records, found.strength.swapaxes(0, 1), strict=True)
    ]
    controls = [scores.ranking(truth, length / found.distance) for length in (1.0, expected)]
    shown = scores.pair_strengths(network, dataset.select([reference])).strength[0]  # (records, pairs)
    few = frames[np.linspace(0, len(frames) - 1, min(UNTRAINED_FRAMES, len(frames))).astype(int)]
    networks = [network, *untrained_networks(network, untrained)] if untrained else []
    compared = [
        scores.best_and_union(truth, scores.pair_strengths(each, dataset.select(few))) for each in networks
    ]
    return {
        "frames": len(frames),
        "reference_frame": reference,
        "bonds": int(truth.sum()),
        "pairs": len(truth),
        "longest_bond": float(found.distance[:, truth].max()),
        "shortest_other": float(found.distance[:, ~truth].min()),
        "rows": rows,
        "controls": dict(zip(CONTROLS, controls, strict=True)),
        "untrained": {"frames": len(few), "trained": compared[:1], "networks": compared[1:]},
        "symbols": symbols(lowest.numbers),
        "positions": lowest.positions.round(4),
        "bonded": np.column_stack([p[truth] for p in pairs]),
        "matrices": [scores.symmetric((v / (v.max() or 1.0)).round(3), len(lowest)) for v in shown],
        "curves": {"distance": CURVE.round(3), "alpha": scores.alpha_of_distance(network, CURVE).round(5)},
    }


def _record(model: Potential) -> dict[str, Any]:
    """Which model was analysed, and its errors."""
    from geomatt.model import fingerprint

    kept = {key: model.record.get(key) for key in ("test", "epochs", "commit", "seed")}
    return {"fingerprint": fingerprint(model), **kept}


def _own(result: Mapping[str, Any]) -> dict[str, Any]:
    """The results of models on their own molecule."""
    return {name: item for name, item in result["scored"].items() if "→" not in name}


def _lines(items: Mapping[str, Any], key: str, form: str) -> list[list[str]]:
    """A number of every attention matrix, molecules across, with its spread where it has one."""

    def cell(row: Mapping[str, float]) -> str:
        spread = row.get(f"{key}_spread", 0.0)
        return f"{row[key]:{form}}" + (f" ± {spread:.2f}" if spread >= 0.01 else "")

    rows = zip(*(item["rows"] for item in items.values()), strict=True)
    found = [[row[0]["label"], *map(cell, row)] for row in rows]
    if key == "explained":
        return found
    controls = zip(*(item["controls"].items() for item in items.values()), strict=True)
    return found + [[row[0][0].removeprefix("covalent "), *(cell(c) for _, c in row)] for row in controls]


def _untrained(item: Mapping[str, Any], group: str, kind: str) -> tuple[float, np.ndarray]:
    """The precision of the trained network, and those of the untrained ones."""
    compared = item["untrained"]
    return compared["trained"][0][group][kind], np.array([n[group][kind] for n in compared["networks"]])


def _beside_untrained(result: Mapping[str, Any], order: int) -> str:
    """Than how many untrained networks the trained ones are better, as the end of a sentence."""
    own = _own(result)
    compared = {name: _untrained(item, f"k={order}", "best") for name, item in own.items()}
    better = [f"{_above(*found)} ({name.replace('_', ' ')})" for name, found in compared.items()]
    count = len(next(iter(compared.values()))[1])
    return (
        "the best layer of the trained network ranks bonds better than that of "
        f"{', '.join(better)} of {count} untrained networks"
    )


def _above(trained: float, untrained: np.ndarray) -> int:
    """The number of untrained networks that rank bonds less well than the trained one."""
    return int((untrained < trained).sum())


def _untrained_table(items: Mapping[str, Any]) -> ResultTable:
    compared = next(iter(items.values()))["untrained"]
    rows = []
    for group in compared["trained"][0]:
        for kind, words in (("best", "best layer"), ("union", "union of layers")):
            found = [_untrained(item, group, kind) for item in items.values()]
            cells = [f"{t:.2f} ({np.median(u):.2f}, {u.max():.2f}; {_above(t, u)})" for t, u in found]
            rows.append([f"{group}, {words}", *cells])
    control = [f"{item['controls'][CONTROLS[0]]['ap']:.2f}" for item in items.values()]
    return ResultTable(
        "bonds-untrained",
        "Trained and untrained networks: average precision for covalent bonds",
        ["attention", *items],
        [*rows, [CONTROLS[0], *control]],
        f"Trained network (median and largest of {len(compared['networks'])} networks with random weights; "
        f"how many of them are worse than the trained one), over {compared['frames']} frames. The union "
        "ranks a pair by its largest |α| in any of the layers, each divided by the largest of its layer.",
        strong=frozenset({len(rows)}),
    )


def _score_table(name: str, title: str, items: Mapping[str, Any], key: str) -> ResultTable:
    rows = _lines(items, key, ".3f")
    counts = "; ".join(f"{n}: {i['bonds']} bonds in {i['pairs']} pairs" for n, i in items.items())
    frames = "–".join(str(f) for f in sorted({item["frames"] for item in items.values()}))
    return ResultTable(
        name,
        title,
        ["attention", *items],
        rows,
        f"Mean over {frames} frames, ± standard deviation where it is 0.01 or more. {counts}. The last two "
        "rows are controls: the first uses distances, as α^(2) does, the second also the covalent radii of "
        "the elements.",
        strong=frozenset({len(rows) - 2, len(rows) - 1}),
    )


EXPERIMENT = BondsExperiment()
