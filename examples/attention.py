"""Attention coefficients of a model in a molecule, and how well they find the covalent bonds.

python examples/attention.py
"""

import geomatt
from geomatt.analysis import bond_scores

molecule = geomatt.read("embedded/ethanol")[0]
records = geomatt.attention("md17/ethanol:fast", molecule)
scores = {score.label: score for score in bond_scores(records, molecule)}
for record in records:
    strongest = record.matrix.copy()
    strongest[range(len(molecule)), range(len(molecule))] = 0.0
    i, j = divmod(int(abs(strongest).argmax()), len(molecule))
    precision = scores[record.label].average_precision
    print(f"{record.label:14} strongest pair {i}–{j}: {strongest[i, j]:+.3f}   bonds {precision:.2f}")
