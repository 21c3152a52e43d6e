"""A whole step forward in one kernel, for Hopper's matrix units and memory engine, co-moving frame.

Memory plan. A persistent program walks over tiles of 4×4 pixels of 16 images, four parties side by
side. One warp fetches each tap of a tile from the halo buffer as one box, [16, 4, 4, 64 channels],
and a slab of the weights, three of them ahead, and the patches of the frame that every image of the
tile meets. Two groups of four warps multiply all of them on the matrix units, 64 output channels
each: the drive is one product more. They apply ReLU and leave the tile in shared memory. While they
multiply the next one, the memory engine stores it, to the state and to its halo buffer, and two
warps write its bits and the copies that the torus wraps. Neither the convolution's output nor the
drive ever goes to memory. Gluon, the language of the kernel, has no interpreter: it is tested on a
device.
"""

import torch
import triton
from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from fernn.ops._launch import device_of
from fernn.ops.flow_step._hopper_kernels import step_kernel

_TESTED = "3.6"  # of Triton: its Gluon is experimental, and another one may mean something else
_IMAGES, _SIDE, _SLAB, _STAGES, _BLOCK = 16, 4, 64, 3, 32
_CHANNELS, _PATCH = 128, 16
_REGISTERS = 160  # for every thread: then nothing spills, and no party has to lend to another


def fits(halo: Tensor, weight: Tensor, columns: Tensor, h: Tensor) -> bool:
    """Whether one kernel does the step: whole tiles, whole slabs, half precision, Hopper.

    One slice that stands for every ν is convolved elsewhere, once. In other versions of Triton than
    the one that this kernel was tested with, cuDNN and one pass do the step.
    """
    (channels, source, ky, kx), (height, width) = weight.shape, h.shape[2:4]
    return (
        triton.__version__.startswith(f"{_TESTED}.")
        and halo.dtype in (torch.float16, torch.bfloat16)
        and channels == _CHANNELS
        and source % _SLAB == 0
        and columns.shape[1] == _PATCH
        and height % _SIDE == width % _SIDE == 0
        and min(height, width) >= max(ky, kx)
        and halo.shape[1] == h.shape[1]
        and halo.is_cuda
        and torch.cuda.get_device_capability(halo.device) == (9, 0)
    )


def advance(
    halo: Tensor,
    weight: Tensor,
    patches: Tensor,
    columns: Tensor,
    at: Tensor,
    h: Tensor,
    new: Tensor,
    bits: Tensor,
) -> None:
    """Fill h [B, V, H, W, K], its halo buffer and its bits, as `_comoving.advance` says."""
    (channels, source, ky, kx), (batch, slices, height, width, _) = weight.shape, h.shape
    box, images = [_IMAGES, _SIDE, _SIDE, _SLAB], batch * slices
    tiles = -(-images // _IMAGES) * (height // _SIDE) * (width // _SIDE)
    programs = torch.cuda.get_device_properties(halo.device).multi_processor_count
    if len(patches) == batch:
        patches = patches.repeat(1, 2, 2, 1)  # as far as `at` may lead from any pixel
    with device_of(halo):
        step_kernel[(min(tiles, programs),)](
            _described(halo.flatten(0, 1), box),
            _described(weight.permute(0, 2, 3, 1).flatten(1), [channels, _SLAB]),
            _described(patches, [1, _SIDE, _SIDE, _PATCH]),
            _described(columns, [channels, _PATCH]),
            _described(h.flatten(0, 1), box),
            _described(new.flatten(0, 1), box),
            new, at, bits, images, slices, height, width, tiles, int(len(patches) > 1),
            C=source, K=channels, KX=kx, TAPS=ky * kx, P=_PATCH, RY=ky // 2, RX=kx // 2,
            TN=_IMAGES, TS=_SIDE, BC=_SLAB, BR=_BLOCK, STAGES=_STAGES,
            num_warps=4, maxnreg=_REGISTERS,
        )  # fmt: skip


def _described(x: Tensor, box: list[int]) -> TensorDescriptor:
    layout = NVMMASharedLayout(min(128, 2 * box[-1]), 16, len(box))
    return TensorDescriptor(x, list(x.shape), list(x.stride()), box, layout)
