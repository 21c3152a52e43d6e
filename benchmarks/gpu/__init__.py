"""Training speed against the published formulations on a GPU: `python -m benchmarks.gpu`."""
