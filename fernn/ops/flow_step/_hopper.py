"""A whole step in one kernel, forward or back, for Hopper's matrix units and memory engine.

Memory plan. A persistent program walks over tiles of 4 pixels of a row in 64 images, four parties
side by side. One warp fetches, for each row of taps and 64 channels, the six columns of the halo
buffer that the tile needs: three taps multiply windows of the same columns, each shifted by one,
so that they are read once. It also fetches the weights of each tap. Two groups of four warps
multiply them on the matrix units, 64 output channels each, finish their sums and leave the tile in
shared memory. While they multiply the next one, the memory engine stores it, with the copies that
the torus wraps: a tile is one row high, so these are whole tiles and whole columns of it.

Forward, the drive is one product more, of the patches that the images meet, and the sums are
rectified; two warps write the bits. Back, the bits are fetched and applied to the sums, the
readout's share is added where its own bits say that this ν has won, and the tile's product with the
patches is summed over all tiles of a program. So neither a convolution's output nor a drive nor its
gradient ever goes to memory. Gluon, the language of the kernel, has no interpreter: it is tested on
a device.
"""

import torch
import triton
from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from fernn.ops._launch import device_of
from fernn.ops.flow_pool.triton import winners
from fernn.ops.flow_step._hopper_kernels import step_kernel
from fernn.ops.flow_step._step import Pool

_TESTED = "3.6"  # of Triton: its Gluon is experimental, and another one may mean something else
_IMAGES, _ROW, _SLAB, _BLOCK = 64, 4, 64, 32
_CHANNELS, _PATCH, _ALIKE = 128, 16, 8
_REGISTERS = 168  # of every thread at first, three groups of four warps sharing 504
# Later, of the second group that multiplies and of the others; the first has the rest, 200 or 224.
_FORWARD, _BACK = (208, 96), (224, 56)


def fits(halo: Tensor, weight: Tensor, patches: Tensor, new: Tensor) -> bool:
    """Whether one kernel does the step: whole tiles, whole slabs, half precision, Hopper.

    One slice that stands for every ν is convolved elsewhere, once. In other versions of Triton than
    the one that this kernel was tested with, cuDNN and one pass do the step. A single row would
    be its own neighbour on both sides, and a tile is copied to one of them.
    """
    (channels, source, ky, kx), (slices, batch, height, width, _) = weight.shape, new.shape
    return (
        triton.__version__.startswith(f"{_TESTED}.")
        and torch.version.hip is None  # some of AMD's devices count as 9.0 too
        and halo.dtype in (torch.float16, torch.bfloat16)
        and channels == _CHANNELS
        and source % _SLAB == 0
        and ky == kx == 3
        and patches.shape[-1] == _PATCH
        and height - 2 > 1
        and (width - 2) % _ROW == 0
        and batch % _ALIKE == 0
        and batch * slices >= _IMAGES
        and halo.shape[0] == slices
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
    """Fill h [V, B, H, W, K], its halo buffer and its bits, as `_comoving.advance` says."""
    state = _described(_spread(h), [1, _ROW, _IMAGES, _SLAB])
    drive = _described(columns, list(columns.shape))
    _launch(
        halo, weight, patches, new, (drive, None, None, None, state), (at, at, bits, at), *_FORWARD
    )


def retreat(
    halo: Tensor,
    adjoint: Tensor,
    pool: Pool | None,
    bits: Tensor,
    at: Tensor,
    patches: Tensor,
    new: Tensor,
) -> Tensor:
    """Fill G and return the gradient of the columns, as `_comoving.retreat` says."""
    box = [1, _ROW, _IMAGES, bits.shape[-1] // 2]
    to, won, share = at, None, None
    if pool is not None:
        to = at if pool.to is None else pool.to
        won = _described(_spread(_words(winners(pool.arg, to, torch.empty_like(bits)))), box)
        share = _described(pool.value.permute(1, 2, 0, 3), [1, 1, _alike(new), _SLAB])
    on = _described(_spread(_words(bits)), box)
    sums = new.new_empty(_programs(new), _CHANNELS, _PATCH, dtype=torch.float32)
    _launch(halo, adjoint, patches, new, (None, on, won, share, None), (at, to, bits, sums), *_BACK)
    return sums.sum(0)


def _launch(
    halo: Tensor,
    weight: Tensor,
    patches: Tensor,
    new: Tensor,
    boxes: tuple[TensorDescriptor | None, ...],
    pointers: tuple[Tensor, ...],
    multiplying: int,
    others: int,
) -> None:
    """Forward where there is a state to fill, which is the last of `boxes`, and back elsewhere."""
    slices, batch, height, width = new.shape[0], new.shape[1], new.shape[2] - 2, new.shape[3] - 2
    source, filled = _spread(halo), _spread(new)
    with device_of(halo):
        step_kernel[(_programs(new),)](
            _described(source, [1, _ROW, _IMAGES, _SLAB]),
            _described(source, [1, 2, _IMAGES, _SLAB]),
            _described(weight.permute(0, 2, 3, 1).flatten(1), [_CHANNELS, _SLAB]),
            _described(patches.permute(1, 2, 0, 3), [1, 1, _alike(new), _PATCH]),
            *boxes,
            _described(filled, [1, _ROW, _IMAGES, _SLAB]),
            _described(filled, [1, 1, _IMAGES, _SLAB]),
            *pointers, batch * slices, batch, slices, height, width, _tiles(new),
            C=weight.shape[1], K=_CHANNELS, P=_PATCH, TN=_IMAGES, TX=_ROW, PB=_alike(new),
            BC=_SLAB, BR=_BLOCK, BACK=boxes[-1] is None, POOL=boxes[-2] is not None,
            MR=multiplying, FR=others, num_warps=4, maxnreg=_REGISTERS,
        )  # fmt: skip


def _tiles(new: Tensor) -> int:
    slices, batch, height, width, _ = new.shape
    return -(-slices * batch // _IMAGES) * (height - 2) * ((width - 2) // _ROW)


def _programs(new: Tensor) -> int:
    return min(_tiles(new), torch.cuda.get_device_properties(new.device).multi_processor_count)


def _alike(new: Tensor) -> int:
    """How many images in a row certainly have the same ν: the largest power of two in B."""
    batch = new.shape[1]
    return min(_IMAGES, batch & -batch)


def _words(bits: Tensor) -> Tensor:
    return bits.view(torch.int16)


def _spread(x: Tensor) -> Tensor:
    """[V, B, H, W, C] → [H, W, V·B, C]: a tile has neighbouring columns one behind the other.

    A view, never a copy: what the kernel writes must be in x.
    """
    return x.view(-1, *x.shape[2:]).permute(1, 2, 0, 3)


def _described(x: Tensor, box: list[int]) -> TensorDescriptor:
    row = box[-1] * x.element_size()  # bytes
    layout = NVMMASharedLayout(0 if row < 32 else row, 16, len(box))
    return TensorDescriptor(x, list(x.shape), list(x.stride()), box, layout)
