"""Which order of attention separates which shapes (the paper's Fig. 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.table import ResultTable

MODELS = ("message passing", "k = 2", "k = 3", "k = 4", "k = 5")
SHORT = ("MP", "k=2", "k=3", "k=4", "k=5")
DEGENERATE = 1e-9  # a smaller relative gap is rounding; real ones are above 1e-6
SMALL_GAP = 0.01  # below it, raw embeddings are hard to tell apart


class Shapes(Experiment):
    """Gaps of random embeddings in float64, and classifiers trained on rotated and reordered shapes."""

    name = "shapes"
    title = "Shapes: what each order of attention can separate (Fig. 3)"
    description = (
        "Pairs of shapes with the same distances, angles or dihedrals around an atom, separated by that "
        "atom's embedding after one aggregation step: message passing and attention of order 2 to 5."
    )

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        from geomatt.reproduce.shapes_pairs import pairs
        from geomatt.reproduce.shapes_training import FULL, LARGEST, QUICK, gaps, train_classifiers

        known, seed = pairs(), settings.seed
        setup, draws = (QUICK, 3) if settings.quick else (FULL, 50)
        pieces = Pieces(settings, self.name)
        shared = {"pairs": [pair.name for pair in known], "largest_distance": LARGEST}
        measured: dict[str, dict[str, Any]] = {pair.name: {} for pair in known}
        with progress("gaps and classifiers", 2 * len(MODELS) * setup.epochs) as advance:

            def all_of(model: str) -> tuple[Any, Any, Any]:
                gap = pieces.get(
                    f"gap {model}",
                    {**shared, "draws": draws},
                    lambda: [gaps(model, pair, draws, seed) for pair in known],
                )
                trained = pieces.get(
                    f"trained {model}",
                    {**shared, **asdict(setup)},
                    lambda: train_classifiers(model, known, setup, seed, advance),
                )
                raw = pieces.get(
                    f"raw {model}",
                    {**shared, **asdict(setup)},
                    lambda: [
                        [member["accuracy"] for member in members]
                        for members in train_classifiers(model, known, setup, seed, advance, raw=True)
                    ],
                )
                return gap, trained, raw

            for model in MODELS:
                for pair, gap, outcome, raw in zip(known, *all_of(model), strict=True):
                    measured[pair.name][model] = {**_cell(gap, outcome), "raw_accuracy": raw}
        return {
            "settings": {
                **asdict(setup),
                "draws": draws,
                "largest_distance": LARGEST,
                **{"gamma": 10, "spacing": 0.1, "d_max": 2, "F_I": 16, "F_v": 1},
            },
            "data": {},
            "split": "training and test shapes are rotated and ordered independently",
            "pairs": {
                p.name: {
                    "shared": p.kind,
                    "expected": p.expected,
                    "centred": p.centred,
                    "congruent": p.congruent,
                    "plus": p.plus.round(9),
                    "minus": p.minus.round(9),
                    "models": measured[p.name],
                }
                for p in known
            },
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        rows, gap_rows, raw_rows = [], [], []
        for name, pair in result["pairs"].items():
            cells = [pair["models"][m] for m in MODELS]
            accuracy = [f"{100 * np.mean(cell['accuracy']):.0f}" for cell in cells]
            orders = [_order(separating_order(pair)), _order(pair["expected"])]
            rows.append([name, *accuracy, *orders, pair["shared"]])
            gap_rows.append([name, *(f"{gap:.0e}" if (gap := c["gap_median"]) else "0" for c in cells)])
            raw_rows.append([name, *(_right(c["raw_accuracy"]) for c in cells)])
        seeds, draws = result["settings"]["seeds"], result["settings"]["draws"]
        return [
            ResultTable(
                "shapes-accuracy",
                "Test accuracy (%)",
                ["pair", *SHORT, "separated", "expected", "the two share"],
                rows,
                f"Mean over {seeds} seed(s); 50 is guessing; MP is message passing. “Separated” is the "
                "lowest order whose gap in float64 is above rounding. Pairs called global have no centre: "
                "all atoms are compared.",
            ),
            ResultTable(
                "shapes-gaps",
                "Relative gap between the two embeddings, random weights, float64",
                ["pair", *SHORT],
                gap_rows,
                f"Median over {draws} draws of the weights. About 1e-15 is rounding: no weights can separate "
                "such a pair.",
            ),
            ResultTable(
                "shapes-raw",
                "Classifiers on the raw embedding",
                ["pair", *SHORT],
                raw_rows,
                f"Of {seeds} seed(s), how many are right on every test shape if the embedding is not "
                "standardised and the linear classifier starts from random weights.",
            ),
        ]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        from geomatt.reproduce.shapes_figures import embedding_figure, gap_figure

        return [
            Drawing(
                "shapes-embeddings",
                "Embeddings of test shapes (standardised, one seed) after one aggregation step; each dot is "
                "one rotated and reordered copy; its height is arbitrary. If orange and blue are apart, the "
                "order separates the pair. Below: test accuracy, and the relative gap of the embeddings "
                "before standardising, for random weights (0: rounding).",
                lambda: embedding_figure(result, MODELS),
            ),
            Drawing(
                "shapes-gaps",
                "Relative gap between the embeddings of the two shapes for random weights in float64; grey "
                "cells are rounding. Numbers are test accuracies of trained classifiers in percent.",
                lambda: gap_figure(result, MODELS),
            ),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        pairs = result["pairs"]
        agreed = sum(separating_order(p) == p["expected"] for p in pairs.values())
        trained = [
            (np.mean(c["accuracy"]) > 0.99) == (c["gap_median"] > DEGENERATE)
            for p in pairs.values()
            for c in p["models"].values()
        ]
        return (
            f"{agreed} of {len(pairs)} pairs are separated at exactly the expected order. In {sum(trained)} "
            f"of {len(trained)} cases the trained classifier agrees with the gap in float64: right on every "
            "test shape if there is a gap, guessing if there is none. "
            + _raw_sentence(pairs, result["settings"]["seeds"])
        )


def _raw_sentence(pairs: Mapping[str, Any], seeds: int) -> str:
    """A sentence about pairs with a gap for which the raw embedding suffices, by the size of the gap."""
    found = [
        (cell["gap_median"], sum(a == 1.0 for a in cell["raw_accuracy"]))
        for pair in pairs.values()
        for cell in pair["models"].values()
        if cell["gap_median"] > DEGENERATE
    ]
    large, small = ([n for gap, n in found if (gap >= SMALL_GAP) == is_large] for is_large in (True, False))
    return (
        f"Without standardising, {sum(large)} of {seeds * len(large)} classifiers are right where the gap is "
        f"{SMALL_GAP:g} or more, and {sum(small)} of {seeds * len(small)} where it is smaller."
    )


def _right(accuracies: Sequence[float]) -> str:
    return f"{sum(a == 1.0 for a in accuracies)}"


def separating_order(pair: Mapping[str, Any]) -> int | None:
    """The lowest order of attention whose median gap is above rounding."""
    for model, cell in pair["models"].items():
        if model.startswith("k = ") and cell["gap_median"] > DEGENERATE:
            return int(model.removeprefix("k = "))
    return None


def _cell(gap: list[float], outcome: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "gap_median": float(np.median(gap)),
        "gap_least": min(gap),
        "gap_largest": max(gap),
        "accuracy": [o["accuracy"] for o in outcome],
        "embedding": np.round(outcome[0]["embedding"], 5),
    }


def _order(order: int | None) -> str:
    return "never" if order is None else f"k={order}"


EXPERIMENT = Shapes()
