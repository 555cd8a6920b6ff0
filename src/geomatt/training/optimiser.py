"""Adam on the weights of M networks, with a moving average of the weights and gradient clipping."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam

from geomatt.training.weights import Weights

BETAS, EPS = (0.9, 0.999), 1e-8


class Adam:
    """Works element by element on θ (M, n), so members are independent; clipping is per member."""

    def __init__(self, weights: Weights, *, ema_decay: float = 0.0, clip: float = 0.0) -> None:
        """`clip`: largest norm of a member's gradient; 0 for none. `ema_decay` 0: no moving average."""
        theta = weights.theta
        self.weights, self.ema_decay, self.clip = weights, ema_decay, clip
        self.first, self.second = torch.zeros_like(theta), torch.zeros_like(theta)
        self.average = theta.clone() if ema_decay else None
        # On the device, so that a captured graph reads them anew at every replay.
        self.steps = torch.zeros((), dtype=torch.float64, device=theta.device)
        self.rate = torch.zeros((), dtype=torch.float64, device=theta.device)
        self.pace = torch.ones(len(theta), dtype=torch.float64, device=theta.device)  # per member, × rate
        self.averaged = weights.parameters if self.average is None else weights.views(self.average)
        self._kernel = None
        if theta.is_cuda and theta.dtype == torch.float32 and importlib.util.find_spec("triton"):
            from geomatt.training.gpu_kernels import FusedAdam

            self._kernel = FusedAdam(BETAS, EPS, ema_decay)

    def step(self, gradient: Tensor) -> None:
        """Update θ and its average with a gradient (M, n)."""
        weights = self.weights
        if self.clip:
            if weights.trainable is not None:
                gradient = gradient * weights.trainable
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient = gradient * torch.clamp(self.clip / norm, max=1.0)
        if self._kernel is not None:
            self._kernel.step(
                weights.theta, gradient, self.first, self.second, self.steps, self.rate, self.pace,
                self.average, weights.trainable,
            )  # fmt: skip
            return
        if weights.trainable is not None and not self.clip:
            gradient = gradient * weights.trainable
        self._update(gradient)
        if self.average is not None:
            # A smaller decay at first, or the average would contain the random initial weights.
            share = torch.clamp(9.0 / (9.0 + self.steps), min=1.0 - self.ema_decay)
            self.average.lerp_(weights.theta, share.to(weights.theta.dtype))

    def _update(self, gradient: Tensor) -> None:
        theta, (b1, b2) = self.weights.theta, BETAS
        self.steps += 1
        if theta.is_cuda:  # torch's fused version has a float32 rate there, too coarse for float64
            self.first.lerp_(gradient, 1.0 - b1)
            self.second.mul_(b2).addcmul_(gradient, gradient, value=1.0 - b2)
            size = (self.rate * self.pace / (1.0 - b1**self.steps)).to(theta.dtype)[:, None]
            scale = (1.0 - b2**self.steps).sqrt().to(theta.dtype)
            theta.sub_(size * self.first / (self.second.sqrt() / scale + EPS))
            return
        paces = self.pace.tolist()
        alike = len(set(paces)) == 1
        for member in range(1 if alike else len(paces)):
            own = slice(None) if alike else slice(member, member + 1)
            adam(
                [theta[own]], [gradient[own]], [self.first[own]], [self.second[own]], [], [self.steps - 1],
                fused=True, amsgrad=False, beta1=b1, beta2=b2, weight_decay=0.0, eps=EPS, maximize=False,
                lr=float(self.rate) * paces[member],
            )  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor a step changes."""
        theta = self.weights.theta
        state = {"theta": theta, "first": self.first, "second": self.second, "steps": self.steps}
        return state if self.average is None else {**state, "average": self.average}

    def restart(self, member: int, weights: Mapping[str, Tensor]) -> None:
        """Return a member to these weights, without momentum; its mean squared gradients stay if finite."""
        flat = torch.cat([weights[name].flatten() for name in self.weights.shapes]).to(self.first)
        self.weights.theta[member] = flat
        if self.average is not None:
            self.average[member] = flat
        self.first[member] = 0.0
        typical = (self.clip or 1.0) ** 2 / flat.numel()  # of a gradient with the largest norm
        own = self.second[member]
        own.copy_(torch.where(own.isfinite(), own, typical))

    def state(self, member: int) -> dict[str, Tensor]:
        """Everything a member's next step depends on, except the data."""
        return {n: value if n == "steps" else value[member] for n, value in self.tensors().items()}

    def load_state(self, member: int, state: dict[str, Tensor]) -> None:
        """Continue a member where `state` was taken; all members must have done the same number of steps."""
        for name, value in self.state(member).items():
            value.copy_(state[name])
