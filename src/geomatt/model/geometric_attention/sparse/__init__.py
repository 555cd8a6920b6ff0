"""Engine for large systems: neighbour lists, at a cost proportional to the number of atoms."""
