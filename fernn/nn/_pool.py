"""Pooling over velocities: what remains does not depend on which frame moved with the scene."""

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.groups import Lattice

REDUCTIONS = ("max", "mean", "sum")


class FlowPool(nn.Module):
    """h(x) = max_ν h(ν, x), or the mean or sum.

    Shapes: [..., V, K, *X] → [..., K, *X], with X of `dim` axes.

    >>> FlowPool()(torch.zeros(2, 25, 8, 9, 9)).shape
    torch.Size([2, 8, 9, 9])
    """

    def __init__(self, reduction: str = "max", *, dim: int = 2) -> None:
        super().__init__()
        _check.choice("reduction", reduction, REDUCTIONS)
        self.reduction, self.dim = reduction, Lattice(dim).dim

    def forward(self, h: Tensor) -> Tensor:
        _check.floating("h", h)
        if h.ndim < self.dim + 2:
            raise ValueError(
                f"`h` must be lifted, [..., V, K, *X] with {self.dim} spatial axes, "
                f"got shape {tuple(h.shape)}."
            )
        axis = -self.dim - 2
        if self.reduction == "max":
            return h.amax(axis)
        return torch.mean(h, axis) if self.reduction == "mean" else torch.sum(h, axis)

    def extra_repr(self) -> str:
        return repr(self.reduction) + ("" if self.dim == 2 else f", dim={self.dim}")
