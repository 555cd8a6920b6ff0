"""Symbols of the elements, so that reading and reporting them needs no other package."""

from __future__ import annotations

from collections.abc import Iterable

from geomatt.errors import GeomAttError

# Index is the atomic number; X stands for padding.
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


def atomic_number(symbol: str) -> int:
    """The atomic number of an element's symbol, or of a number written as text."""
    name = symbol.strip()
    if name.isdigit() and 0 < int(name) < len(SYMBOLS):
        return int(name)
    if name.capitalize() not in NUMBERS:
        raise GeomAttError(f"{symbol!r} is not the symbol of an element. Write symbols such as H,C,O.")
    return NUMBERS[name.capitalize()]


def symbols(numbers: Iterable[int]) -> list[str]:
    """Symbols of atomic numbers."""
    return [SYMBOLS[int(z)] for z in numbers]


def formula(numbers: Iterable[int]) -> str:
    """The sum formula in Hill's order: C2H6O; carbon and hydrogen first where there is carbon."""
    counts: dict[str, int] = {}
    for symbol in symbols(numbers):
        counts[symbol] = counts.get(symbol, 0) + 1
    first = [s for s in ("C", "H") if s in counts] if "C" in counts else []
    order = first + sorted(set(counts) - set(first))
    return "".join(symbol + (str(counts[symbol]) if counts[symbol] > 1 else "") for symbol in order)
