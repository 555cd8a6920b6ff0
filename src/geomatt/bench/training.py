"""The suites `train` and `members`: optimisation steps of one network and of several at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from geomatt.bench.peers import installed_peers, literal
from geomatt.bench.report import Check
from geomatt.bench.settings import SCHEDULE
from geomatt.bench.timing import Contender, repeat
from geomatt.bench.workbench import Workbench
from geomatt.data import Batch
from geomatt.model import Network, Work
from geomatt.training import Loss, Stepper


class Trainee:
    """Networks and their frames in a `Stepper`, as training uses it."""

    def __init__(self, networks: Sequence[Network], frames: Sequence[Batch], batch: int) -> None:
        self.stepper = Stepper(networks, Batch.stack(frames), Loss())
        self.members, self.frames, self.batch = len(networks), len(frames[0]), batch
        self.steps = -(-self.frames // batch)
        self._generator = torch.Generator().manual_seed(0)

    def epoch(self) -> None:
        """A pass over the frames, in a new order for every member."""
        orders = [torch.randperm(self.frames, generator=self._generator) for _ in range(self.members)]
        self.stepper.run_epoch(torch.stack(orders), self.batch, [1e-4] * self.steps)


def train_suite(bench: Workbench) -> None:
    """A training step of the network, of the peers, and of the network by automatic differentiation."""
    settings, network = bench.settings, bench.network()
    frames, count = bench.frames(settings.frames), settings.peer_steps
    own = Trainee([network], [frames], settings.batch)
    peers = installed_peers(bench, frames)
    slow = literal(copy.deepcopy(network), frames, settings.batch)
    contenders = [
        Contender(bench.model, own.epoch, own.steps, settings.rounds),
        *(Contender(p.name, repeat(p.training_step, count), count, settings.rounds) for p in peers),
        Contender(slow.name, slow.training_step, 1, settings.literal_rounds),
    ]
    atoms = frames.numbers.shape[1]
    work = network.training_work(atoms, settings.batch)
    bench.compare("train", f"training step, {atoms} atoms, batch {settings.batch}", contenders, work)


def members_suite(bench: Workbench) -> None:
    """Several molecules and folds in one program, against one network after the other."""
    settings = bench.settings
    sizes = [size for size in settings.molecules for _ in range(settings.folds)]
    frames = [
        bench.frames(settings.frames, seed=seed, atoms=size, pad_to=max(sizes))
        for seed, size in enumerate(sizes)
    ]
    networks = [bench.network(seed=seed) for seed in range(len(sizes))]
    together = Trainee(networks, frames, settings.batch)
    alone = Trainee(networks[:1], [bench.frames(settings.frames, atoms=max(sizes))], settings.batch)
    rounds = settings.member_rounds
    ours, one_by_one = bench.measure(
        f"{len(sizes)} members at once",
        [
            Contender(f"{bench.model}, together", together.epoch, together.steps, rounds),
            # One step of every member is the same work as one step together.
            Contender(f"{bench.model}, one by one", alone.epoch, alone.steps / len(sizes), rounds),
        ],
    )
    parts = [networks[0].training_work(size, settings.batch) for size in sizes]
    work = Work.sum([part for part in parts if part is not None]) if parts[0] else None
    floor, minutes = bench.floor(work, ours), ours.median * SCHEDULE / 60
    note = f"{SCHEDULE} steps of all members: {minutes:.1f} min"
    note += f"; the floor is {floor.seconds * SCHEDULE / 60:.1f} min" if floor else ""
    molecules = f"{len(settings.molecules)} molecules × {settings.folds} folds"
    what = f"training step of {molecules}, padded to {max(sizes)} atoms, batch {settings.batch}"
    checks = [Check(f"{SCHEDULE} steps", minutes, 20.0, True, "min")] if settings.cuda else []
    bench.add("members", what, ours, one_by_one, work=work, checks=checks, note=note)
