"""The last state of a recurrence with tanh, pooled over V, and its gradient as two operators.

Memory plan. Everything happens in the co-moving frame, where a state stays where it is and the
drive comes past it: state s of slice ν stands ψ_{s−1}(ν) behind the lab. h_1 does not depend on ν,
and neither does W ⋆ h_1: both are computed once, and the axis V opens at the second state. A step
is one convolution and one kernel, which writes the state and, for the step after it, its halo
buffer. The states are what is kept, for tanh' = 1 − h² reads them. Back in time the gradient goes
from one halo buffer to the other; each drive's gradient is summed over ν in registers.
"""

from typing import Any

import torch
from torch import Tensor

from fernn.ops._launch import index_dtype, operator
from fernn.ops.flow_pool.triton import fill
from fernn.ops.flow_step import _step
from fernn.ops.flow_step._comoving import positions
from fernn.ops.flow_step._cudnn import adjoint_of, convolve, correlate, kernel_of


def last_pooled(drives: Tensor, kernel: Tensor, shift: Tensor) -> Tensor:
    """max_ν h_T(ν) for drives [T, B, H, W, K] with T > 1, shift [V, 2] → [B, H, W, K].

    Where several ν share a maximum, one of them has the gradient.
    """
    keep = torch.is_grad_enabled() and (drives.requires_grad or kernel.requires_grad)
    pooled: Tensor = _scan(drives, kernel, shift, keep)[0]
    return pooled


@operator("fernn::scan")
def _scan(
    drives: Tensor, kernel: Tensor, shift: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pooled, arg, first, states = _outputs(drives, kernel, shift, keep)
    weight, at = kernel_of(kernel, drives.dtype), positions(shift, len(drives), drives.shape[2:4])
    torch.tanh(drives[0][:, None], out=first)
    halo = _step.fill_halo(first, _step.empty_halo(first, weight, *first.shape[1::3]))
    new = _step.empty_halo(first, weight, len(shift), len(weight))
    for t in range(1, len(drives)):  # from state t to state t + 1
        h, drive = states[(t - 1) % len(states)], drives[t].permute(0, 3, 1, 2)[:, None]
        # The convolution has read a buffer before it is written again, so one is enough.
        room = new if t + 1 < len(drives) else None
        _step.forward(convolve(halo, weight), drive, _frame(at[t]), "tanh", h, room)
        halo = new
    fill(h.permute(0, 1, 4, 2, 3), at[t], pooled, arg)
    return pooled, arg, first, states


@_scan.register_fake
def _outputs(
    drives: Tensor, kernel: Tensor, shift: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The readout, the index of its maximum, h_1, and the later states, or the last of them."""
    times, batch, *canvas, channels = drives.shape
    pooled = drives.new_empty(batch, *canvas, channels)
    index = index_dtype(len(shift))
    kept = times - 1 if keep else 1
    return (
        pooled,
        torch.empty_like(pooled, dtype=index),
        drives.new_empty(batch, 1, *canvas, channels),
        drives.new_empty(kept, batch, len(shift), *canvas, channels),
    )


@operator("fernn::scan_backward")
def _scan_backward(
    grad: Tensor, kernel: Tensor, shift: Tensor, arg: Tensor, first: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    grad_drives, grad_kernel = _gradients(grad, kernel, shift, arg, first, states)
    adjoint = adjoint_of(kernel, first.dtype)
    at = positions(shift, len(grad_drives), first.shape[2:4])
    grad_adjoint = torch.zeros_like(adjoint, dtype=torch.float32)
    halo = _step.empty_halo(first, adjoint, len(shift), len(kernel))
    pool: _step.Pool | None = _step.Pool(grad, arg, at[-1])
    back: Tensor | None = None
    for t in reversed(range(1, len(grad_drives))):  # G of state t + 1, to stand beside state t
        drive = grad_drives[t][:, None]
        _step.backward(back, pool, states[t - 1], _frame(at[t]), "tanh", halo, drive)
        pool = None
        if t > 1:
            grad_adjoint += correlate(states[t - 2], halo, adjoint)
            back = convolve(halo, adjoint)
    one = halo.sum(1, keepdim=True)  # one slice of h_1 fed every ν, so it collects from every ν
    grad_adjoint += correlate(first, one, adjoint)
    torch.mul(convolve(one, adjoint)[:, 0], 1 - first[:, 0] ** 2, out=grad_drives[0])
    grad_kernel.copy_(grad_adjoint.transpose(0, 1).flip(2, 3))
    return grad_drives, grad_kernel


@_scan_backward.register_fake
def _gradients(
    grad: Tensor, kernel: Tensor, shift: Tensor, arg: Tensor, first: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    return first.new_empty(len(states) + 1, *grad.shape), torch.empty_like(kernel)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # zeros for the states would be as large as they are
    ctx.save_for_backward(*inputs[1:3], *output[1:])


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 4
    return *_scan_backward(grad.contiguous(), *ctx.saved_tensors), None, None


_scan.register_autograd(_backward, setup_context=_setup_context)


def _frame(at: Tensor) -> _step.Frame:
    return _step.Frame(torch.zeros_like(at), at)
