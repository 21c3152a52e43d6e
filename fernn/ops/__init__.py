"""The few hot primitives: `reference.py` of a folder is the definition, the rest equal it."""

from fernn.ops.flow_pool import flow_pool
from fernn.ops.flow_step import ACTIVATIONS, BACKENDS, flow_step

__all__ = ["ACTIVATIONS", "BACKENDS", "flow_pool", "flow_step"]
