"""One step forward and one back, on buffers that are given: no autograd and nothing kept here.

A frame says where slice ν finds what it is made of. Its value at pixel q is σ(c(q − move(ν)) +
d(q + at(ν))), with c the convolution and d the drive. In lab coordinates `move` is ψ_1(ν) and `at`
zero. In the co-moving frame the state stays where it is, so `move` is zero, and the drive comes
past it: `at` is ψ_t(ν).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fernn.ops._launch import device_of, plan
from fernn.ops.flow_step import _kernels

ACTIVATIONS = {"relu": 0, "tanh": 1, "identity": 2}


class Frame(NamedTuple):
    """Tables [V, 2] of int32, rows and columns within the canvas."""

    move: Tensor
    at: Tensor


class Pool(NamedTuple):
    """max_ν ψ(ν)·h(ν) or its gradient, and the index of the maximum, [B, H, W, K].

    `to` is ψ, [V, 2], or None where that is `at` of the frame: the readout stands in the lab.
    """

    value: Tensor
    arg: Tensor
    to: Tensor | None


def radii(weight: Tensor) -> tuple[int, int]:
    return weight.shape[2] // 2, weight.shape[3] // 2


def empty_halo(h: Tensor, weight: Tensor, slices: int, channels: int) -> Tensor:
    """Room for a buffer of `slices` and `channels` that a convolution like `weight` reads."""
    (ry, rx), (height, width) = radii(weight), h.shape[2:4]
    return h.new_empty(len(h), slices, height + 2 * ry, width + 2 * rx, channels)


def fill_halo(h: Tensor, halo: Tensor) -> Tensor:
    """Copy h [B, V, H, W, C] into its halo buffer, with the torus wrapped around it."""
    batch, slices, height, width, channels = h.shape
    ry, rx = (halo.shape[2] - height) // 2, (halo.shape[3] - width) // 2
    grid, options = plan(batch * slices, height, width, channels)
    with device_of(h):
        _kernels.halo_kernel[grid](
            h.contiguous(), halo, height, width, channels, RY=ry, RX=rx, **options
        )
    return halo


def forward(
    conv: Tensor,
    drive: Tensor,
    frame: Frame,
    activation: str,
    h: Tensor,
    halo: Tensor | None = None,
    bits: Tensor | None = None,
    pool: Pool | None = None,
) -> None:
    """Fill h [B, V, H, W, K], its halo buffer, bits and pool from conv [B, 1 or V, H, W, K].

    The drive is [B, 1 or V, K, H, W] or a bias [1, 1, K, 1, 1], in any layout. Either B or V may be
    outermost in memory, as in h in all that is filled with it.
    """
    batch, slices, height, width, channels = h.shape
    grid, options = plan(batch, height, width, channels, slices)
    ry, rx = (0, 0) if halo is None else ((halo.shape[i] - h.shape[i]) // 2 for i in (2, 3))
    strides = [0 if n == 1 else s for n, s in zip(drive.shape, drive.stride(), strict=True)]
    with device_of(h):
        _kernels.forward_kernel[grid](
            conv, drive, *frame, _to(frame, pool),
            h, h if halo is None else halo, h if bits is None else bits,
            *((h, h) if pool is None else pool[:2]), slices, height, width, channels, *_images(h),
            conv.stride(0), conv.stride(1) if conv.shape[1] > 1 else 0, *strides,
            RY=ry, RX=rx, ACT=ACTIVATIONS[activation], LIFTED=drive.shape[1] > 1,
            AHEAD=_ahead(pool), HALO=halo is not None, BITS=bits is not None,
            POOL=pool is not None, **options,
        )  # fmt: skip


def backward(
    grad: Tensor | None,
    pool: Pool | None,
    out: Tensor,
    frame: Frame,
    activation: str,
    halo: Tensor,
    grad_drive: Tensor,
) -> None:
    """Fill G with its halo, [B, V, H + 2r, W + 2r, K], and the drive's gradient, [B, 1 or V, …].

    `grad` is that of the state, `out` what σ' is read from: the bits for ReLU, else the state. Both
    lie as G does, whole images with B or V outermost.
    """
    batch, drives, height, width, channels = grad_drive.shape
    slices = halo.shape[1]
    ry, rx = (halo.shape[2] - height) // 2, (halo.shape[3] - width) // 2
    grid, options = plan(batch, height, width, channels, slices, maximum=False)
    with device_of(halo):
        _kernels.backward_kernel[grid](
            halo if grad is None else grad,
            *((halo, halo) if pool is None else (pool.value.contiguous(), pool.arg)),
            _to(frame, pool), out, *frame, halo, grad_drive, slices, height, width, channels,
            *_images(halo),
            RY=ry, RX=rx, ACT=ACTIVATIONS[activation], LIFTED=drives > 1,
            AHEAD=_ahead(pool), GRAD=grad is not None, POOL=pool is not None, **options,
        )  # fmt: skip


def empty_bits(h: Tensor) -> Tensor:
    """Room for one bit per value of h, eight channels a byte."""
    return h.new_empty(*h.shape[:-1], -(-h.shape[-1] // 8), dtype=torch.uint8)


def _images(x: Tensor) -> tuple[int, int]:
    """How many images of x [B, V, H, W, K] lie from one sample, and one velocity, to the next."""
    size = x.shape[2:].numel()
    return x.stride(0) // size, x.stride(1) // size


def _ahead(pool: Pool | None) -> bool:
    return pool is not None and pool.to is not None


def _to(frame: Frame, pool: Pool | None) -> Tensor:
    return frame.at if pool is None or pool.to is None else pool.to
