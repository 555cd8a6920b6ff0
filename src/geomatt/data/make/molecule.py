"""The molecule to start from: a file of any known format, or a SMILES string."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from geomatt.data.io.readers import read
from geomatt.data.structures import Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError

_SUFFIXES = (
    ".xyz", ".extxyz", ".npz", ".traj", ".db", ".json", ".pdb", ".cif", ".mol", ".mol2", ".sdf", ".gen",
    ".vasp", ".poscar", ".in", ".out", ".log", ".com", ".gjf", ".gz", ".bz2", ".txt",
)  # fmt: skip
_CLASH = 0.4  # Å: atoms nearer than this are a mistake


def read_molecule(
    source: str,
    *,
    conformers: int = 1,
    seed: int = 0,
    charge: int | None = None,
    multiplicity: int | None = None,
) -> list[Structure]:
    """One structure per conformer: all frames of a file, or `conformers` made of a SMILES string.

    `charge` and `multiplicity` override what the input says.
    """
    if not isinstance(source, str | os.PathLike):
        raise GeomAttError(f"A molecule is a file or a SMILES string, not {source!r:.80}.")
    if _is_file(source):
        found = list(read(source, keys={"energy": "none", "forces": "none"}))
    else:
        found = from_smiles(source, conformers, seed)
    first = found[0]
    for structure in found:
        if not np.array_equal(structure.numbers, first.numbers):
            raise GeomAttError(
                f"{source} holds different molecules, {formula(first.numbers)} and "
                f"{formula(structure.numbers)}, or another order of atoms. Give conformers of one molecule."
            )
        if structure.periodic:
            raise GeomAttError(f"{source} is periodic. Only molecules are sampled: set pbc to False.")
        close = np.linalg.norm(structure.positions[:, None] - structure.positions, axis=-1)
        np.fill_diagonal(close, np.inf)
        if close.min(initial=np.inf) < _CLASH:
            i, j = np.unravel_index(close.argmin(), close.shape)
            raise GeomAttError(
                f"{source}: atoms {i} and {j} are {close.min():.2f} Å apart. Correct the file."
            )
    return [replace(unlabelled(s, charge, multiplicity), info={}) for s in found]


def unlabelled(structure: Structure, charge: int | None, multiplicity: int | None) -> Structure:
    """A structure without its labels; charge and multiplicity replace its own where they are given."""
    return replace(
        structure,
        energy=None,
        forces=None,
        stress=None,
        charge=structure.charge if charge is None else float(charge),
        multiplicity=structure.multiplicity if multiplicity is None else multiplicity,
    )


def molecule_name(source: str, structure: Structure) -> str:
    """A name for the data set."""
    return Path(source).stem if _is_file(source) else formula(structure.numbers)


def from_smiles(smiles: str, conformers: int, seed: int) -> list[Structure]:
    """Conformers of a SMILES string by RDKit, relaxed with its force field MMFF94."""
    try:
        from rdkit import Chem, RDLogger
        from rdkit.Chem import AllChem
    except ImportError:
        raise GeomAttError(
            f"There is no file {smiles}. Reading it as a SMILES string needs RDKit. "
            "Install it with: pip install 'geomatt[smiles]'"
        ) from None
    RDLogger.DisableLog("rdApp.*")  # type: ignore[attr-defined]
    try:
        parsed = Chem.MolFromSmiles(smiles)
        if parsed is None or not parsed.GetNumAtoms():
            raise GeomAttError(
                f"{smiles!r} is neither a file nor a valid SMILES string such as CCO for ethanol. Correct it."
            )
        if (parts := len(Chem.GetMolFrags(parsed))) > 1:
            raise GeomAttError(
                f"{smiles!r} holds {parts} molecules, which are not placed beside each other. Give a "
                "file with the whole structure."
            )
        molecule = Chem.AddHs(parsed)
        # A fixed seed: the same string gives the same conformers.
        made = list(AllChem.EmbedMultipleConfs(molecule, conformers, randomSeed=seed + 1))  # type: ignore[attr-defined]
        if AllChem.MMFFHasAllMoleculeParams(molecule):  # type: ignore[attr-defined]
            AllChem.MMFFOptimizeMoleculeConfs(molecule)  # type: ignore[attr-defined]
    finally:
        RDLogger.EnableLog("rdApp.*")  # type: ignore[attr-defined]
    if not made:
        raise GeomAttError(f"RDKit finds no three-dimensional structure of {smiles!r}. Give a file instead.")
    numbers = np.array([atom.GetAtomicNum() for atom in molecule.GetAtoms()], dtype=np.int64)
    if not (numbers > 0).all():
        raise GeomAttError(f"{smiles!r} holds a placeholder atom (*). Write a complete molecule.")
    unpaired = sum(atom.GetNumRadicalElectrons() for atom in molecule.GetAtoms())
    return [
        Structure(
            numbers,
            np.asarray(molecule.GetConformer(number).GetPositions(), dtype=np.float64),
            charge=float(Chem.GetFormalCharge(molecule)),
            multiplicity=unpaired + 1 if unpaired else None,
        )
        for number in made
    ]


def _is_file(source: str) -> bool:
    """True for an existing file, and for a missing one that was clearly meant to be one."""
    path = Path(source)
    return (
        path.exists()
        or source.startswith(("embedded/", "md17/", "rmd17/", "md22/"))
        or path.suffix.lower() in _SUFFIXES
    )
