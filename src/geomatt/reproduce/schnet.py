"""SchNet (PyTorch Geometric's) on the very frames our models see, so that a column of the table is our own.

All pairs of atoms interact, through a fixed graph given to the constructor; on a GPU a step is captured as
a CUDA graph. It has a schedule of its own, as a fair peer should: see `SETTINGS` and `EPOCHS`.
"""

from __future__ import annotations

import json
import math
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from geomatt.data.batch import collate
from geomatt.data.splits import Split
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.model.files import atomic_write
from geomatt.model.normalisation import Normalisation
from geomatt.training.interrupt import Interrupted, stop_on_signal
from geomatt.training.loss import Loss
from geomatt.training.replay import StepGraphs
from geomatt.training.step import ErrorSums, Targets
from geomatt.training.trainer import epoch_order
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.reproduce.md17 import Bench

# Over a schedule of 1000 epochs aspirin's validation loss is lowest after 600, while steps are still large.
EPOCHS = {"aspirin": 500, "ethanol": 1000}
SETTINGS: dict[str, Any] = {
    "features": 128,
    "filters": 128,
    "interactions": 3,
    "gaussians": 100,
    "cutoff": 10.0,  # Å; beyond every distance, because the cosine cutoff rises again behind it
    "batch": 10,
    "learning_rate": 1e-3,  # falls to zero along a cosine
    "ema_decay": 0.999,  # of the weights that are validated and kept
    "weighting": "paper",
    "rho": 0.01,
    "validate_every": 5,
}
QUICK_EPOCHS = 2
WRITE_EVERY = 60.0  # seconds between checkpoints
STATE = ("theta", "first", "second", "average", "best", "steps")  # of a run, beside its counters


def run_schnet(bench: Bench, train: bool) -> dict[str, dict[str, Any]]:
    """Errors of SchNet by molecule, those that are done; trains the others first where asked to."""
    from geomatt.reproduce.md17 import Member

    asked = "schnet" in bench.settings.parts
    if train and asked and find_spec("torch_geometric") is None:
        raise GeomAttError("SchNet needs PyTorch Geometric. Install it with: pip install 'geomatt[bench]'")
    results = {}
    for molecule in sorted(EPOCHS.keys() & set(bench.molecules)):
        member = Member(molecule)
        settings = {**SETTINGS, "epochs": QUICK_EPOCHS if bench.settings.quick else EPOCHS[molecule]}
        key = {
            "schnet": settings,
            "data": bench.described[molecule]["fingerprint"],
            "points": bench.scale.points,
            "test": bench.scale.test,
        }
        name = f"schnet-{molecule}"
        if not bench.pieces.has(name, key):
            if not train or bench.settings.out_of_time or find_spec("torch_geometric") is None:
                continue
            run = SchNetRun(
                bench.data[molecule],
                bench.split(member),
                settings,
                bench.settings.work("md17") / name,
                bench.settings.device,
                bench.settings.seed,
            )
            with (
                bench.progress(f"SchNet, {molecule}", settings["epochs"]) as advance,
                stop_on_signal() as stop,
            ):
                advance(run.epoch)
                while run.epoch < settings["epochs"] and not (stop or bench.settings.out_of_time):
                    run.do_epoch()
                    advance(1)
                    if time.monotonic() - run.written > WRITE_EVERY:
                        run.write()
            run.write()
            if stop:
                raise Interrupted(run.file.parent, run.epoch, stop.signal)
            if run.epoch < settings["epochs"]:
                continue
            bench.pieces.get(name, key, run.test)
            run.file.unlink()
        results[molecule] = bench.pieces.get(name, key, dict)
        made = bench.pieces.made[name]
        bench.pieces.made[name] = {**made, "seconds": results[molecule]["seconds"]}
    return results


class AllPairs(nn.Module):
    """The graph of all pairs in structures of one size: fixed but for the number of structures."""

    def __init__(self, atoms: int) -> None:
        super().__init__()
        self.atoms = atoms
        self._edges: dict[int, Tensor] = {}

    def forward(self, positions: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        count = len(positions) // self.atoms
        if count not in self._edges:
            pairs = (~torch.eye(self.atoms, dtype=torch.bool)).nonzero()  # (pairs, 2)
            starts = self.atoms * torch.arange(count)[:, None, None]
            self._edges[count] = (starts + pairs).reshape(-1, 2).T.contiguous().to(positions.device)
        edges = self._edges[count]
        difference = positions.index_select(0, edges[0]) - positions.index_select(0, edges[1])
        return edges, difference.norm(dim=-1)


class SumAtoms(nn.Module):
    """Atomic terms summed per structure without asking the device how many there are, as capture demands."""

    def __init__(self, atoms: int) -> None:
        super().__init__()
        self.atoms = atoms

    def forward(self, values: Tensor, batch: Tensor, dim: int = 0) -> Tensor:
        return values.view(-1, self.atoms).sum(1)


def make_schnet(settings: dict[str, Any], atoms: int, seed: int) -> nn.Module:
    """PyTorch Geometric's SchNet with our graph and our sum over atoms."""
    from torch_geometric.nn.models import SchNet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SchNet(
            hidden_channels=settings["features"],
            num_filters=settings["filters"],
            num_interactions=settings["interactions"],
            num_gaussians=settings["gaussians"],
            cutoff=settings["cutoff"],
            interaction_graph=AllPairs(atoms),
        )
    model.readout = SumAtoms(atoms)
    return model


class SchNetRun:
    """One SchNet under training, with Adam on its weights θ in one vector, as our own stepper has it."""

    def __init__(
        self, dataset: Dataset, split: Split, settings: dict[str, Any], folder: Path, device: str, seed: int
    ) -> None:
        self.dataset, self.split, self.settings, self.seed = dataset, split, settings, seed
        self.device = torch.device(device)
        self.file = folder / "checkpoint.safetensors"
        self.atoms = len(dataset[0])
        self.loss = Loss(settings["weighting"], settings["rho"])
        seen = dataset.select(np.concatenate([split.train, split.validation]))
        self.normalisation = Normalisation.fit(seen)
        self.model = make_schnet(settings, self.atoms, seed).to(self.device)
        self.parameters = list(self.model.parameters())
        self.theta = torch.cat([p.detach().flatten() for p in self.parameters])
        offset = 0
        for p in self.parameters:  # parameters become views of θ
            p.data = self.theta[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
        self.first, self.second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.average, self.best = self.theta.clone(), self.theta.clone()
        self.steps = torch.zeros((), dtype=torch.float64, device=self.device)
        self.rate = torch.zeros((), dtype=torch.float64, device=self.device)
        self.epoch, self.best_epoch, self.best_loss, self.seconds = 0, 0, math.inf, 0.0
        self.training = self._targets(split.train)
        self.validation = self._targets(split.validation)
        self._graphs = StepGraphs()
        self._read()
        self.written = time.monotonic()

    def _targets(self, indices: np.ndarray) -> Targets:
        batch = collate([self.dataset[int(i)] for i in indices], torch.float32, self.device)
        return Targets.from_batch(batch, self.normalisation)

    def do_epoch(self) -> None:
        """One pass over the training frames, and a validation every so often."""
        started = time.monotonic()
        count, batch = self.training.count, self.settings["batch"]
        total = self.settings["epochs"] * math.ceil(count / batch)
        order = epoch_order(count, self.seed, self.epoch).to(self.device)
        done = self.epoch * math.ceil(count / batch)
        for number, index in enumerate(order.split(batch)):
            fall = 0.5 * (1.0 + math.cos(math.pi * (done + number) / total))
            self.rate.fill_(self.settings["learning_rate"] * fall)
            if self.device.type == "cuda":
                self._graphs.replay(self._step, index, [getattr(self, name) for name in STATE])
            else:
                self._step(index)
        self.epoch += 1
        if self.epoch % self.settings["validate_every"] == 0 or self.epoch == self.settings["epochs"]:
            loss = self._errors(self.validation, self.average)[0]
            if not math.isfinite(loss):
                raise GeomAttError(f"SchNet diverged in epoch {self.epoch}.")
            if loss < self.best_loss:
                self.best_loss, self.best_epoch = loss, self.epoch
                self.best.copy_(self.average)
        self.seconds += time.monotonic() - started

    def _predict(self, targets: Targets, create_graph: bool) -> tuple[Tensor, Tensor]:
        """Energies (B,) and forces (B, N, 3) in normalised units."""
        numbers = targets.numbers.reshape(-1)
        positions = targets.positions.reshape(-1, 3).detach().requires_grad_()
        energy = self.model(numbers, positions, None)
        (slope,) = torch.autograd.grad(energy.sum(), positions, create_graph=create_graph)
        return energy, -slope.view(-1, self.atoms, 3)

    def _step(self, index: Tensor) -> None:
        targets = self.training.rows(index[None])
        assert targets.forces is not None
        energy, forces = self._predict(targets, create_graph=True)
        atoms = torch.full((len(index),), self.atoms, device=self.device)
        loss = self.loss(energy - targets.energy[0], forces - targets.forces[0], atoms)
        # A parameter the forces do not reach (the last bias) still has a gradient from the energy.
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, self.parameters)])
        with torch.no_grad():
            self.steps += 1
            self.first.lerp_(gradient, 0.1)
            self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            size = (self.rate / (1.0 - 0.9**self.steps)).float()
            scale = (1.0 - 0.999**self.steps).sqrt().float()
            self.theta.sub_(size * self.first / (self.second.sqrt() / scale + 1e-8))
            self.average.lerp_(self.theta, 1.0 - self.settings["ema_decay"])

    def _errors(self, targets: Targets, weights: Tensor) -> tuple[float, float, float]:
        """Loss, and energy and force MAE in normalised units, of the model with these weights."""
        current = self.theta.clone()
        self.theta.copy_(weights)
        sums = ErrorSums(1, self.device)
        assert targets.forces is not None
        for start in range(0, targets.count, 100):
            rows = torch.arange(start, min(start + 100, targets.count), device=self.device)
            part = targets.rows(rows[None])
            assert part.forces is not None
            energy, forces = self._predict(part, create_graph=False)
            errors = (energy.detach() - part.energy[0], forces.detach() - part.forces[0])
            atoms = torch.full((len(rows),), self.atoms, device=self.device)
            loss = self.loss(*errors, atoms)
            sums.add(loss[None], errors[0][None], errors[1][None], part.numbers)
            sums.structures += len(rows)
        self.theta.copy_(current)
        loss_sum, energy_sum, force_sum, structures, components = sums.per_member()[0]
        return loss_sum / structures, energy_sum / structures, force_sum / components

    def test(self) -> dict[str, Any]:
        """Errors of the best weights on the test frames, kcal/mol and kcal/mol/Å."""
        _, energy, force = self._errors(self._targets(self.split.test), self.best)
        factor = self.normalisation.scale * from_ev("kcal/mol")
        return {
            "energy_mae": energy * factor,
            "force_mae": force * factor,
            "frames": len(self.split.test),
            "epochs": self.epoch,
            "best_epoch": self.best_epoch,
            "seconds": round(self.seconds, 3),
            "parameters": self.theta.numel(),
        }

    def write(self) -> None:
        """The checkpoint."""
        tensors = {name: getattr(self, name).cpu().clone() for name in STATE}
        counters = {
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_loss": self.best_loss if math.isfinite(self.best_loss) else None,
            "seconds": self.seconds,
            "settings": self.settings,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self.file, to_bytes(tensors, {"schnet": json.dumps(counters)}))
        self.written = time.monotonic()

    def _read(self) -> None:
        """Go on where the checkpoint was written, if there is one of the same settings."""
        if not self.file.exists():
            return
        with safe_open(self.file, framework="pt") as file:
            counters = json.loads((file.metadata() or {})["schnet"])
            if counters["settings"] != self.settings:
                return
            for name in STATE:
                getattr(self, name).copy_(file.get_tensor(name))
        self.epoch, self.best_epoch = counters["epoch"], counters["best_epoch"]
        self.best_loss = math.inf if counters["best_loss"] is None else counters["best_loss"]
        self.seconds = counters["seconds"]
