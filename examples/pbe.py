"""A reference method of your own: PBE by PySCF as an ASE calculator (pip install pyscf).

    cd examples
    geomatt sample O --out water.npz --calculator pbe:PBE --argument basis=def2-svp --frames 50

O is water as a SMILES string, which needs RDKit (pip install 'geomatt[rdkit]'); a file works without it.

Run as a script, it samples a hydrogen molecule. Every ASE calculator works like this: a class or function
that can be imported, with keyword arguments.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from ase.calculators.calculator import Calculator, all_changes
from ase.units import Bohr, Hartree


class PBE(Calculator):
    """Energy and forces of a molecule with the functional PBE."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012 - ASE's convention

    def __init__(self, basis: str = "def2-svp", functional: str = "pbe") -> None:
        super().__init__()
        self.basis, self.functional = basis, functional

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes) -> None:
        from pyscf import dft, gto

        super().calculate(atoms, properties, system_changes)
        molecule = gto.M(
            atom=list(zip(self.atoms.get_chemical_symbols(), self.atoms.positions, strict=True)),
            basis=self.basis,
            charge=int(self.atoms.info.get("charge", 0)),
            spin=int(self.atoms.info.get("multiplicity", 1)) - 1,
            verbose=0,
        )
        field = (dft.UKS if molecule.spin else dft.RKS)(molecule, xc=self.functional)
        energy = field.kernel()
        if not field.converged:
            raise RuntimeError("SCF not converged")  # geomatt tries again, then starts elsewhere
        gradient = np.asarray(field.nuc_grad_method().kernel())
        self.results = {"energy": energy * Hartree, "forces": -gradient * Hartree / Bohr}


def main() -> None:
    try:
        import pyscf  # noqa: F401
    except ImportError:
        print("This example needs PySCF: pip install pyscf")
        return
    from ase.build import molecule

    from geomatt.data.make import SampleConfig, sample
    from geomatt.data.structures import as_structure

    sys.path.append(str(Path(__file__).parent))
    config = SampleConfig("pbe:PBE", {"basis": "sto-3g"}, frames=2, walkers=1, stride=2, equilibrate=0.0)
    with tempfile.TemporaryDirectory() as folder:
        result = sample([as_structure(molecule("H2"))], config, Path(folder) / "hydrogen.npz")
    print(f"energies: {result.dataset.energies} eV, {result.dataset.origin['theory']}")


if __name__ == "__main__":
    main()
