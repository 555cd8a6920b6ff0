"""The transfers of table 2 with pair states: the readout of a shipped model trained on another molecule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geomatt.data import Split, random_split
from geomatt.model import Potential, load
from geomatt.reproduce.inputs import MD17, frames_note
from geomatt.reproduce.md17 import UNTRAINED, Md17Study, Member
from geomatt.reproduce.pair import LEARNING_RATES, SHIPPED, SIZES, TRAIN, VALIDATION
from geomatt.reproduce.published import Models, error_table, tested_on
from geomatt.reproduce.study import UNIT
from geomatt.reproduce.table import ResultTable
from geomatt.training import Job, TrainConfig, TrainResult, resolve

RECIPE, SIZE = "pair", "s"
PARTS = ("pair", "pair-untrained")
KINDS = {"transfer": "readout retrained", "scratch": "from scratch", "untrained": "untrained features"}


class PairTransferStudy(Md17Study):
    """Readouts on frozen pair states, trained on the frames of the shipped models."""

    name = "table2"

    def config(self, member: Member) -> TrainConfig:
        base = member.base if member.base in (None, UNTRAINED) else shipped(member.base)
        return resolve(
            {
                "model": "pair",
                "data": f"{'embedded' if self.stand_in else 'md17'}/{member.molecule}",
                "recipe": member.recipe,
                "network": SIZES[SIZE],
                "epochs": self.size.epochs["pair-transfer"],
                "learning_rate": LEARNING_RATES[SIZE],
                "base": base,
                "seed": self.settings.seed + member.seed,
                "split_seed": self.settings.seed,
                "device": self.settings.device,
                "report_unit": UNIT,
            }
        )

    def split(self, member: Member) -> Split:
        """The split the shipped models were trained with."""
        points, count = self.size.points, len(self.data[member.molecule])
        validation = max(2, points * VALIDATION // (TRAIN + VALIDATION))
        return self.thinned(random_split(count, points - validation, validation, seed=self.settings.seed))

    def beside(self, member: Member) -> dict[str, Any]:
        return {"points": self.size.points, "test": self.size.test}

    def model(self, molecule: str) -> Potential:
        return load(shipped(molecule)).members[0]

    def measure(self, member: Member, job: Job, result: TrainResult) -> dict[str, Any]:
        return self.tested(result.potential, member)

    def can_train(self, member: Member) -> bool:
        return member.base in (None, UNTRAINED) or self.knows(member.base, member.molecule)

    def knows(self, base: str, target: str) -> bool:
        """True if the model of a molecule has all elements of another."""
        return set(self.data[target].elements) <= set(self.model(base).elements)

    def scratch(self, molecule: str) -> dict[str, Any] | None:
        """Errors of the shipped model of a molecule; computed if a part was asked for and there is time."""
        name, inputs = self.scratch_piece(molecule)
        found: dict[str, Any] | None = self.pieces.find(name, inputs)
        asked = self.settings.chooses(PARTS, set(self.settings.parts) - set(MD17))
        if found is None and asked and not self.settings.out_of_time and self.knows(molecule, molecule):
            member = Member(molecule, recipe=RECIPE)
            found = self.pieces.get(name, inputs, lambda: self.tested(self.model(molecule), member))
        return found

    def scratch_piece(self, molecule: str) -> tuple[str, dict[str, Any]]:
        """Name and inputs of the errors of the shipped model of a molecule."""
        data = self.described[molecule]["fingerprint"]
        inputs = {"model": shipped(molecule), "data": data, **self.beside(Member(molecule))}
        return f"pair-scratch-{molecule}", inputs

    def plan(self, pairs: Sequence[tuple[str, str]]) -> dict[str, list[Member]]:
        """The members of each part."""
        targets = dict.fromkeys(target for _, target in pairs)
        members = (
            [Member(target, base=base, recipe=RECIPE) for base, target in pairs],
            [Member(target, base=UNTRAINED, recipe=RECIPE) for target in targets],
        )
        return dict(zip(PARTS, members, strict=True))


def shipped(molecule: str) -> str:
    """The name of the model that ships for a molecule."""
    return f"md17/{molecule}:{SHIPPED[SIZE]}"


def pair_rows(study: PairTransferStudy, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Errors of every transfer and its controls, None where not run; trains what was asked for."""
    scratch = {target: study.scratch(target) for _, target in pairs}
    study.train_plan(study.plan(pairs))
    return [
        {
            "transfer": study.find(Member(target, base=base, recipe=RECIPE)),
            "scratch": scratch[target],
            "untrained": study.find(Member(target, base=UNTRAINED, recipe=RECIPE)),
        }
        for base, target in pairs
    ]


def pair_table(result: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> ResultTable:
    """Transfers down; `rows` maps their names to what `pair_rows` found."""
    stand_in = result["settings"]["stand_in"]  # the energies of a model of MD17 have another zero
    columns: dict[str, dict[str, Models]] = {
        label: {name: [row[kind]] for name, row in rows.items() if row[kind] is not None}
        for kind, label in KINDS.items()
        if not (stand_in and kind == "scratch")
    }
    models = [model for column in columns.values() for several in column.values() for model in several]
    tested = tested_on(models) if models else "– not run yet"
    frames = f"{TRAIN} + {VALIDATION} frames" if result["quick"] else "the same frames"
    scratch = "" if stand_in else f"; from scratch: the model that ships, trained on {frames}"
    return error_table(
        "table2-pair",
        "Transfer with pair states",
        columns,
        list(rows),
        f"MAE of energies (kcal/mol) / forces (kcal/mol/Å) {tested}. Size S, one seed. Readout "
        f"retrained for {result['settings']['epochs']['pair-transfer']} epochs{scratch}. Untrained "
        "features: a readout trained for as many epochs on the frozen features of a network with random "
        f"weights. {frames_note(result)}",
        digits=3,
        with_mean=False,
        first="transfer",
    )
