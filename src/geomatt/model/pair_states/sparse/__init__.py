"""Engine over neighbour lists: networks with a radius, structures of any size, periodic cells."""
