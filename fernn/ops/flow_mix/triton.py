"""The step with V-mixing on a GPU: one convolution over velocities and pixels, and no copies.

Memory plan. A state is stored channels-last, [B, V, H, W, K]. For the convolution it is written
once more with its circular halo. The convolution, Σ_γ Σ_y h(γ, y) W(γ − ν, y − x), is one long
product: a program owns a tile of one ν and all output channels, and its loop runs over the γ that V
holds near ν, the taps and the channels. The memory engine fetches each operand from slice γ of the
halo buffer where it lies, so no neighbours are gathered, and a truncated V costs the pairs that it
has; velocities with many neighbours go first. One pass moves the result by ψ_1(ν), adds the drive
and applies σ. The backward pass takes σ' from the output, moves the gradient back and writes it
with a halo. The data gradient is the convolution again, γ and ν exchanged and W flipped and
transposed. The weight gradient has a program for every ν, difference and row of taps, whose sums
over pixels stay in registers; the V sums of a difference are added afterwards, in one order. What
is kept is the states.

Where one slice of h stands for all γ, ν applies the sum of the kernels that it has, and cuDNN
convolves that slice once, with V·K output channels. Sums are in float32.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fernn.ops._backend import low_dtype
from fernn.ops._launch import device_of, operator, reduce_shift
from fernn.ops.flow_mix._kernels import mix_kernel, weight_kernel
from fernn.ops.flow_step import _cudnn, _step

_BOX, _WEIGHT_BOX, _SLAB = (16, 4), (16, 2), 64  # samples of a tile and its side; channels of a box


def flow_mix(
    h: Tensor, kernel: Tensor, neighbours: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> Tensor:
    """As `fernn.ops.flow_mix.flow_mix`; the result is channels-last."""
    state = h.to(low_dtype(h)).permute(0, 1, 3, 4, 2).contiguous()
    shift = reduce_shift(shift, h.shape[3:])
    master = kernel.permute(2, 3, 4, 1, 0)
    out: Tensor = _advance(state, master, neighbours, drive, shift, activation)[0]
    return out.permute(0, 1, 4, 2, 3)


@operator("fernn::flow_mix")
def _advance(
    h: Tensor, master: Tensor, neighbours: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """h [B, V or 1, H, W, C], master [M, 3, 3, C, K], neighbours [V, M] → [B, V, H, W, K], bits."""
    out, bits = _outputs(h, master, neighbours, drive, shift, activation)
    if h.shape[1] < len(shift):
        kernel = _merged(master, neighbours, h.dtype)
        halo = _step.fill_halo(h, _step.empty_halo(h, kernel, *h.shape[1::3]))
        conv = _cudnn.convolve(halo, kernel)[:, 0]  # [B, H, W, V·K]
        conv = conv.unflatten(3, (len(shift), -1)).movedim(3, 1).contiguous()
    else:
        halo = _step.fill_halo(h, _halo(h, h.shape[-1]))
        rows = master.to(h.dtype).permute(4, 0, 1, 2, 3).flatten(1).contiguous()
        conv = convolve(halo, rows, _terms(neighbours))
    kept = bits if activation == "relu" else None
    _step.forward(conv, drive, _lab(shift), activation, out, bits=kept)
    return out, bits


@_advance.register_fake
def _outputs(
    h: Tensor, master: Tensor, neighbours: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    out = h.new_empty(h.shape[0], len(shift), *h.shape[2:4], master.shape[-1])
    none = h.new_empty(0, dtype=torch.uint8)
    return out, _step.empty_bits(out) if activation == "relu" else none


@operator("fernn::flow_mix_backward")
def _advance_backward(
    grad: Tensor,
    h: Tensor,
    master: Tensor,
    neighbours: Tensor,
    out: Tensor,
    shift: Tensor,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    velocities = len(shift)
    halo = _halo(grad, master.shape[-1])
    grad_drive = h.new_empty(h.shape[0], 1, *grad.shape[2:])
    _step.backward(grad.contiguous(), None, out, _lab(shift), activation, halo, grad_drive)
    if h.shape[1] < velocities:
        adjoint = _cudnn.adjoint_of(_merged(master, neighbours, h.dtype), h.dtype)  # [C, V·K, 3, 3]
        halo = halo.movedim(1, 3).flatten(3)[:, None]
        grads = _cudnn.correlate(h, halo, adjoint).flip(2, 3).unflatten(1, (velocities, -1))
        grad_master = torch.einsum("vm,cvkyx->myxck", _held(neighbours), grads.float())
        return _cudnn.convolve(halo, adjoint), grad_master.contiguous(), grad_drive
    rows = master.to(h.dtype).flip(1, 2).permute(3, 0, 1, 2, 4).flatten(1).contiguous()
    every = torch.arange(velocities, device=h.device)[:, None].expand_as(neighbours)
    back = neighbours.new_full((velocities + 1, neighbours.shape[1]), velocities)
    back = back.scatter(0, neighbours, every)[:-1]  # the last row collects what is not there
    grad_h = convolve(halo, rows, _terms(back))
    return grad_h, correlate(h, halo, neighbours), grad_drive


@_advance_backward.register_fake
def _(
    grad: Tensor,
    h: Tensor,
    master: Tensor,
    neighbours: Tensor,
    out: Tensor,
    shift: Tensor,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(h),
        h.new_empty(master.shape, dtype=torch.float32),
        h.new_empty(h.shape[0], 1, *grad.shape[2:]),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    h, master, neighbours, drive, shift, activation = inputs
    out, bits = output
    ctx.mark_non_differentiable(bits)
    kept = bits if activation == "relu" else out
    ctx.save_for_backward(h, master, neighbours, kept, shift)
    ctx.activation, ctx.dtypes = activation, (master.dtype, drive.dtype)


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    grad_h, grad_master, grad_drive = _advance_backward(grad, *ctx.saved_tensors, ctx.activation)
    grad_drive = grad_drive.permute(0, 1, 4, 2, 3).to(ctx.dtypes[1])
    return grad_h, grad_master.to(ctx.dtypes[0]), None, grad_drive, None, None


_advance.register_autograd(_backward, setup_context=_setup_context)


def convolve(halo: Tensor, rows: Tensor, terms: Tensor) -> Tensor:
    """[B, V, H + 2, W + 2, C] → [B, V, H, W, K]: for every ν the sums that `terms` lists.

    `rows`, [K, M·9·C], is the kernel of each difference and tap.
    """
    batch, velocities, height, width, source = halo.shape
    channels, differences = len(rows), terms.shape[1] - 2
    out = halo.new_empty(batch, velocities, height - 2, width - 2, channels)
    samples, side = _BOX
    area, across = _tiles(out, side)
    tiles = -(-batch // samples) * area
    with device_of(halo):
        mix_kernel[(velocities * tiles,)](
            _boxes(halo, [samples, 1, side, side, _SLAB]),
            _boxes(rows, [channels, _SLAB]),
            _boxes(out, [samples, 1, side, side, channels]),
            terms, tiles, area, across,
            C=source, K=channels, M=differences, BM=triton.next_power_of_2(differences),
            TN=samples, TS=side, BC=_SLAB, num_warps=8, num_stages=4,
        )  # fmt: skip
    return out


def correlate(h: Tensor, halo: Tensor, neighbours: Tensor) -> Tensor:
    """Σ_ν Σ_q h(γ, q) G(ν, q − τ) for every difference γ − ν and tap: [M, 3, 3, C, K]."""
    (batch, velocities, *_, source), channels = h.shape, halo.shape[-1]
    differences = neighbours.shape[1]
    shape = velocities, differences, 3, 3, source, channels
    sums = h.new_zeros(shape, dtype=torch.float32)
    samples, side = _WEIGHT_BOX
    area, across = _tiles(h, side)
    with device_of(h):
        weight_kernel[(velocities * differences * 3,)](
            _boxes(h, [samples, 1, side, side, source]),
            _boxes(halo, [samples, 1, side, side, channels]),
            neighbours.contiguous(), sums, velocities, -(-batch // samples) * area, area, across,
            C=source, K=channels, M=differences, TN=samples, TS=side, num_warps=8, num_stages=3,
        )  # fmt: skip
    return sums.sum(0)


def _terms(neighbours: Tensor) -> Tensor:
    """Rows of ν, the number of its terms, M·slice + difference of each; longest sums first."""
    missing = neighbours == len(neighbours)
    number = neighbours.shape[1] - missing.sum(1, keepdim=True)
    difference = missing.to(torch.int8).argsort(dim=1, stable=True)
    code = neighbours.gather(1, difference) * neighbours.shape[1] + difference
    index = torch.arange(len(neighbours), device=neighbours.device)[:, None]
    rows = torch.cat([index, number, code], 1)
    return rows[number[:, 0].argsort(descending=True, stable=True)].int()


def _held(neighbours: Tensor) -> Tensor:
    """Which differences each ν has, as ones and zeros: [V, M]."""
    return (neighbours < len(neighbours)).float()


def _merged(master: Tensor, neighbours: Tensor, dtype: torch.dtype) -> Tensor:
    """The kernel of every ν where all γ are one, the sum of those it has: [V·K, C, 3, 3]."""
    sums = torch.einsum("vm,myxck->vkcyx", _held(neighbours), master.float()).flatten(0, 1)
    return sums.to(dtype, memory_format=_cudnn.LAST)


def _halo(h: Tensor, channels: int) -> Tensor:
    """Room for a buffer of so many channels with a pixel around each image of h."""
    batch, slices, height, width, _ = h.shape
    return h.new_empty(batch, slices, height + 2, width + 2, channels)


def _lab(shift: Tensor) -> _step.Frame:
    return _step.Frame(shift, torch.zeros_like(shift))


def _tiles(x: Tensor, side: int) -> tuple[int, int]:
    """How many tiles cover an image of x [B, V, H, W, C], and a row of it."""
    across = -(-x.shape[3] // side)
    return -(-x.shape[2] // side) * across, across


def _boxes(x: Tensor, box: list[int]) -> TensorDescriptor:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), box)
