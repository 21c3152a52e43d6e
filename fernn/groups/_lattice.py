"""Zⁿ: translations of a cyclic grid. The action is one gather, its adjoint the inverse gather."""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from fernn import _check
from fernn._forward import forward_mode
from fernn.groups._base import Group


@dataclass(frozen=True)
class Lattice(Group):
    """Zⁿ acting on a torus: (g·f)(x) = f(x − g), exact.

    An element is an integer vector; its component i moves the signal along spatial axis i.

    >>> x = torch.arange(4.0)
    >>> Lattice(1).act(x, torch.tensor([1]))
    tensor([3., 0., 1., 2.])
    """

    dim: int = 2

    def __post_init__(self) -> None:
        if self.dim not in (1, 2, 3):
            raise ValueError(f"`dim` must be 1, 2 or 3, got {self.dim!r}.")

    @property
    def order(self) -> int:
        return 1

    def act(self, x: Tensor, element: Tensor, *, features: bool = False) -> Tensor:
        _check.floating("x", x)
        _check.components("element", element, self.dim, self)
        lead = element.ndim - 1
        shape = torch.broadcast_shapes(element.shape[:-1], x.shape[:lead])
        x = x.expand(*shape, *x.shape[lead:])
        return _rolled(x, element) if forward_mode() else cast(Tensor, _Roll.apply(x, element))

    def weight_shape(
        self, out_channels: int, in_channels: int, kernel_size: int, *, lifting: bool
    ) -> tuple[int, ...]:
        return (out_channels, in_channels, *(kernel_size,) * self.dim)

    def kernel(self, weight: Tensor, kernel_size: int, *, lifting: bool) -> Tensor:
        return weight


def roll_index(shift: Tensor, sizes: tuple[int, ...], halo: int = 0) -> Tensor:
    """Where each point of a rolled canvas, extended by a circular halo, is read from.

    Shapes: shift [*S, n] → flat indices [*S, Π(size + 2·halo)].
    """
    index = torch.zeros(
        *shift.shape[:-1], *(1,) * len(sizes), dtype=torch.long, device=shift.device
    )
    for axis, size in enumerate(sizes):
        grid = torch.arange(-halo, size + halo, device=shift.device)
        along = (grid - shift[..., axis, None]) % size
        ones = [1] * len(sizes)
        ones[axis] = size + 2 * halo
        index = index + along.reshape(*shift.shape[:-1], *ones) * math.prod(sizes[axis + 1 :])
    return index.flatten(-len(sizes))


def gather(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """x read at flat positions: x [*S, ..., *X], index [*S, P] → [*S, ..., P]."""
    lead, inner = index.ndim - 1, x.shape[index.ndim - 1 : x.ndim - dim]
    shape = torch.broadcast_shapes(index.shape[:-1], x.shape[:lead])
    index = index.reshape(*index.shape[:-1], *(1,) * len(inner), index.shape[-1])
    x = x.expand(*shape, *x.shape[lead:]).flatten(-dim)
    return x.gather(-1, index.expand(*shape, *inner, index.shape[-1]))


def _rolled(x: Tensor, shift: Tensor) -> Tensor:
    """x [*S, ..., *X] rolled by shift [*S, n]."""
    dim = shift.shape[-1]
    sizes = tuple(x.shape[-dim:])
    return gather(x, roll_index(shift, sizes), dim).reshape(x.shape)


class _Roll(torch.autograd.Function):
    """A roll by `shift`, whose gradient is the roll by −shift: a gather, never a scatter."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, shift: Tensor) -> Tensor:
        return _rolled(x, shift)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (shift,) = ctx.saved_tensors
        return cast(Tensor, _Roll.apply(grad, -shift)), None
