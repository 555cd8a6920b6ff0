"""Engine for a GPU: the sweeps of the dense engine as Triton kernels."""
