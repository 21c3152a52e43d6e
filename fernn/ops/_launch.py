"""What the Triton backends share: operators, blocks and grid of a launch, shifts on a canvas."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._library.custom_ops import CustomOpDef

_CHANNELS = 128


@triton.jit
def wrap(x, size):
    """x modulo size, for −size ≤ x < 2·size."""
    x = tl.where(x < 0, x + size, x)
    return tl.where(x >= size, x - size, x)


@triton.jit
def program(pixels, BP: tl.constexpr):
    """Image, block of pixels and block of channels of this program; neighbours share an image."""
    i_0, tiles = tl.program_id(0), tl.cdiv(pixels, BP)
    return (i_0 // tiles).to(tl.int64), i_0 % tiles, tl.program_id(1)


@cache
def plan(
    images: int,
    height: int,
    width: int,
    channels: int,
    velocities: int = 1,
    *,
    maximum: bool = True,
) -> tuple[tuple[int, int], dict[str, int]]:
    """The programs that cover images, by pixels and by channels, and the sizes of their blocks.

    A program keeps a value for each of its pixels while it meets every ν, so with many ν it takes
    fewer pixels, and fewest where it keeps a maximum and its index. The README here has the times.
    """
    pixels, warps = (16, 4) if velocities == 1 else ((4, 2) if maximum else (8, 4))
    block = max(8, min(_CHANNELS, 1 << (channels - 1).bit_length()))  # at least a byte of the bits
    grid = images * -(-height * width // pixels), -(-channels // block)
    return grid, {"BP": pixels, "BK": block, "num_warps": warps}


def index_dtype(velocities: int) -> torch.dtype:
    """The smallest that counts so many velocities: the index of a maximum is one byte mostly."""
    return torch.uint8 if velocities <= 256 else torch.int32


def operator(name: str, mutates: Sequence[str] = ()) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """A custom operator that computes in the precision of what it is given, also in autocast.

    Autocast has already chosen the precision of the arguments. It is off inside: a backward pass
    may run under it, and would round what ran in float32.
    """

    def make(body: Callable[..., Any]) -> CustomOpDef:
        @wraps(body)
        def exact(*args: Any) -> Any:
            kind = next(x.device.type for x in args if isinstance(x, Tensor))
            if not torch.is_autocast_enabled(kind):
                return body(*args)
            with torch.autocast(kind, enabled=False):
                return body(*args)

        return torch.library.custom_op(name, exact, mutates_args=mutates)

    return make


def reduce_shift(shift: Tensor, sizes: Sequence[int]) -> Tensor:
    """shift [V, n] → [V, 2] within a canvas (H, W), int32; one dimension is a single row."""
    rows = shift[:, 0] % sizes[0] if shift.shape[-1] == 2 else torch.zeros_like(shift[:, 0])
    return torch.stack([rows, shift[:, -1] % sizes[1]], 1).int()


def device_of(x: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device, which must be that of its tensors."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
