"""Modules that own parameters: recurrences, flow convolution, pooling, the wrapper."""

from fernn.nn._causal import CausalAttention, CausalConv, Cell, ConvGRU
from fernn.nn._conv import FlowConv
from fernn.nn._equivariant import FlowEquivariant
from fernn.nn._pool import REDUCTIONS, FlowPool
from fernn.nn._rnn import FlowRNN
from fernn.nn._state import FRAMES, State
from fernn.nn._transport import LearnedTransport

__all__ = [
    "FRAMES",
    "REDUCTIONS",
    "CausalAttention",
    "CausalConv",
    "Cell",
    "ConvGRU",
    "FlowConv",
    "FlowEquivariant",
    "FlowPool",
    "FlowRNN",
    "LearnedTransport",
    "State",
]
