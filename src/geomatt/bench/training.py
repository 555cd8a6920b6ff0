"""The suites `train` and `members`: optimisation steps of one network and of many side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from geomatt.bench.floor import Work, training_step
from geomatt.bench.peers import Peer, installed_peers, literal
from geomatt.bench.result import Bench, Check, Floor, Row
from geomatt.bench.settings import SCHEDULE, Settings
from geomatt.bench.stage import Stage
from geomatt.bench.systems import ELEMENTS, Workload, aspirin_frames
from geomatt.bench.timing import Contender, Timing, measure, ticks
from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.config import ModelConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.normalisation import Normalisation
from geomatt.training.loss import Loss
from geomatt.training.step import Stepper, Targets


def train_suite(bench: Bench, settings: Settings, stage: Stage) -> None:
    """One training step of one network: ours, the peers' and the literal implementation's."""
    workload = aspirin_frames(settings.frames, settings.batch, seed=settings.seed, device=settings.device)
    network = new_network(settings.config(ELEMENTS), settings.device, settings.seed)
    own = Trainee([workload], [copy.deepcopy(network)], settings.batch)
    peers = installed_peers(settings.peers, workload)
    contenders = [
        Contender("geomatt", own.epoch, own.steps),
        *(Contender(p.name, repeat(p, settings.peer_steps), settings.peer_steps) for p in peers),
        Contender("literal", literal(workload, network).training_step),
    ]
    rounds = [settings.rounds] * (1 + len(peers)) + [settings.literal_rounds]
    with stage("training steps", ticks(contenders, rounds)) as advance:
        ours, *others = measure(contenders, rounds, settings.device, advance)
    floor = own_floor(bench, training_step(network.config, workload.atoms, settings.batch), ours)
    what = f"training step, {workload.atoms} atoms, batch {settings.batch}"
    for other in others:
        row = Row("train", what, ours, other, floor=floor)
        bench.rows.append(judged(row, _train_checks(row, settings)))


def members_suite(bench: Bench, settings: Settings, stage: Stage) -> None:
    """Several molecules and folds in one program, against one network after the other."""
    sizes = [size for size in settings.molecules for _ in range(settings.folds)]
    workloads = [
        aspirin_frames(settings.frames, settings.batch, seed=m, atoms=size, device=settings.device)
        for m, size in enumerate(sizes)
    ]
    config = settings.config(ELEMENTS)
    networks = [new_network(config, settings.device, seed) for seed in range(len(sizes))]
    together = Trainee(workloads, networks, settings.batch)
    largest = aspirin_frames(settings.frames, settings.batch, atoms=max(sizes), device=settings.device)
    alone = Trainee([largest], [copy.deepcopy(networks[0])], settings.batch)
    contenders = [
        Contender("geomatt, together", together.epoch, together.steps),
        # One step of every member is the same work as one step together.
        Contender("geomatt, one by one", alone.epoch, alone.steps / len(sizes)),
    ]
    rounds = [settings.member_rounds] * 2
    with stage(f"{len(sizes)} members at once", ticks(contenders, rounds)) as advance:
        ours, one_by_one = measure(contenders, rounds, settings.device, advance)
    work = Work.sum([training_step(config, size, settings.batch) for size in sizes])
    floor = own_floor(bench, work, ours)
    minutes = ours.median * SCHEDULE / 60
    least = floor.seconds * SCHEDULE / 60
    note = f"{SCHEDULE} steps of all members: {minutes:.1f} min; the floor is {least:.1f} min"
    molecules = f"{len(settings.molecules)} molecules × {settings.folds} folds"
    what = f"training step of {molecules}, padded to {max(sizes)} atoms, batch {settings.batch}"
    row = Row("members", what, ours, one_by_one, floor=floor, note=note)
    checks = []
    if settings.cuda and not settings.quick:
        checks.append(Check(f"{SCHEDULE} steps", minutes, 20.0, True, "min"))
    bench.rows.append(judged(row, checks))


def _train_checks(row: Row, settings: Settings) -> list[Check]:
    ratio = row.ratio
    if settings.quick:
        return []
    if row.baseline.name == "PyG SchNet":
        if settings.cuda:
            return [
                Check("time of a step", 1e3 * row.ours.median, 0.35, True, "ms"),
                Check("times faster", ratio.median, 35.0, False, "×"),
            ]
        return [Check("times faster", ratio.median, 4.0, False, "×")]
    if row.baseline.name == "literal" and not settings.cuda:
        return [Check("times faster", ratio.median, 20.0, False, "×")]
    return []


@dataclass
class Trainee:
    """Networks with their frames behind a `Stepper`, as the trainer uses it."""

    workloads: Sequence[Workload]
    networks: list[GeometricAttention]
    batch: int

    def __post_init__(self) -> None:
        atoms = max(w.atoms for w in self.workloads)
        self.stepper = Stepper(
            self.networks, Targets.stack([as_targets(w, atoms) for w in self.workloads]), Loss()
        )
        self.frames = self.workloads[0].positions.shape[0]
        self.steps = -(-self.frames // self.batch)
        self._generator = torch.Generator().manual_seed(0)

    def epoch(self) -> None:
        """A pass over the frames in a new order for every member."""
        orders = [torch.randperm(self.frames, generator=self._generator) for _ in self.networks]
        self.stepper.run_epoch(torch.stack(orders), self.batch, [1e-4] * self.steps)


def as_targets(workload: Workload, atoms: int) -> Targets:
    """A workload padded to a number of atoms; its labels are normalised already."""
    pad = atoms - workload.atoms
    frames = workload.positions.shape[0]
    batch = Batch(
        torch.nn.functional.pad(workload.numbers, (0, pad)).expand(frames, -1),
        torch.nn.functional.pad(workload.positions, (0, 0, 0, pad)),
        workload.energy.double(),
        torch.nn.functional.pad(workload.forces, (0, 0, 0, pad)),
    )
    return Targets.from_batch(batch, Normalisation())


def new_network(config: ModelConfig, device: str, seed: int) -> GeometricAttention:
    """A network as training starts with it."""
    torch.manual_seed(seed)
    return GeometricAttention(config).to(device, torch.float32)


def repeat(peer: Peer, steps: int) -> Callable[[], None]:
    """Several training steps of a peer."""

    def run() -> None:
        for _ in range(steps):
            peer.training_step()

    return run


def own_floor(bench: Bench, work: Work, timing: Timing) -> Floor:
    """A timing against the machine's ceilings."""
    assert bench.ceilings is not None
    seconds = bench.ceilings.floor(work)
    return Floor(work, seconds, timing.median / seconds)


def judged(row: Row, checks: Sequence[Check]) -> Row:
    """The row with its targets."""
    return Row(row.suite, row.what, row.ours, row.baseline, tuple(checks), row.floor, row.note)
