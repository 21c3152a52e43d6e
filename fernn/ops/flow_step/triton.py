"""The step on a GPU: a cuDNN convolution on a buffer that carries its own circular halo.

Memory plan. States are channels-last, [B, V, H, W, K]. A halo buffer, [B, V, H + 2r, W + 2r, K],
has the same values with the torus wrapped around them: a convolution without padding reads it as
it is, so nothing is ever padded or rolled. One kernel turns a convolution's output into the next
state: it reads it where ψ_1(ν) moves it from, adds the drive, applies σ, and writes the state and
one bit per value that says where ReLU was active. All ν of a pixel are met in one program, so the
drive is read once and its gradient is a sum in registers. The backward kernel mirrors it: it
applies σ', moves the result back and writes it with a halo. The gradient of h is then a
convolution of that buffer with the flipped kernel, and the gradient of W the cuDNN weight gradient
of h against it. What is kept for the backward pass is h and the bits, or the state where σ is not
ReLU. Sums are in float32, addresses in int64. 1-D signals are images of one row with no halo above
and below. A whole forecast, `models/_rollout.py`, is made of the same parts.
"""

from typing import Any

import torch
from torch import Tensor

from fernn.ops._backend import low_dtype
from fernn.ops._launch import operator, reduce_shift
from fernn.ops.flow_step import _step
from fernn.ops.flow_step._cudnn import adjoint_of, convolve, correlate, kernel_of


def flow_step(h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor, activation: str) -> Tensor:
    """As the reference, in one or two dimensions; the result is channels-last.

    One slice for all is convolved as many times here, but not by the loops in `models`.
    """
    h = h.to(low_dtype(h)).expand(-1, len(shift), *h.shape[2:])
    row = shift.shape[-1] == 1  # a 1-D signal is an image of one row
    if row:
        h, drive, kernel = h.unsqueeze(3), drive.unsqueeze(3), kernel.unsqueeze(2)
    h = h.permute(0, 1, 3, 4, 2).contiguous()
    out: Tensor = _advance(h, kernel, drive, reduce_shift(shift, h.shape[2:4]), activation)[0]
    out = out.permute(0, 1, 4, 2, 3)
    return out.squeeze(3) if row else out


@operator("fernn::flow_step")
def _advance(
    h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    out, bits = _outputs(h, kernel, drive, shift, activation)
    weight = kernel_of(kernel, h.dtype)
    halo = _step.fill_halo(h, _step.empty_halo(h, weight, *h.shape[1::3]))
    frame = _step.Frame(shift, torch.zeros_like(shift))
    kept = bits if activation == "relu" else None
    _step.forward(convolve(halo, weight), drive, frame, activation, out, bits=kept)
    return out, bits


@_advance.register_fake
def _outputs(
    h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    out = h.new_empty(h.shape[0], len(shift), *h.shape[2:4], len(kernel))
    none = h.new_empty(0, dtype=torch.uint8)
    return out, _step.empty_bits(out) if activation == "relu" else none


@operator("fernn::flow_step_backward")
def _advance_backward(
    grad: Tensor,
    h: Tensor,
    kernel: Tensor,
    out: Tensor,
    shift: Tensor,
    drives: int,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_drive = _gradients(grad, h, kernel, out, shift, drives, activation)[2]
    adjoint = adjoint_of(kernel, h.dtype)
    halo = _step.empty_halo(h, kernel, len(shift), len(kernel))
    frame = _step.Frame(shift, torch.zeros_like(shift))
    _step.backward(grad.contiguous(), None, out, frame, activation, halo, grad_drive)
    gradient = correlate(h, halo, adjoint).float().transpose(0, 1).flip(2, 3)
    return convolve(halo, adjoint), gradient.contiguous(), grad_drive


@_advance_backward.register_fake
def _gradients(
    grad: Tensor,
    h: Tensor,
    kernel: Tensor,
    out: Tensor,
    shift: Tensor,
    drives: int,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(h),
        h.new_empty(kernel.shape, dtype=torch.float32),
        h.new_empty(h.shape[0], drives, *h.shape[2:4], len(kernel)),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    h, kernel, drive, shift, activation = inputs
    out, bits = output
    ctx.mark_non_differentiable(bits)
    ctx.save_for_backward(h, kernel, bits if activation == "relu" else out, shift)
    ctx.activation, ctx.drives, ctx.drive_dtype = activation, drive.shape[1], drive.dtype


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    h, kernel, out, shift = ctx.saved_tensors
    grad_h, grad_kernel, grad_drive = _advance_backward(
        grad, h, kernel, out, shift, ctx.drives, ctx.activation
    )
    grad_drive = grad_drive.permute(0, 1, 4, 2, 3).to(ctx.drive_dtype)
    return grad_h, grad_kernel.to(kernel.dtype), grad_drive, None, None


_advance.register_autograd(_backward, setup_context=_setup_context)
