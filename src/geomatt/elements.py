"""Symbols and covalent radii of the elements."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from geomatt.errors import GeomAttError

# The index is the atomic number; X is padding.
# fmt: off
SYMBOLS = (
    "X", "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar",
    "K", "Ca", "Sc", "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br",
    "Kr", "Rb", "Sr", "Y", "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te",
    "I", "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm",
    "Yb", "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn",
    "Fr", "Ra", "Ac", "Th", "Pa", "U", "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr",
    "Rf", "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og",
)
# fmt: on
NUMBERS = {symbol: number for number, symbol in enumerate(SYMBOLS) if number}

# Covalent radii of H to Cm in Å (Cordero et al., Dalton Trans. 2008, 2832).
# fmt: off
COVALENT_RADII = np.array([
    0.31, 0.28, 1.28, 0.96, 0.84, 0.76, 0.71, 0.66, 0.57, 0.58, 1.66, 1.41, 1.21, 1.11, 1.07, 1.05, 1.02,
    1.06, 2.03, 1.76, 1.70, 1.60, 1.53, 1.39, 1.39, 1.32, 1.26, 1.24, 1.32, 1.22, 1.22, 1.20, 1.19, 1.20,
    1.20, 1.16, 2.20, 1.95, 1.90, 1.75, 1.64, 1.54, 1.47, 1.46, 1.42, 1.39, 1.45, 1.44, 1.42, 1.39, 1.39,
    1.38, 1.39, 1.40, 2.44, 2.15, 2.07, 2.04, 2.03, 2.01, 1.99, 1.98, 1.98, 1.96, 1.94, 1.92, 1.92, 1.89,
    1.90, 1.87, 1.87, 1.75, 1.70, 1.62, 1.51, 1.44, 1.41, 1.36, 1.36, 1.32, 1.45, 1.46, 1.48, 1.40, 1.50,
    1.50, 2.60, 2.21, 2.15, 2.06, 2.00, 1.96, 1.90, 1.87, 1.80, 1.69,
])
# fmt: on

# Atomic masses of H to Og in u (IUPAC 2016; of the most stable isotope where there is no standard weight).
# fmt: off
ATOMIC_MASSES = np.array([
    1.008, 4.002602, 6.94, 9.0121831, 10.81, 12.011, 14.007, 15.999, 18.99840316, 20.1797, 22.98976928,
    24.305, 26.9815385, 28.085, 30.973762, 32.06, 35.45, 39.948, 39.0983, 40.078, 44.955908, 47.867,
    50.9415, 51.9961, 54.938044, 55.845, 58.933194, 58.6934, 63.546, 65.38, 69.723, 72.63, 74.921595,
    78.971, 79.904, 83.798, 85.4678, 87.62, 88.90584, 91.224, 92.90637, 95.95, 97.90721, 101.07, 102.9055,
    106.42, 107.8682, 112.414, 114.818, 118.71, 121.76, 127.6, 126.90447, 131.293, 132.905452, 137.327,
    138.90547, 140.116, 140.90766, 144.242, 144.91276, 150.36, 151.964, 157.25, 158.92535, 162.5, 164.93033,
    167.259, 168.93422, 173.054, 174.9668, 178.49, 180.94788, 183.84, 186.207, 190.23, 192.217, 195.084,
    196.966569, 200.592, 204.38, 207.2, 208.9804, 208.98243, 209.98715, 222.01758, 223.01974, 226.02541,
    227.02775, 232.0377, 231.03588, 238.02891, 237.04817, 244.06421, 243.06138, 247.07035, 247.07031,
    251.07959, 252.083, 257.09511, 258.09843, 259.101, 262.11, 267.122, 268.126, 271.134, 270.133, 269.1338,
    278.156, 281.165, 281.166, 285.177, 286.182, 289.19, 289.194, 293.204, 293.208, 294.214,
])
# fmt: on


def atomic_number(symbol: str) -> int:
    """Atomic number of an element given as symbol, or as a number in text."""
    name = symbol.strip()
    if name.isdigit() and 0 < int(name) < len(SYMBOLS):
        return int(name)
    if name.capitalize() not in NUMBERS:
        raise GeomAttError(f"{symbol!r} is not the symbol of an element. Write symbols such as H,C,O.")
    return NUMBERS[name.capitalize()]


def symbols(numbers: Iterable[int]) -> list[str]:
    """Element symbols of atomic numbers."""
    return [SYMBOLS[int(z)] for z in numbers]


def atom_labels(numbers: Iterable[int]) -> list[str]:
    """Names of the atoms of a structure: C0, C1, O2, H3 …"""
    return [f"{symbol}{i}" for i, symbol in enumerate(symbols(numbers))]


def formula(numbers: Iterable[int]) -> str:
    """Molecular formula in Hill order, such as C2H6O."""
    counts: dict[str, int] = {}
    for symbol in symbols(numbers):
        counts[symbol] = counts.get(symbol, 0) + 1
    first = [s for s in ("C", "H") if s in counts] if "C" in counts else []
    order = first + sorted(set(counts) - set(first))
    return "".join(symbol + (str(counts[symbol]) if counts[symbol] > 1 else "") for symbol in order)
