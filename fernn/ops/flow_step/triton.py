"""The step on a GPU: cuDNN convolutions on buffers that carry their own circular halo.

Memory plan. A state is stored once, channels-last, [B, V, H, W, K]. Beside the newest state lives
its halo buffer, [B, V, H + 2r, W + 2r, K], the same values with the torus wrapped around them: a
convolution without padding reads it as it is, so nothing is ever padded or rolled. One kernel
turns a convolution's output into the next state: it reads it where ψ_1(ν) moves it from, adds the
drive, applies σ, and writes the state, its halo buffer, one bit per value that says where ReLU was
active, and the maximum over ν with its index where a readout wants it. All ν of a pixel are
met in one program, so the maximum and the drive's gradient are sums in registers. The backward
kernel mirrors it: it adds the readout's gradient to the state's, applies σ', moves the result back
and writes it with a halo. The gradient of h is then a convolution of that buffer with the flipped
kernel, and the gradient of W the cuDNN weight gradient of h against it. What is kept for the
backward pass is the states and the bits. Sums are in float32, addresses in int64. On Hopper, in
half precision, `_hopper.py` does the forward convolution and its kernel in one. 1-D signals are
images of one row with no halo above and below.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fernn.ops._launch import device_of, plan, reduce_shift
from fernn.ops.flow_pool.triton import fill
from fernn.ops.flow_step import _hopper, _kernels
from fernn.ops.flow_step._cudnn import convolve, correlate

_ACTIVATIONS = {"relu": 0, "tanh": 1, "identity": 2}
_SHARED, _LIFTED, _BIAS = 0, 1, 2  # what a drive depends on: (b, x), (b, ν, x), nothing
_LAST = torch.channels_last


class Packed(NamedTuple):
    """A kernel [K, C, ky, kx] as the steps read it; a loop over many steps packs once.

    `weight` is what the forward convolution reads, `adjoint`, [C, K, ky, kx] and flipped, what the
    backward one does, both in the precision and layout of the states. `master` is the adjoint in
    the precision of the kernel, through which the gradients of all steps reach it.
    """

    master: Tensor
    weight: Tensor
    adjoint: Tensor


def pack(kernel: Tensor, dtype: torch.dtype) -> Packed:
    master = kernel.transpose(0, 1).flip(2, 3)
    low = kernel.detach().to(dtype), master.detach().to(dtype)
    return Packed(master, *(copy.contiguous(memory_format=_LAST) for copy in low))


def flow_step(h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor, activation: str) -> Tensor:
    """As the reference, h [B, V, C, *X] in one or two dimensions; the result is channels-last."""
    if torch.is_autocast_enabled(h.device.type):
        h = h.to(torch.get_autocast_dtype(h.device.type))
    row = shift.shape[-1] == 1  # a 1-D signal is an image of one row
    if row:
        h, drive, kernel = h.unsqueeze(3), drive.unsqueeze(3), kernel.unsqueeze(2)
    h = h.permute(0, 1, 3, 4, 2).contiguous()
    shift = reduce_shift(shift, h.shape[2:4])
    out, _, _ = step(h, None, pack(kernel, h.dtype), drive, shift, activation)
    out = out.permute(0, 1, 4, 2, 3)
    return out.squeeze(3) if row else out


def step(
    h: Tensor,
    halo: Tensor | None,
    packed: Packed,
    drive: Tensor,
    shift: Tensor,
    activation: str,
    *,
    pool: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The next state, its halo buffer, and max_ν ψ_pool(ν)·h_{t+1}(ν) where `pool` is 0 or 1.

    Shapes: h [B, V or 1, H, W, C], drive [B, 1 or V, K, H, W] or a bias [1, 1, K, 1, 1], shift
    [V, 2] from `reduce_shift` → [B, V, H, W, K], its buffer, [B, H, W, K]. One slice of h stands
    for all ν: what does not depend on ν is convolved once. `halo` is the buffer that the previous
    step returned with h; without it, it is made.
    """
    halo = halo_of(h, packed) if halo is None else halo
    out, halo, _, pooled, _ = _advance(
        h, halo, *packed, drive, shift, activation, pool or 0, pool is not None
    )
    return out, halo, None if pool is None else pooled


def halo_of(h: Tensor, packed: Packed) -> Tensor:
    """The buffer of h [B, V, H, W, C] that a convolution with `packed` reads without padding."""
    halo: Tensor = _halo(h.detach(), *_radii(packed.weight))
    return halo


@torch.library.custom_op("fernn::flow_halo", mutates_args=())
def _halo(h: Tensor, ry: int, rx: int) -> Tensor:
    halo = _with_halo(h, h.shape[1], h.shape[4], (ry, rx))
    batch, velocities, height, width, channels = h.shape
    grid, options = plan(batch * velocities, height, width, channels)
    with device_of(h):
        _kernels.halo_kernel[grid](
            h.contiguous(), halo, height, width, channels, RY=ry, RX=rx, **options
        )
    return halo


@_halo.register_fake
def _(h: Tensor, ry: int, rx: int) -> Tensor:
    return _with_halo(h, h.shape[1], h.shape[4], (ry, rx))


@torch.library.custom_op("fernn::flow_advance", mutates_args=())
def _advance(
    h: Tensor,
    halo: Tensor,
    master: Tensor,
    weight: Tensor,
    adjoint: Tensor,
    drive: Tensor,
    shift: Tensor,
    activation: str,
    ahead: int,
    pool: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    out, new_halo, bits, pooled, arg = _outputs(h, weight, shift, activation, pool)
    batch, velocities, height, width, channels = out.shape
    sigma, strides = _ACTIVATIONS[activation], _strides(drive)
    if _hopper.fits(halo, weight, shift):
        _hopper.launch(halo, weight, drive, strides, shift, sigma, (out, new_halo, bits))
        if pool:
            fill(out.permute(0, 1, 4, 2, 3), ahead * shift, pooled, arg)
        return out, new_halo, bits, pooled, arg
    conv = convolve(halo, weight)
    slice_ = height * width * channels
    grid, options = plan(batch, height, width, channels, velocities)
    ry, rx = _radii(weight)
    with device_of(h):
        _kernels.forward_kernel[grid](
            conv, drive, shift, out, new_halo, bits, pooled, arg,
            velocities, height, width, channels,
            slice_ * h.shape[1], slice_ if h.shape[1] > 1 else 0, *strides,
            RY=ry, RX=rx, ACT=sigma, AHEAD=ahead, LIFTED=_kind(drive) == _LIFTED, POOL=pool,
            **options,
        )  # fmt: skip
    return out, new_halo, bits, pooled, arg


def _outputs(
    h: Tensor, weight: Tensor, shift: Tensor, activation: str, pool: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, velocities, channels = len(h), len(shift), len(weight)
    out = h.new_empty(batch, velocities, *h.shape[2:4], channels)
    bits = (*out.shape[:-1], -(-channels // 8)) if activation == "relu" else (0,)
    pooled = (batch, *h.shape[2:4], channels) if pool else (0,)
    index = torch.uint8 if velocities <= 256 else torch.int32
    return (
        out,
        _with_halo(h, velocities, channels, _radii(weight)),
        h.new_empty(bits, dtype=torch.uint8),
        h.new_empty(pooled),
        h.new_empty(pooled, dtype=index),
    )


@_advance.register_fake
def _(
    h: Tensor,
    halo: Tensor,
    master: Tensor,
    weight: Tensor,
    adjoint: Tensor,
    drive: Tensor,
    shift: Tensor,
    activation: str,
    ahead: int,
    pool: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _outputs(h, weight, shift, activation, pool)


@torch.library.custom_op("fernn::flow_advance_backward", mutates_args=())
def _advance_backward(
    grad: Tensor | None,
    grad_pool: Tensor | None,
    h: Tensor,
    adjoint: Tensor,
    out: Tensor,
    arg: Tensor,
    shift: Tensor,
    kind: int,
    activation: str,
    ahead: int,
    need_h: bool,
    need_master: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_h, grad_master, grad_drive = _gradients(h, adjoint, shift, kind, need_h, need_master)
    (batch, _, height, width, _), velocities, channels = h.shape, len(shift), adjoint.shape[1]
    grid, options = plan(batch, height, width, channels, velocities, maximum=False)
    ry, rx = _radii(adjoint)
    halo = _with_halo(h, velocities, channels, (ry, rx))
    if kind == _BIAS:  # a row of sums for each program
        grad_drive = h.new_empty(grid[0], channels, dtype=torch.float32)
    with device_of(h):
        _kernels.backward_kernel[grid](
            h if grad is None else grad.contiguous(),
            h if grad_pool is None else grad_pool.contiguous(),
            arg, out, shift, halo, grad_drive, velocities, height, width, channels,
            RY=ry, RX=rx, ACT=_ACTIVATIONS[activation], AHEAD=ahead, KIND=kind,
            GRAD=grad is not None, POOL=grad_pool is not None, **options,
        )  # fmt: skip
    if kind == _BIAS:
        grad_drive = grad_drive.sum(0)
    if h.shape[1] < velocities:  # one slice of h fed every ν, so it collects from every ν
        halo = halo.sum(1, keepdim=True)
    if need_h:
        grad_h = convolve(halo, adjoint)
    if need_master:
        # Σ_p h(p + τ) g(p) = Σ_q h(q) g(q − τ): the halo may be on either side, and g has one.
        grad_master = correlate(h, halo, adjoint).to(torch.float32, memory_format=_LAST)
    return grad_h, grad_master, grad_drive


def _gradients(
    h: Tensor, adjoint: Tensor, shift: Tensor, kind: int, need_h: bool, need_master: bool
) -> tuple[Tensor, Tensor, Tensor]:
    channels = adjoint.shape[1]
    drive = (len(h), len(shift) if kind == _LIFTED else 1, *h.shape[2:4], channels)
    return (
        h.new_empty(h.shape if need_h else (0,)),
        torch.empty_like(adjoint, dtype=torch.float32) if need_master else h.new_empty(0),
        h.new_empty(channels, dtype=torch.float32) if kind == _BIAS else h.new_empty(drive),
    )


@_advance_backward.register_fake
def _(
    grad: Tensor | None,
    grad_pool: Tensor | None,
    h: Tensor,
    adjoint: Tensor,
    out: Tensor,
    arg: Tensor,
    shift: Tensor,
    kind: int,
    activation: str,
    ahead: int,
    need_h: bool,
    need_master: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(h, adjoint, shift, kind, need_h, need_master)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    h, _, master, _, adjoint, drive, shift, activation, ahead, _ = inputs
    out, halo, bits, _, arg = output
    ctx.mark_non_differentiable(halo, bits, arg)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(h, adjoint, bits if activation == "relu" else out, arg, shift)
    ctx.activation, ctx.ahead, ctx.kind = activation, ahead, _kind(drive)
    ctx.master_dtype, ctx.drive_dtype = master.dtype, drive.dtype


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    h, adjoint, out, arg, shift = ctx.saved_tensors
    need_h, _, need_master, _, _, need_drive, *_ = ctx.needs_input_grad
    grad_h, grad_master, grad_drive = _advance_backward(
        grads[0], grads[3], h, adjoint, out, arg, shift,
        ctx.kind, ctx.activation, ctx.ahead, need_h, need_master,
    )  # fmt: skip
    channels_first = (
        grad_drive[None, None, :, None, None]
        if ctx.kind == _BIAS
        else grad_drive.permute(0, 1, 4, 2, 3)
    )
    return (
        grad_h if need_h else None,
        None,
        grad_master.to(ctx.master_dtype) if need_master else None,
        None,
        None,
        channels_first.to(ctx.drive_dtype) if need_drive else None,
        *(None,) * 4,
    )


_advance.register_autograd(_backward, setup_context=_setup_context)


def _with_halo(h: Tensor, velocities: int, channels: int, radii: tuple[int, int]) -> Tensor:
    height, width = h.shape[2] + 2 * radii[0], h.shape[3] + 2 * radii[1]
    return h.new_empty(len(h), velocities, height, width, channels)


def _radii(weight: Tensor) -> tuple[int, int]:
    return weight.shape[2] // 2, weight.shape[3] // 2


def _kind(drive: Tensor) -> int:
    if drive.shape[1] > 1:
        return _LIFTED
    return _BIAS if drive.numel() == drive.shape[2] else _SHARED


def _strides(drive: Tensor) -> list[int]:
    """Strides of b, ν, k, y, x, zero along what the drive does not depend on."""
    return [0 if n == 1 else s for n, s in zip(drive.shape, drive.stride(), strict=True)]
