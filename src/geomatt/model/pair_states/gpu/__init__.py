"""Engine in Triton: the sweeps of `dense` with kernels of their own between products with weights."""
