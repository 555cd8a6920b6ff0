"""The second-generation network: learned states of pairs of atoms, combined by sums over third atoms."""
