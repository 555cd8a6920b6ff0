"""Improve a model: dynamics, labels where it is uncertain, further training; repeated."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data import Dataset, Split, concatenate, read, write
from geomatt.data.make import Workers, label
from geomatt.data.make.config import MethodConfig
from geomatt.data.make.method import Method
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate
from geomatt.model import AnyPotential, fingerprint, load
from geomatt.pages.reports import REPORT
from geomatt.training import Job, TrainCallback, TrainConfig, resolve, train_together
from geomatt.training.error_bars import calibrate
from geomatt.training.members import member_folder
from geomatt.training.start import base_settings
from geomatt.workflow.config import ImproveConfig
from geomatt.workflow.explore import choose, explore, scores
from geomatt.workflow.pages import improvement_page
from geomatt.workflow.stages import Stages, Watch, stages, unwatched

CANDIDATES, LABELLED, MODEL = "candidates.extxyz", "labelled.extxyz", "model"
_HELD_OUT, _VALIDATION = 5, 10  # one of so many new frames tests, one of so many validates


def improve(
    model: str | os.PathLike[str],
    data: Dataset,
    config: ImproveConfig,
    out: str | os.PathLike[str],
    *,
    workers: Workers | None = None,
    watch: Watch = unwatched,
    training: Callable[[], AbstractContextManager[TrainCallback | None]] = nullcontext,
) -> dict[str, Any]:
    """Improve a model or committee that was trained on `data`; the last round's is in `OUT/round_N/model`.

    A fifth of the new frames of each round is never trained on. The report, also in `report.json`, compares
    the errors on them before and after each round, and those on the test frames of the first model. The same
    call continues after any interruption.
    """
    loaded = load(model)
    split = _split(loaded, data)
    method = reference_method(config, data)
    settings = {
        **config.to_dict(),
        **method.to_dict(),
        "model": fingerprint(loaded),
        "data": data.fingerprint(),
    }
    settings.pop("rounds")  # more may be added
    folder = Path(out)
    reports: list[dict[str, Any]] = []
    with stages(folder, "improve", settings):
        state = _State(loaded, data, split, split.test)
        for number in range(1, config.rounds + 1):
            here = Stages(folder / f"round_{number}")
            here.folder.mkdir(exist_ok=True)
            before = state
            grown = _labelled(here, before, config, method, number, workers, watch)
            with training() as callback:
                state = _trained(here, grown, config, callback)
            reports.append(here.once("round", lambda b=before, a=state: _compare(b, a, watch)))  # type: ignore[misc]
        report = {"rounds": reports, "model": f"round_{config.rounds}/{MODEL}"}
        Stages(folder).write("report", report)
        _page(state, folder, report)
    return {**report, "folder": str(folder)}


def _page(state: _State, folder: Path, report: dict[str, Any]) -> None:
    """`report.html`, if there are frames to test on."""
    if len(state.held_out):
        tested = evaluate(state.model, state.data, indices=state.held_out, exclude_trained=False)
        page = improvement_page(state.model, tested, folder / report["model"], report["rounds"])
        page.save(folder / REPORT)


@dataclass(frozen=True)
class _State:
    """A model with the data it was trained on."""

    model: AnyPotential
    data: Dataset
    split: Split
    held_out: np.ndarray  # frames of `data` that no round trains on


def _split(model: AnyPotential, data: Dataset) -> Split:
    """The frames the members were trained on, which must be the same for all."""
    records = [member.record for member in model.members]
    if any(r.get("data", {}).get("fingerprint") != data.fingerprint() for r in records):
        raise GeomAttError("The model was trained on other data. Give the data it was trained on.")
    if any(r["split"] != records[0]["split"] for r in records):
        raise GeomAttError("The members were trained on different frames (folds). Train `members` instead.")
    if not data.single_composition:
        raise GeomAttError("Only models of a single molecule are improved.")
    return Split.from_dict(records[0]["split"])


def reference_method(config: ImproveConfig, data: Dataset) -> MethodConfig:
    """The method asked for, or the one the data was made with; labels of two methods are never mixed."""
    try:
        made = json.loads(data.origin.get("made_by", ""))["method"]
        known = MethodConfig(
            made["calculator"], {k: v for k, v in made["arguments"].items() if k != "verbosity"}
        )
    except (ValueError, KeyError, TypeError):
        known = None
    if not config.calculator:
        if known is None:
            raise GeomAttError(
                "The data does not say how it was labelled. Name its method with `calculator`."
            )
        return MethodConfig(known.calculator, known.arguments, config.charge, config.multiplicity)
    asked = MethodConfig(config.calculator, config.arguments, config.charge, config.multiplicity)
    name = Method(asked.calculator, asked.arguments).calculator
    if known is not None and name != known.calculator:
        raise GeomAttError(
            f"The data was labelled with {known.calculator}, not with {name}. Leave `calculator` out, or "
            "label the data anew with geomatt label."
        )
    return asked


def _labelled(
    here: Stages,
    state: _State,
    config: ImproveConfig,
    method: MethodConfig,
    number: int,
    workers: Workers | None,
    watch: Watch,
) -> _State:
    """The data with the labels of this round; those of the fifth that tests are among `held_out`."""
    if not (here.folder / LABELLED).is_file():
        if not (here.folder / CANDIDATES).is_file():
            with watch(f"round {number}: dynamics", config.records * config.stride, "steps") as advance:
                found = explore(state.model, state.data, config, config.seed + number, advance)
            known = state.data.select(np.concatenate([state.split.train, state.split.validation]))
            score = scores(state.model, known, found.structures, config.choose, config.seed + number)
            taken = choose(found, score, config.labels)
            write(Dataset.from_structures([found.structures[i] for i in taken]), here.folder / CANDIDATES)
        candidates = read(here.folder / CANDIDATES)
        with watch(f"round {number}: labelling", len(candidates), "frames") as advance:
            label(candidates, method, here.folder / LABELLED, workers=workers, progress=advance)
    new = read(here.folder / LABELLED)
    joined = concatenate([state.data, new])
    index = len(state.data) + np.arange(len(new))
    tests = np.arange(len(new)) % _HELD_OUT == _HELD_OUT - 1
    validates = (np.arange(len(new)) % _VALIDATION == 0) & ~tests
    split = Split(
        np.concatenate([state.split.train, index[~tests & ~validates]]),
        np.concatenate([state.split.validation, index[validates]]),
        np.zeros(0, dtype=np.int64),
        "improve",
    )
    return _State(state.model, joined, split, np.concatenate([state.held_out, index[tests]]))


def _trained(here: Stages, state: _State, config: ImproveConfig, callback: TrainCallback | None) -> _State:
    """The model trained further on all data."""
    folder = here.folder / MODEL
    members = state.model.members
    for k, member in enumerate(members):
        job = Job(
            state.data,
            state.split,
            _train_config(member, config, k, len(members)),
            member_folder(folder, k) if len(members) > 1 else folder,
            member,
            keep_units=True,
        )
        with warnings.catch_warnings():  # about what the base never saw: that is why it is trained
            warnings.simplefilter("ignore")
            train_together([job], resume=True, callback=callback)
    trained = load(folder)
    if len(members) > 1 and trained.calibration is None:
        calibrate(trained.members, state.data.select(state.split.validation), folder)
        trained = load(folder)
    return _State(trained, state.data, state.split, state.held_out)


def _train_config(member: Any, config: ImproveConfig, number: int, members: int) -> TrainConfig:
    """The member's own settings, for all its weights, with fewer epochs and a lower learning rate."""
    own = member.record.get("settings", {})
    kept = ("recipe", "batch", "optimiser", "schedule", "decay", "decay_every", "warmup", "final",
            "ema_decay", "clip", "validate_every", "weighting", "rho", "scale", "report_unit",
            "dtype")  # fmt: skip
    rate = config.learning_rate or own.get("learning_rate", TrainConfig.learning_rate) / 3
    given = {name: own[name] for name in kept if own.get(name) is not None}
    return resolve(
        {
            **given,
            **base_settings(member),
            "epochs": config.epochs,
            "learning_rate": rate,
            "patience": 0,
            "unfreeze": ("all",),
            "seed": max(0, member.record.get("seed", number) - number),
            **({"members": members, "member": number} if members > 1 else {}),
        }
    )


def _compare(before: _State, after: _State, watch: Watch) -> dict[str, Any]:
    """Errors before and after, on new frames and on old ones that neither model was trained on."""
    first = len(before.data)
    groups = {
        "new frames": after.held_out[after.held_out >= first],
        "earlier frames": after.held_out[after.held_out < first],
    }
    result: dict[str, Any] = {"labelled": len(after.data) - first, "trained_on": len(after.split.train)}
    with watch("testing", 2 * len(after.held_out), "frames") as advance:
        for name, frames in groups.items():
            if not len(frames):
                continue
            errors = [
                evaluate(state.model, after.data, indices=frames, exclude_trained=False, progress=advance)
                for state in (before, after)
            ]
            result[name] = {
                "frames": len(frames),
                **{
                    when: {"energy_mae_eV": e.overall.energy_mae, "forces_mae_eV_per_A": e.overall.forces_mae}
                    for when, e in zip(("before", "after"), errors, strict=True)
                },
            }
    return result
