"""Engine in plain torch: all pairs of atoms, many networks at once, no automatic differentiation."""
