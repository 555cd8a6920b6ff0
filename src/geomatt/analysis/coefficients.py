"""Attention coefficients of structures as arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.structures import AtomsLike, Structure, as_structure
from geomatt.model import AnyPotential, AttentionRecord, loaded

Model = AnyPotential | str | os.PathLike[str]
Records = list[AttentionRecord[np.ndarray]]


@overload
def attention(model: Model, atoms: Structure | AtomsLike) -> Records: ...
@overload
def attention(
    model: Model,
    atoms: Dataset | list[Any],
    *,
    batch_size: int = ...,
    progress: Callable[[int], None] | None = ...,
) -> list[Records]: ...
def attention(
    model: Model,
    atoms: Any,
    *,
    batch_size: int = 32,
    progress: Callable[[int], None] | None = None,
) -> Records | list[Records]:
    """Every attention matrix α (N, N) of a structure: one record per order, layer and head.

    `model` is a potential, a committee (mean of the members' matrices) or the path of one; `atoms` is an
    ASE Atoms, a `Structure`, or a list or `Dataset` of them, which gives a list with records for each.

    α_ij weighs what atom i receives from atom j. There is no softmax: values may be negative.
    """
    potential = loaded(model)
    many = isinstance(atoms, Dataset | list | tuple)
    items: Iterable[Any] = atoms if many else [atoms]
    structures = [as_structure(item) for item in items]
    predictions = potential.predict(
        structures, forces=False, attention=True, batch_size=batch_size, progress=progress
    )
    result = [p.attention or [] for p in predictions]
    return result if many else result[0]
