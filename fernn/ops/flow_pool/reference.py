"""The equation, in plain torch: what every other backend must equal, gradients included."""

from torch import Tensor

from fernn.groups import Lattice


def flow_pool(h: Tensor, shift: Tensor) -> Tensor:
    """max_ν ψ(ν)·h(ν); on a tie the gradient goes to one of the slices that share the maximum."""
    return Lattice(shift.shape[-1]).act(h, shift[None]).max(1).values
