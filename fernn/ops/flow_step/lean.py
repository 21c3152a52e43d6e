"""The step for any device: one gather, one convolution, and nothing kept but the states.

W ⋆ (ψ_1·h) = ψ_1·(W ⋆ h) on the torus, so the roll and the circular halo are one set of indices: a
single gather feeds a convolution without padding. The backward pass needs h alone. The gradient of
h is again a gather and a convolution, with the kernel transposed and flipped, and the roll taken
back; that of W reads the gathered h, which is gathered again instead of stored. ReLU and tanh
differentiate from their output, the next state, so T steps keep T states and nothing else.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

from fernn.groups import Lattice, gather, roll_index
from fernn.ops._backend import low_dtype
from fernn.ops.flow_step.reference import ACTIVATIONS

_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_CONV_WEIGHT = {1: conv1d_weight, 2: conv2d_weight, 3: conv3d_weight}


def flow_step(h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor, activation: str) -> Tensor:
    """As the reference, with the memory of the states alone."""
    h, kernel = h.to(low_dtype(h)), kernel.to(low_dtype(kernel))
    if h.shape[1] == len(shift):
        moved = cast(Tensor, _MovingConv.apply(h, kernel, shift))
    else:  # one slice for all
        rest = cast(Tensor, _MovingConv.apply(h, kernel, torch.zeros_like(shift[:1])))
        moved = Lattice(shift.shape[-1]).act(rest, shift[None])
    return ACTIVATIONS[activation](moved + drive)


def _halo(h: Tensor, shift: Tensor, halo: int) -> Tensor:
    """h [B, V, C, *X] rolled by shift [V, n] and extended: [B·V, C, *(X + 2·halo)]."""
    dim = shift.shape[-1]
    index = roll_index(shift, tuple(h.shape[-dim:]), halo)
    sizes = [size + 2 * halo for size in h.shape[-dim:]]
    return gather(h, index[None], dim).reshape(-1, h.shape[2], *sizes)


class _MovingConv(torch.autograd.Function):
    """W ⋆ (ψ_1(ν)·h(ν)) for every ν: [B, V, C, *X] → [B, V, K, *X]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor, kernel: Tensor, shift: Tensor) -> Tensor:
        moved = _halo(h, shift, kernel.shape[-1] // 2)
        conv = _CONV[shift.shape[-1]](moved, kernel)
        return conv.reshape(*h.shape[:2], *conv.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        h, kernel, shift = ctx.saved_tensors
        dim, halo = shift.shape[-1], kernel.shape[-1] // 2
        grad_h = grad_kernel = None
        if ctx.needs_input_grad[0]:
            # Moving the gradient back and convolving commute, so this too is one gather.
            adjoint = kernel.transpose(0, 1).flip(tuple(range(2, 2 + dim)))
            grad_h = cast(Tensor, _MovingConv.apply(grad, adjoint, -shift))
        if ctx.needs_input_grad[1]:
            moved = _halo(h, shift, halo)
            grad_kernel = _CONV_WEIGHT[dim](moved, kernel.shape, grad.flatten(0, 1))
        return grad_h, grad_kernel, None
