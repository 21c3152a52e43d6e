"""The end of a step on a GPU, for a recurrence that does more than convolve before it moves.

Memory plan. What was made of the state is read where ψ_1(ν) moves it from, the drive is added, σ
applied and the new state written, channels-last, by the kernel that `flow_step` has for it: one
pass. The backward pass is one too, and sums the gradient of a drive that all ν share in registers.
What is kept is the state, or for ReLU one bit a value.
"""

from typing import Any

import torch
from torch import Tensor

from fernn.ops._launch import operator, reduce_shift
from fernn.ops.flow_step import _step


def flow_sigma(x: Tensor, drive: Tensor, shift: Tensor, activation: str) -> Tensor:
    """σ(ψ_1(ν)·x(ν) + drive(ν)) with ψ_1(ν) a roll by shift[ν], in the precision of x.

    Shapes: x [B, V, K, H, W], drive [B, 1 or V, K, H, W], integers shift [V, 2] → as x.
    """
    state = x.permute(0, 1, 3, 4, 2).contiguous()
    moves = reduce_shift(shift, state.shape[2:4])
    out: Tensor = _end(state, drive, moves, activation)[0]
    return out.permute(0, 1, 4, 2, 3)


@operator("fernn::flow_sigma")
def _end(x: Tensor, drive: Tensor, shift: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    out, bits = _outputs(x, drive, shift, activation)
    frame = _step.Frame(shift, torch.zeros_like(shift))
    kept = bits if activation == "relu" else None
    _step.forward(x, drive, frame, activation, out, bits=kept)
    return out, bits


@_end.register_fake
def _outputs(x: Tensor, drive: Tensor, shift: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    none = x.new_empty(0, dtype=torch.uint8)
    return torch.empty_like(x), _step.empty_bits(x) if activation == "relu" else none


@operator("fernn::flow_sigma_backward")
def _end_backward(
    grad: Tensor, out: Tensor, shift: Tensor, drives: int, activation: str
) -> tuple[Tensor, Tensor]:
    grad_x, grad_drive = _gradients(grad, out, shift, drives, activation)
    frame = _step.Frame(shift, torch.zeros_like(shift))
    _step.backward(grad, None, out, frame, activation, grad_x, grad_drive)
    return grad_x, grad_drive


@_end_backward.register_fake
def _gradients(
    grad: Tensor, out: Tensor, shift: Tensor, drives: int, activation: str
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(grad), grad.new_empty(grad.shape[0], drives, *grad.shape[2:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, drive, shift, activation = inputs
    out, bits = output
    ctx.mark_non_differentiable(bits)
    ctx.save_for_backward(bits if activation == "relu" else out, shift)
    ctx.activation, ctx.drives, ctx.drive_dtype = activation, drive.shape[1], drive.dtype


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    out, shift = ctx.saved_tensors
    grad_x, grad_drive = _end_backward(grad.contiguous(), out, shift, ctx.drives, ctx.activation)
    return grad_x, grad_drive.permute(0, 1, 4, 2, 3).to(ctx.drive_dtype), None, None


_end.register_autograd(_backward, setup_context=_setup_context)
