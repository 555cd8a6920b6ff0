"""SchNet as PyTorch Geometric implements it: the baseline of benchmarks and experiments."""
