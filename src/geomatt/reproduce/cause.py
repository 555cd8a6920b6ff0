"""Cause: do the pairs with the strongest attention matter most for the forces?

Deletion curves (`geomatt.analysis.deletion`) of every attention record of the shipped models, with inverse
distance, the effect of each pair alone, random orders and untrained networks as controls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from geomatt.analysis import (
    BY_ATTENTION,
    BY_CHANCE,
    BY_DISTANCE,
    BY_EFFECT,
    DELETED,
    Faithfulness,
    faithfulness,
    untrained_networks,
)
from geomatt.data import Structure
from geomatt.drawing import FAINT, SERIES, new_figure
from geomatt.model import Potential, fingerprint
from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.inputs import (
    STAND_IN,
    captioned,
    described_md17,
    load_md17,
    md17_model,
    noted,
    unseen_frames,
)
from geomatt.reproduce.published import NOT_RUN, left_table, title
from geomatt.reproduce.table import ResultTable
from geomatt.units import ENERGY_IN_EV

KINDS = ("fast", "pair-s", "pair")  # models, as in md17/aspirin:fast
FRAMES, QUICK_FRAMES = 8, 2  # frames the models were not trained on
RANDOM_ORDERS = 3
UNTRAINED, QUICK_UNTRAINED = 10, 2  # networks with random weights, each on one of the frames
SHOWN = 0.2  # share of pairs deleted in the table of force errors


class Cause(Experiment):
    name = "cause"
    title = "Cause: attention and the effect of switching pairs off"
    description = (
        "Pairs of atoms are switched off in the order of their attention, of inverse distance, of their own "
        "effect and at random, and the change of the forces is measured, for trained and untrained networks."
    )
    parts: ClassVar[tuple[str, ...]] = KINDS

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        data, stand_in = load_md17(settings)
        pieces = Pieces(settings, self.name)
        frames, untrained = (QUICK_FRAMES, QUICK_UNTRAINED) if settings.quick else (FRAMES, UNTRAINED)
        rows: dict[str, dict[str, Any]] = {}
        missing: dict[str, int] = {}
        for kind in ("fast",) if settings.quick else KINDS:
            for molecule, dataset in data.items():
                model = md17_model(settings, molecule, kind)
                name = f"{kind}-{molecule}"
                inputs = {
                    "model": None if model is None else fingerprint(model),
                    "data": dataset.fingerprint(),
                    "frames": frames,
                    "untrained": untrained,
                    "fractions": DELETED,
                    "random": RANDOM_ORDERS,
                }
                found = None if model is None else pieces.find(name, inputs)
                wanted = settings.wants(kind) and not settings.out_of_time
                if found is None and model is not None and wanted:
                    chosen = unseen_frames(model, dataset, frames, settings.seed)
                    model.to(settings.device)
                    with progress(f"switching pairs off: {name}", frames + untrained) as advance:
                        compute = _computation(model, chosen, untrained, advance)
                        found = pieces.get(name, inputs, compute)
                if found is None:
                    missing[kind] = missing.get(kind, 0) + 1
                else:
                    rows.setdefault(kind, {})[molecule] = found
        return {
            "settings": {
                "frames": frames,
                "untrained": untrained,
                "random": RANDOM_ORDERS,
                "fractions": DELETED,
                "stand_in": stand_in,
            },
            "data": described_md17(data, stand_in),
            "split": "frames that no model was trained on",
            "rows": rows,
            "missing": missing,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        made = [
            table(result, kind)
            for kind in KINDS
            if kind in result["rows"]
            for table in (_score_table, _correlation_table, _error_table)
        ]
        return [*noted(result, made), left_table(result, gpu=False)]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        settings = result["settings"]
        drawings = [
            Drawing(
                f"cause-{kind}",
                f"Models :{kind}, mean over {len(rows)} molecules, {settings['frames']} unseen frames each: "
                "relative change of the forces, ‖ΔF‖ / (‖ΔF‖ + ‖F‖), as pairs are deleted. Grey: each "
                "attention matrix.",
                partial(_figure, rows, settings["fractions"]),
            )
            for kind, rows in result["rows"].items()
        ]
        return captioned(result, drawings)

    def summary(self, result: Mapping[str, Any]) -> str:
        sentences = [STAND_IN] if result["settings"]["stand_in"] else []
        for kind, rows in result["rows"].items():
            records = [(item, label) for item in rows.values() for label in _records(item)]
            score = {c: _mean(item["trained"][c]["score"] for item in rows.values()) for c in _common(rows)}
            above = sum(
                item["trained"][label]["score"] > item["trained"][BY_DISTANCE]["score"]
                for item, label in records
            )
            margins = [
                item["trained"][label]["score"] - np.array([u[label]["score"] for u in item["untrained"]])
                for item, label in records
            ]  # over each untrained network
            usual, better = sum(np.median(m) > 0 for m in margins), sum(m.min() > 0 for m in margins)
            attention = _mean(item["trained"][label]["score"] for item, label in records)
            correlation = _mean(item["trained"][label]["correlation"] for item, label in records)
            distance = _mean(item["trained"][BY_DISTANCE]["correlation"] for item in rows.values())
            sentences.append(
                f"Models `:{kind}`: the score of an attention matrix is {attention:+.3f} on average, that of "
                f"all matrices together {score[BY_ATTENTION]:+.3f}, of inverse distance "
                f"{score[BY_DISTANCE]:+.3f}, of the pairs' own effects {score[BY_EFFECT]:+.3f}, of random "
                f"orders {score[BY_CHANCE]:+.3f}. "
                f"{above} of {len(records)} matrices score higher than inverse distance; {usual} score "
                f"higher than the same matrix in the median untrained network, {better} than in all of them. "
                "The rank correlation with the effect of "
                f"each pair alone is {correlation:.2f} for attention and {distance:.2f} for inverse distance."
            )
        return " ".join(sentences) or "Not run yet."


def _computation(
    model: Potential, frames: Sequence[Structure], untrained: int, advance: Callable[[int], None]
) -> Callable[[], dict[str, Any]]:
    def compute() -> dict[str, Any]:
        trained = []
        for number, frame in enumerate(frames):
            trained.append(faithfulness(model, frame, random=RANDOM_ORDERS, seed=number))
            advance(1)
        controls = []
        for number, network in enumerate(untrained_networks(model.network, untrained)):
            other = Potential(network, model.normalisation)
            frame = frames[number % len(frames)]
            controls.append(summarised([faithfulness(other, frame, random=RANDOM_ORDERS, seed=number)]))
            advance(1)
        return {
            "atoms": len(frames[0]),
            "trained": summarised(trained),
            "untrained": [
                {label: {k: v[k] for k in ("score", "correlation")} for label, v in one.items()}
                for one in controls
            ],
        }

    return compute


def summarised(frames: Sequence[Sequence[Faithfulness]]) -> dict[str, dict[str, Any]]:
    """Means over frames by ranking; random orders are one ranking."""
    groups: dict[str, list[Faithfulness]] = {}
    for frame in frames:
        for found in frame:
            label = BY_CHANCE if found.label.startswith(f"{BY_CHANCE} ") else found.label
            groups.setdefault(label, []).append(found)
    return {
        label: {
            "score": _mean(f.score for f in group),
            "spread": float(np.std([f.score for f in group])),
            "strongest": _mean(f.strongest.area for f in group),
            "weakest": _mean(f.weakest.area for f in group),
            "correlation": _mean(f.correlation for f in group),
            "strongest_curve": np.mean([f.strongest.relative for f in group], axis=0).round(5),
            "weakest_curve": np.mean([f.weakest.relative for f in group], axis=0).round(5),
            "strongest_error": _errors([f.strongest.error for f in group]),
            "weakest_error": _errors([f.weakest.error for f in group]),
        }
        for label, group in groups.items()
    }


def _errors(curves: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Mean force errors, kcal/mol/Å, by fraction."""
    there = [curve for curve in curves if curve is not None]
    return (np.mean(there, axis=0) / ENERGY_IN_EV["kcal/mol"]).round(4) if there else None


def _mean(values: Iterable[float]) -> float:
    """Of the values that are defined; 0 if none is."""
    there = [v for v in values if np.isfinite(v)]
    return round(float(np.mean(there)), 5) if there else 0.0


def _records(item: Mapping[str, Any]) -> list[str]:
    """The rankings that are attention matrices."""
    return [
        label for label in item["trained"] if label not in (BY_ATTENTION, BY_DISTANCE, BY_EFFECT, BY_CHANCE)
    ]


def _common(rows: Mapping[str, Any]) -> list[str]:
    return list(next(iter(rows.values()))["trained"])


def _table(
    result: Mapping[str, Any], kind: str, name: str, words: str, note: str, cell: Callable[[Any, str], str]
) -> ResultTable:
    """Rankings down, molecules across."""
    rows = result["rows"][kind]
    labels = _common(rows)
    return ResultTable(
        f"cause-{kind}-{name}",
        f"Models md17/…:{kind}: {words}",
        ["pairs ranked by", *(title(m) for m in rows)],
        [[label, *(cell(item, label) for item in rows.values())] for label in labels],
        note,
        strong=frozenset(r for r, label in enumerate(labels) if label in (BY_DISTANCE, BY_EFFECT, BY_CHANCE)),
    )


def _score_table(result: Mapping[str, Any], kind: str) -> ResultTable:
    def cell(item: Mapping[str, Any], label: str) -> str:
        others = [one[label]["score"] for one in item["untrained"]]
        return f"{item['trained'][label]['score']:+.3f} ({np.median(others):+.3f}, {max(others):+.3f})"

    settings = result["settings"]
    note = (
        f"Mean over {settings['frames']} unseen frames (median, largest of {settings['untrained']} untrained "
        "networks, one frame each). Score: area under the curve of the relative change of the forces, "
        "‖ΔF‖ / (‖ΔF‖ + ‖F‖), over the share of deleted pairs, with the strongest pairs deleted first minus "
        "with the weakest first. 0: no information. Controls in bold."
    )
    return _table(result, kind, "score", "faithfulness", note, cell)


def _correlation_table(result: Mapping[str, Any], kind: str) -> ResultTable:
    def cell(item: Mapping[str, Any], label: str) -> str:
        others = [one[label]["correlation"] for one in item["untrained"]]
        return f"{item['trained'][label]['correlation']:.2f} ({np.median(others):.2f})"

    note = (
        "Spearman's correlation with the root mean square change of the forces when the pair alone is "
        "switched off, mean over frames (median of the untrained networks)."
    )
    return _table(result, kind, "correlation", "rank correlation with the effect of a pair", note, cell)


def _error_table(result: Mapping[str, Any], kind: str) -> ResultTable:
    where = list(result["settings"]["fractions"]).index(SHOWN)

    def cell(item: Mapping[str, Any], label: str) -> str:
        first, last = (item["trained"][label][f"{end}_error"] for end in ("strongest", "weakest"))
        return NOT_RUN if first is None else f"{first[where]:.1f} / {last[where]:.1f}"

    intact = ", ".join(
        f"{title(m)} {item['trained'][BY_DISTANCE]['strongest_error'][0]:.2f}"
        for m, item in result["rows"][kind].items()
        if item["trained"][BY_DISTANCE]["strongest_error"] is not None
    )
    note = (
        f"MAE of forces against the labels, kcal/mol/Å, with {100 * SHOWN:.0f} % of the pairs deleted: the "
        f"strongest / the weakest. Intact: {intact}."
    )
    return _table(result, kind, "error", "force error with pairs deleted", note, cell)


def _figure(rows: Mapping[str, Any], fractions: Sequence[float]) -> Any:
    """Deletion curves, the strongest pairs first and the weakest first."""
    figure = new_figure(7.2, 2.9)
    axes = figure.subplots(1, 2, sharey=True)
    colours = dict(zip((BY_ATTENTION, BY_DISTANCE, BY_EFFECT, BY_CHANCE), SERIES, strict=False))
    for axis, end in zip(axes, ("strongest", "weakest"), strict=True):
        for label in _common(rows):
            curve = np.mean([item["trained"][label][f"{end}_curve"] for item in rows.values()], axis=0)
            known = label in colours
            axis.plot(
                fractions,
                curve,
                color=colours.get(label, FAINT),
                linewidth=1.6 if known else 0.6,
                label=label if known else None,
                zorder=3 if known else 2,
            )
        axis.set(title=f"{end} pairs first", xlabel="share of pairs deleted", xlim=(0, 1), ylim=(0, None))
    axes[0].set_ylabel("relative change of forces")
    axes[1].legend(loc="lower right")
    return figure


EXPERIMENT = Cause()
