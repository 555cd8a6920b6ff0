"""Recipes: named sets of optimisation settings, and the learning-rate schedules they use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from geomatt.errors import GeomAttError
from geomatt.model.registry import known_kinds, network_config
from geomatt.model.settings import Recipe

if TYPE_CHECKING:
    from geomatt.training.config import TrainConfig

# Networks may bring recipes of their own: see `recipes`.
RECIPES: dict[str, Recipe] = {
    # Frank & Chmiela (2021): Adam, an almost constant learning rate.
    "paper": Recipe(
        {
            "epochs": 2000,
            "batch": 10,
            "learning_rate": 1e-4,
            "schedule": "step",
            "decay": 0.96,
            "decay_every": 1000,
            "ema_decay": 0.0,
            "patience": 0,
        }
    ),
    # A twenty times larger learning rate that falls to zero; averaged weights.
    "fast": Recipe(
        {
            "epochs": 1500,
            "batch": 10,
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup": 10,
            "final": 0.0,
            "ema_decay": 0.999,
            "patience": 200,
        }
    ),
}


def recipes() -> dict[str, Recipe]:
    """All recipes by name: those above, and those of the registered networks."""
    own = {name: recipe for kind in known_kinds() for name, recipe in network_config(kind).recipes.items()}
    return {**RECIPES, **{name: recipe for name, recipe in own.items() if name not in RECIPES}}


def recipe_settings(name: str) -> dict[str, Any]:
    """The settings of a recipe, its name among them."""
    known = recipes()
    if name not in known:
        raise GeomAttError(f"Unknown `recipe` {name!r}. Use one of: {', '.join(known)}.")
    return {"recipe": name, **known[name].settings}


def validation_share(name: str) -> int:
    """One of so many structures validates by default with a recipe; its name may be unknown."""
    found = recipes().get(name)
    return Recipe.validation_share if found is None else found.validation_share


def learning_rates(config: TrainConfig, epoch: int, steps: int, start: int = 0) -> list[float]:
    """The learning rate of each of the `steps` steps of an epoch (counted from 0).

    A cosine is laid out from epoch `start`, where an extended run took it up again, to the last.
    """
    if config.schedule == "step":
        return [config.learning_rate * config.decay ** (epoch // config.decay_every)] * steps
    # At most a tenth of a short run.
    epochs = config.epochs - start
    warm, total = min(config.warmup, epochs // 10) * steps, epochs * steps
    rates = []
    for t in range((epoch - start) * steps, (epoch + 1 - start) * steps):
        if t < warm:
            factor = (t + 1) / warm
        else:
            fall = 0.5 * (1.0 + math.cos(math.pi * (t - warm) / max(1, total - warm)))
            factor = config.final + (1.0 - config.final) * fall
        rates.append(config.learning_rate * factor)
    return rates
