"""Engine in C++ for one float32 network on a CPU."""
