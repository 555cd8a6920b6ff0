"""Make labelled data with a reference method: sample the motion of a molecule, label given structures.

Every piece of work is a pure function of stored data, so that results do not depend on the number of
processes, on kills, or on how often a run was continued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.data.make.config import SampleConfig
    from geomatt.data.make.labelling import LabelResult, label
    from geomatt.data.make.method import Method
    from geomatt.data.make.molecule import read_molecule
    from geomatt.data.make.sampling import SampleResult, sample
    from geomatt.data.make.workers import Job, Workers, open_workers

__all__, __getattr__, __dir__ = lazy_names(__name__)
