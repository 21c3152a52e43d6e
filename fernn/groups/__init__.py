"""G: how an element acts on signals and on features, lifting and group convolution."""

from fernn.groups._base import Group
from fernn.groups._conv import PADDINGS, GroupConv, convolve
from fernn.groups._lattice import Lattice, gather, roll_index
from fernn.groups._plane import SE2

__all__ = ["PADDINGS", "SE2", "Group", "GroupConv", "Lattice", "convolve", "gather", "roll_index"]
