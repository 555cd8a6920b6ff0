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


def formula(numbers: Iterable[int]) -> str:
    """Molecular formula in Hill order, such as C2H6O."""
    counts: dict[str, int] = {}
    for symbol in symbols(numbers):
        counts[symbol] = counts.get(symbol, 0) + 1
    first = [s for s in ("C", "H") if s in counts] if "C" in counts else []
    order = first + sorted(set(counts) - set(first))
    return "".join(symbol + (str(counts[symbol]) if counts[symbol] > 1 else "") for symbol in order)
