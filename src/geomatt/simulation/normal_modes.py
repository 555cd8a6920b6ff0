"""Normal modes of a molecule: frequencies, zero-point energy, and the motion of each mode.

With H the matrix of second derivatives and m the masses, the modes are the eigenvectors of
H_ij / √(m_i m_j) in the space without translation and rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from geomatt.data.structures import AtomsLike, Structure
from geomatt.elements import ATOMIC_MASSES, atom_labels
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential
from geomatt.simulation.inputs import Model, given
from geomatt.simulation.spectrum import SPEED_OF_LIGHT
from geomatt.simulation.starts import rigid_motions
from geomatt.units import FEMTOSECOND

PLANCK = 1.239841984e-4  # eV cm, energy of a quantum of 1 cm⁻¹
WAVENUMBER = FEMTOSECOND / (2.0 * np.pi * SPEED_OF_LIGHT)  # cm⁻¹ of an angular frequency of √(eV/u)/Å
SMALL = 30.0  # cm⁻¹, an imaginary frequency below which may be due to an incomplete relaxation
AMPLITUDE = 0.3  # Å, of the atom that moves most in the picture of a mode


@dataclass(frozen=True)
class Vibrations:
    """Normal modes of a molecule, by ascending frequency."""

    structure: Structure
    wavenumbers: np.ndarray  # (M,) cm⁻¹; negative for imaginary frequencies
    modes: np.ndarray  # (M, N, 3) Cartesian displacement, largest motion of an atom is 1
    normal: np.ndarray  # (M, N, 3) mass-weighted, orthonormal
    reduced_masses: np.ndarray  # (M,) u
    hessian: np.ndarray  # (3N, 3N) eV/Å²
    rigid: np.ndarray  # (6,) cm⁻¹ of translations and rotations, zero for exact derivatives
    fmax: float  # eV/Å, highest force on an atom; zero at a stationary point

    @property
    def zero_point_energy(self) -> float:
        """In eV, of the modes with a real frequency."""
        return 0.5 * PLANCK * float(self.wavenumbers[self.wavenumbers > 0].sum())

    @property
    def imaginary(self) -> np.ndarray:
        """Numbers of the modes with an imaginary frequency."""
        return np.flatnonzero(self.wavenumbers < 0)

    def movers(self, mode: int, most: int = 3) -> str:
        """The atoms that move most in a mode, such as H8 O2."""
        size = np.linalg.norm(self.modes[mode], axis=1)
        names = atom_labels(self.structure.numbers)
        return " ".join(names[a] for a in np.argsort(-size)[:most] if size[a] > 0.3)

    def frames(self, mode: int, count: int = 20) -> list[Structure]:
        """One period of a mode, to be looked at."""
        phases = np.sin(2.0 * np.pi * np.arange(count) / count)
        return [self.displaced(mode, AMPLITUDE * phase) for phase in phases]

    def displaced(self, mode: int, amplitude: float) -> Structure:
        """The structure moved along a mode, by `amplitude` Å of the atom that moves most."""
        moved = self.structure.positions + amplitude * self.modes[mode]
        return replace(self.structure, positions=moved, energy=None, forces=None, info={})


def refuse_no_molecule(structure: Structure) -> None:
    """Raise an error for a periodic structure and a single atom."""
    if structure.periodic:
        raise GeomAttError("Vibrations are computed for molecules only. Set pbc to False for one in a box.")
    if len(structure) < 2:
        raise GeomAttError("A single atom has no vibrations. Give a molecule.")


def vibrations(
    potential: Model,
    structure: Structure | AtomsLike,
    *,
    step: float = 0.005,
    progress: Callable[[int], None] | None = None,
) -> Vibrations:
    """Normal modes in the harmonic approximation; `step` is the displacement of atoms in Å.

    The structure should be a stationary point, and the model in float64. `progress` counts the 6 N displaced
    structures.
    """
    potential, structure = given(potential, structure)
    refuse_no_molecule(structure)
    prediction = potential.predict([structure], check_domain=False)[0]
    assert prediction.forces is not None
    hessian = potential.hessian(structure, step=step, progress=progress)
    masses = ATOMIC_MASSES[structure.numbers - 1]
    root = np.sqrt(np.repeat(masses, 3))
    weighted = hessian / root[:, None] / root
    held = rigid_motions(masses, structure.positions, rotations=True)  # (3N, rank)
    free = np.linalg.svd(held)[0][:, held.shape[1] :]  # (3N, M)
    values, vectors = np.linalg.eigh(free.T @ weighted @ free)
    normal = (free @ vectors).T.reshape(-1, len(masses), 3)
    cartesian = normal / np.sqrt(masses)[:, None]
    # The sign of a mode is arbitrary; this one does not depend on rounding.
    signs = np.sign(cartesian.reshape(len(values), -1)[np.arange(len(values)), _first_large(cartesian)])
    normal, cartesian = normal * signs[:, None, None], cartesian * signs[:, None, None]
    reduced = 1.0 / (cartesian**2).sum((1, 2))
    largest = np.linalg.norm(cartesian, axis=2).max(1)
    return Vibrations(
        replace(structure, energy=prediction.energy, forces=prediction.forces),
        _wavenumbers(values),
        cartesian / largest[:, None, None],
        normal,
        reduced,
        hessian,
        _wavenumbers(np.linalg.eigvalsh(held.T @ weighted @ held)),
        float(np.linalg.norm(prediction.forces, axis=1).max()),
    )


def explain_imaginary(found: Vibrations, potential: AnyPotential) -> list[str]:
    """A sentence about each imaginary frequency, with the energy along its mode."""
    texts = []
    for number in found.imaginary.tolist():
        ahead = [found.displaced(number, sign * 0.1) for sign in (-1, 1)]
        energies = [p.energy for p in potential.predict(ahead, check_domain=False)]
        assert found.structure.energy is not None
        fall = 1000.0 * (found.structure.energy - min(energies))
        size = -found.wavenumbers[number]
        moved = found.movers(number)
        start = f"Mode {number + 1} has the imaginary frequency {size:.0f}i cm⁻¹ and moves {moved}: "
        if size < SMALL and fall < 0.5:
            texts.append(
                f"{start}it is so small that it may come from an incomplete relaxation or a nearly free "
                "rotation. Relax to a lower `fmax` and look again."
            )
        elif fall > 0:
            texts.append(
                f"{start}the energy falls by {fall:.1f} meV within 0.1 Å along it, so this is a saddle "
                "point, not a minimum. Move the atoms along the mode and relax again."
            )
        else:
            texts.append(
                f"{start}but the energy does not fall within 0.1 Å along it. The structure is not relaxed, "
                "or the model is rough here: train on frames around this one."
            )
    return texts


def _wavenumbers(values: np.ndarray) -> np.ndarray:
    """cm⁻¹ from eigenvalues in eV/Å²/u, with the sign of the eigenvalue."""
    return np.sign(values) * np.sqrt(np.abs(values)) * WAVENUMBER


def _first_large(cartesian: np.ndarray) -> np.ndarray:
    """The first component of each mode that is nearly its largest."""
    size = np.abs(cartesian.reshape(len(cartesian), -1))
    return (size > 0.95 * size.max(1, keepdims=True)).argmax(1)
