"""Measure what `geomatt improve` gains: chosen frames against random ones, at equal numbers of labels.

    python scripts/measure_improve.py --out DIR [--workers 2]

For each seed a committee is trained on a few frames of methanol at 300 K. Rounds of `improve` at 800 K choose
frames where its members differ, frames far from the data, or frames at random. All models are tested on the
same independent frames at 800 K. Writes results/improve.json, docs/images/improve.png and a table in
docs/from-a-molecule.md; needs tblite and RDKit. Continues after Ctrl-C. With --table, only the table and the
picture are written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from docs_block import write_block
from scipy.stats import spearmanr

from geomatt.data import read
from geomatt.data.dataset import Dataset
from geomatt.data.make import SampleConfig, open_workers, read_molecule, sample
from geomatt.data.novelty import novelty
from geomatt.drawing import new_figure, save_figure
from geomatt.evaluation import evaluate
from geomatt.model import AnyPotential, load
from geomatt.model.calibration import LEVELS
from geomatt.training import hardware, resolve, train_members
from geomatt.training.dataset import make_splits, resolve_sizes
from geomatt.training.folder import CONFIG
from geomatt.workflow import ImproveConfig, improve

ROOT = Path(__file__).resolve().parents[1]
METHOD, COLD, HOT = "GFN1-xTB", 300.0, 800.0
FIRST, TESTS, LABELS, ROUNDS, SEEDS = 120, 400, 40, 3, 3
EPOCHS, MORE_EPOCHS, MEMBERS = 150, 80, 2
RESULT, PAGE = "results/improve.json", "docs/from-a-molecule.md"
CHOICES = ("uncertain", "novel", "random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"({SEEDS})")
    parser.add_argument("--table", action="store_true", help="write table and picture of the result there is")
    options = parser.parse_args()
    if options.table:
        _show(json.loads((ROOT / RESULT).read_text(encoding="utf-8")))
        return
    if options.out is None:
        parser.error("--out is needed")
    options.out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, list[list[dict[str, float]]]] = {choice: [] for choice in CHOICES}
    signs: list[dict[str, Any]] = []
    with open_workers(options.workers) as workers:
        tests = _sampled(options.out / "tests.npz", TESTS, HOT, 2, workers)
        for seed in range(options.seeds):
            folder = options.out / f"seed_{seed}"
            folder.mkdir(exist_ok=True)
            first = _sampled(folder / "first.npz", FIRST, COLD, 101 + seed, workers)
            model = _committee(first, folder / "model", 10 * seed)
            signs.append(_signs(load(model), first, tests))
            for choice in CHOICES:
                points = _curve(choice, seed, model, first, tests, folder / choice, workers)
                curves[choice].append(points)
                errors = [f"{1000 * p['mae']:.1f} ({1000 * p['worst']:.0f})" for p in points]
                print(seed, choice, errors, flush=True)
    result = {
        "molecule": "methanol",
        "method": METHOD,
        "first": {"frames": FIRST, "temperature_K": COLD},
        "tests": {"frames": TESTS, "temperature_K": HOT},
        "members": MEMBERS,
        "labels": [LABELS * n for n in range(ROUNDS + 1)],
        "force_errors_eV_per_A": curves,
        "first_models": signs,
        "hardware": hardware("cpu"),
        "commit": load(options.out / "seed_0" / "model").record["commit"],  # of the training
    }
    (ROOT / RESULT).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    _show(result)


def _curve(
    choice: str, seed: int, model: Path, first: Dataset, tests: Dataset, out: Path, workers: Any
) -> list[dict[str, float]]:
    """Errors of the first model and after each round."""
    config = ImproveConfig(
        labels=LABELS,
        rounds=ROUNDS,
        choose=choice,
        temperature=HOT,
        picoseconds=1.0,
        epochs=MORE_EPOCHS,
        seed=100 * seed,
    )
    if not (out / "report.json").is_file():
        improve(model, first, config, out, workers=workers)
    models = [model, *(out / f"round_{n}" / "model" for n in range(1, ROUNDS + 1))]
    return [_errors(load(path), tests) for path in models]


def _sampled(path: Path, frames: int, temperature: float, seed: int, workers: Any) -> Dataset:
    if not path.is_file():
        config = SampleConfig(METHOD, frames=frames, temperature=(temperature,), seed=seed)
        sample(read_molecule("CO"), config, path, workers=workers, name="methanol")
    return read(path)


def _committee(data: Dataset, folder: Path, seed: int) -> Path:
    given = {"members": MEMBERS, "epochs": EPOCHS, "train": 100, "val": 20, "seed": seed}
    config = resolve_sizes(resolve(given), len(data))
    train_members(data, make_splits(config, len(data)), config, folder, resume=(folder / CONFIG).is_file())
    return folder


def _errors(model: AnyPotential, tests: Dataset) -> dict[str, float]:
    """Mean absolute error of force components, and the 99th percentile of the error of an atom's force."""
    found = evaluate(model, tests)
    assert found.forces is not None
    assert tests.forces is not None
    length = np.linalg.norm(found.forces - tests.forces, axis=1)
    assert found.overall.forces_mae is not None
    return {"mae": found.overall.forces_mae, "worst": float(np.percentile(length, 99))}


def _signs(model: AnyPotential, first: Dataset, tests: Dataset) -> dict[str, Any]:
    """How well signs of uncertainty rank the largest force error of the test frames, and error bars."""
    found = evaluate(model, tests)
    assert found.forces is not None
    assert found.forces_spread is not None
    assert found.coverage is not None
    assert tests.forces is not None
    errors = np.linalg.norm(found.forces - tests.forces, axis=1).reshape(len(tests), -1).max(1)
    signs = {
        "spread of the members": found.forces_spread.reshape(len(tests), -1).max(1),
        "distance from the data": novelty(list(tests), list(first)),
    }
    worst, tenth = np.argsort(-errors)[: len(tests) // 10], len(tests) // 10
    return {
        "signs": {
            name: {
                "spearman": float(spearmanr(sign, errors)[0]),
                "worst_tenth_found": float(np.isin(np.argsort(-sign)[:tenth], worst).mean()),
            }
            for name, sign in signs.items()
        },
        "coverage_at_90_percent": {
            kind: {way: shares[LEVELS.index(0.9)] for way, shares in both.items()}
            for kind, both in found.coverage.items()
        },
    }


WORDS = {"uncertain": "where members differ", "novel": "far from the data", "random": "random frames"}


def table(result: dict[str, Any]) -> str:
    """The result in Markdown: force errors by choice and number of labels, and signs of uncertainty."""

    def spread(values: list[float], digits: int = 0, factor: float = 1000.0) -> str:
        return f"{factor * np.mean(values):.{digits}f} ± {factor * np.std(values):.{digits}f}"

    labels = result["labels"]
    lines = [
        f"| force MAE (meV/Å) after so many labels | {' | '.join(map(str, labels))} |",
        f"|---|{'---|' * len(labels)}",
    ]
    for choice, runs in result["force_errors_eV_per_A"].items():
        cells = [spread([run[n]["mae"] for run in runs], 1) for n in range(len(labels))]
        lines.append(f"| {WORDS[choice]} | {' | '.join(cells)} |")
    signs = {
        name: [first["signs"][name] for first in result["first_models"]]
        for name in result["first_models"][0]["signs"]
    }
    lines += [
        "",
        f"| first model, tested at {HOT:g} K | {' | '.join(signs)} |",
        f"|---|{'---|' * len(signs)}",
    ]
    for key, words in (
        ("spearman", "rank correlation with the largest force error of a frame"),
        ("worst_tenth_found", "share of the worst tenth of frames found"),
    ):
        cells = [spread([one[key] for one in found], 2, 1.0) for found in signs.values()]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    covered = [first["coverage_at_90_percent"]["forces"] for first in result["first_models"]]
    bars = [spread([one[way] for one in covered], 0, 100.0) for way in ("calibrated", "raw")]
    seeds = len(result["first_models"])
    return "\n".join(
        [
            *lines,
            "",
            f"*Mean ± standard deviation over {seeds} seeds of first data, models and dynamics. Error bars "
            f"for 90 % of force errors, calibrated at {COLD:g} K, held {bars[0]} % of them at {HOT:g} K, and "
            f"{bars[1]} % when the spread was taken as it is.*",
        ]
    )


def _show(result: dict[str, Any]) -> None:
    write_block(ROOT / PAGE, "improve", table(result))
    _draw(result, ROOT / "docs/images/improve.png")


def _draw(result: dict[str, Any], path: Path) -> None:
    figure = new_figure(8.4, 3.6, dpi=150)
    axes = figure.subplots(1, 2)
    colours = {"uncertain": "#2b59a8", "novel": "#3a9d5d", "random": "#d1495b"}
    for axis, name, title in (
        (axes[0], "mae", "force MAE"),
        (axes[1], "worst", "99 % of force errors below"),
    ):
        for choice, runs in result["force_errors_eV_per_A"].items():
            colour, text = colours[choice], WORDS[choice]
            values = 1000 * np.array(
                [[point[name] for point in points] for points in runs]
            )  # (seeds, rounds + 1)
            for run in values:
                axis.plot(result["labels"], run, color=colour, linewidth=0.7, alpha=0.4)
            axis.plot(result["labels"], values.mean(0), "o-", color=colour, label=text, markersize=4)
        axis.set(xlabel="new labels", ylabel=f"{title} (meV/Å)", ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.suptitle("Methanol: first data at 300 K, tests at 800 K", fontsize=10)
    save_figure(figure, path)


if __name__ == "__main__":
    main()
