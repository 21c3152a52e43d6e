"""The equation, in plain torch: what every other backend must equal, gradients included."""

from torch import Tensor

from fernn.groups import SE2


def warp_pool(h: Tensor, element: Tensor, group: SE2) -> Tensor:
    """max_ν g(ν)·h(ν); on a tie the gradient goes to one of the slices that share the maximum."""
    return group.act(h, element[None], features=True).max(1).values
