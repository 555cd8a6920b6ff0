"""Engine for a CPU: the sweeps of the dense engine in C++."""
