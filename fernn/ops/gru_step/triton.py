"""The step on a GPU: two convolutions in cuDNN, one pass over memory between them and one after.

Memory plan. All images are channels-last. h is copied with its circular halo, and the gates'
convolution reads that. One pass applies σ and writes r∘h, with its halo and nowhere else: the
candidate's convolution reads it. One more writes the new state. The frame has few channels, so
U ⋆ f is a small product in registers and is never written.

Kept are h and the two convolutions, four values for each one of the state. The backward pass forms
gates and candidate again. Gradients before σ and tanh are written with halos, as both gradients of
a convolution take them: `torus_conv.py` says why. r∘h is written once more beside the gradient of
r. The gradient of U is summed where those values are in registers.
"""

from typing import Any

import torch
from torch import Tensor

from fernn.ops._backend import low_dtype
from fernn.ops._launch import device_of, operator
from fernn.ops.comoving_step._passes import columns_of
from fernn.ops.flow_step import _step
from fernn.ops.flow_step._cudnn import adjoint_of, convolve, correlate, kernel_of
from fernn.ops.gru_step import _kernels

_CHANNELS = 128  # of a block, at most
_FORWARD = {"BP": 32, "num_warps": 4}
_BACKWARD = {"BP": 16, "num_warps": 4, "num_stages": 1}  # with more it has too few registers
_PROGRAMS = 1056  # that sum the gradient of U, each over many blocks: eight for a processor


def gru_step(frame: Tensor, h: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
    source, dtype = frame.shape[1], low_dtype(frame)
    inner = torch.cat([gates[:, :source], candidate[:, :source]])
    state = h.permute(0, 2, 3, 1).to(dtype).contiguous()
    outer = gates[:, source:], candidate[:, source:]
    out: Tensor = _advance(frame.contiguous(), state, inner, *outer)[0]
    return out.permute(0, 3, 1, 2)


@operator("fernn::gru_step")
def _advance(
    frame: Tensor, h: Tensor, inner: Tensor, gates: Tensor, candidate: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The new state [N, H, W, K] and the convolutions of gates and candidate, without U ⋆ f."""
    halo = _room(h, candidate)
    _step.fill_halo(h[:, None], halo)
    conv = convolve(halo, kernel_of(gates, h.dtype))[:, 0]
    column = columns_of(inner).to(h.dtype).contiguous()
    tiles, options = _plan(h, column, candidate, _FORWARD)
    grid, sizes = (tiles, -(-h.shape[3] // options["BK"])), (*h.shape[1:], frame.shape[1])
    out = torch.empty_like(h)
    with device_of(h):
        _kernels.reset_kernel[grid](frame, column, conv, h, halo, *sizes, **options)
    new = convolve(halo, kernel_of(candidate, h.dtype))[:, 0]
    with device_of(h):
        _kernels.blend_kernel[grid](frame, column, conv, new, h, out, *sizes, **options)
    return out, conv, new


@_advance.register_fake
def _(
    frame: Tensor, h: Tensor, inner: Tensor, gates: Tensor, candidate: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(h), h.new_empty(*h.shape[:3], len(gates)), torch.empty_like(h)


@operator("fernn::gru_step_backward")
def _advance_backward(
    grad: Tensor,
    frame: Tensor,
    h: Tensor,
    inner: Tensor,
    gates: Tensor,
    candidate: Tensor,
    conv: Tensor,
    new: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    column = columns_of(inner).to(h.dtype).contiguous()
    tiles, options = _plan(h, column, candidate, _BACKWARD)
    grid = min(tiles, _PROGRAMS), -(-h.shape[3] // options["BK"])
    sizes = tiles, *h.shape[1:], frame.shape[1]
    halo_gates, halo = _room(h, gates), _room(h, candidate)
    rest, reset = torch.empty_like(h), torch.empty_like(h)
    sums = h.new_empty(grid[0], *column.shape, dtype=torch.float32)
    with device_of(h):
        _kernels.blend_backward_kernel[grid](
            grad, frame, column, conv, new, h, halo_gates, halo, rest, sums, *sizes, **options
        )
    adjoint = adjoint_of(candidate, h.dtype)
    grad_reset = convolve(halo, adjoint)[:, 0]
    with device_of(h):
        _kernels.reset_backward_kernel[grid](
            grad_reset, frame, column, conv, h, halo_gates, rest, reset, sums, *sizes, **options
        )
    grad_candidate = _gradient(reset, halo, adjoint)
    adjoint = adjoint_of(gates, h.dtype)
    grad_h = convolve(halo_gates, adjoint)[:, 0].add_(rest)
    taps = inner[0].numel()
    grad_inner = sums.sum(0)[:taps].T.reshape(inner.shape).contiguous()
    return grad_h, grad_inner, _gradient(h, halo_gates, adjoint), grad_candidate


@_advance_backward.register_fake
def _(
    grad: Tensor,
    frame: Tensor,
    h: Tensor,
    inner: Tensor,
    gates: Tensor,
    candidate: Tensor,
    *_: Tensor,
) -> tuple[Tensor, ...]:
    weights = (h.new_empty(x.shape, dtype=torch.float32) for x in (inner, gates, candidate))
    return torch.empty_like(h), *weights


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # zeros for the convolutions would be as large as they are
    ctx.save_for_backward(*inputs, *output[1:])


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 5
    frame, h, *weights, conv, new = ctx.saved_tensors
    grad_h, *grads = _advance_backward(grad.contiguous(), frame, h, *weights, conv, new)
    return None, grad_h, *(g.to(w.dtype) for g, w in zip(grads, weights, strict=True))


_advance.register_autograd(_backward, setup_context=_setup_context)


def _plan(
    h: Tensor, column: Tensor, kernel: Tensor, block: dict[str, int]
) -> tuple[int, dict[str, int]]:
    """How many blocks of pixels there are, and what the kernels must know to be compiled."""
    images, height, width, channels = h.shape
    most = max(16, min(_CHANNELS, 1 << (channels - 1).bit_length()))
    options = {"SIDE": kernel.shape[-1], "BT": len(column), "BK": most} | block
    return images * -(-height * width // block["BP"]), options


def _room(h: Tensor, kernel: Tensor) -> Tensor:
    """An empty halo buffer for what `kernel` makes: [N, 1, H + 2r, W + 2r, K]."""
    return _step.empty_halo(h[:, None], kernel, 1, len(kernel))


def _gradient(x: Tensor, halo: Tensor, adjoint: Tensor) -> Tensor:
    """That of a kernel, from what it was convolved with and the haloed gradient of the result."""
    gradient = correlate(x[:, None], halo, adjoint).float()
    return gradient.transpose(0, 1).flip(2, 3).contiguous()
