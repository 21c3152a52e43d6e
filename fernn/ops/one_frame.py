"""Kernels for one frame of a few sequences: what bounds it is latency, not arithmetic.

At batch 1 a decoder's convolution has 784 pixels, a hundredth of what fills a GPU in training. So
blocks are small, an image is spread over many multiprocessors, and one kernel does all that lies
between two convolutions: it reads a haloed image, multiplies, adds the drive U ⋆ f (computed on
the way) or a bias, applies ReLU, moves, and writes a haloed image again.

Pointers are p_, blocks of a program b_, program ids i_, offsets o_, shifts s_.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton compiles these bodies; they are not Python that a type checker can read.

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fernn.ops._launch import device_of, program, wrap
from fernn.ops.flow_step._kernels import _store_halo

_FILLED = 128  # programs that keep every multiprocessor of a large GPU busy
_SLAB = 64  # input channels that are multiplied at once


@triton.jit
def conv_kernel(
    p_halo, p_weight, p_bias, p_frame, p_inner, p_shift, p_out, V, H, W, K,
    C: tl.constexpr, R: tl.constexpr, CI: tl.constexpr, RI: tl.constexpr, DRIVEN: tl.constexpr,
    LAST: tl.constexpr, PRECISION: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
    BC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """[N, H + 2R, W + 2R, C] → σ(ψ·conv + drive or bias), haloed as well, or plain if LAST.

    Weights are [taps, C, K] with K filled up to whole blocks, `p_inner` [CI, taps, K]. DRIVEN
    images move by their shift and get ReLU; the others get a bias, and ReLU unless LAST.
    """
    i_n, i_p, i_k = program(H * W, BP)
    b_p = i_p * BP + tl.arange(0, BP)
    b_k = i_k * BK + tl.arange(0, BK)
    b_c = tl.arange(0, BC)
    b_mask = b_p < H * W
    KW = tl.num_programs(1) * BK  # K, filled up
    b_y, b_x = b_p // W, b_p % W
    row = W + 2 * R
    SLABS: tl.constexpr = C // BC
    SIDE: tl.constexpr = 2 * R + 1
    p_image = p_halo + i_n * (H + 2 * R) * row * C
    o_p = ((b_y * row + b_x) * C)[:, None] + b_c[None, :]
    o_w = (b_c * KW)[:, None] + b_k[None, :]
    b_sum = tl.zeros((BP, BK), tl.float32)
    for i_s in tl.range(SIDE * SIDE * SLABS, num_stages=STAGES):
        tap, slab = i_s // SLABS, i_s % SLABS
        o_tap = (tap // SIDE * row + tap % SIDE) * C + slab * BC
        b_h = tl.load(p_image + o_p + o_tap, mask=b_mask[:, None], other=0.0)
        b_w = tl.load(p_weight + (tap * C + slab * BC) * KW + o_w)
        b_sum = tl.dot(b_h, b_w, b_sum, input_precision=PRECISION)
    if DRIVEN:
        i_v, i_b = i_n % V, i_n // V
        b_y = wrap(b_y + tl.load(p_shift + 2 * i_v), H)
        b_x = wrap(b_x + tl.load(p_shift + 2 * i_v + 1), W)
        TAPS: tl.constexpr = (2 * RI + 1) * (2 * RI + 1)
        for i_c in tl.static_range(CI):
            for tap in tl.static_range(TAPS):
                y = wrap(b_y + (tap // (2 * RI + 1) - RI), H)
                x = wrap(b_x + (tap % (2 * RI + 1) - RI), W)
                p_f = p_frame + ((i_b * CI + i_c) * H + y) * W + x
                b_f = tl.load(p_f, mask=b_mask, other=0.0).to(tl.float32)
                b_u = tl.load(p_inner + (i_c * TAPS + tap) * KW + b_k).to(tl.float32)
                b_sum += b_f[:, None] * b_u[None, :]
    else:
        b_sum += tl.load(p_bias + b_k)[None, :]
    m_k = (b_k < K)[None, :]
    if LAST:
        p_pixel = p_out + (i_n * K + b_k)[None, :] * (H * W) + b_p[:, None]
        tl.store(p_pixel, b_sum.to(p_out.dtype.element_ty), mask=b_mask[:, None] & m_k)
    else:
        b_o = tl.where(b_sum <= 0, 0.0, b_sum).to(p_out.dtype.element_ty)  # keeps NaN
        p_image = p_out + i_n * (H + 2 * R) * row * K
        _store_halo(p_image, b_o, b_y, b_x, b_k, b_mask, m_k, H, W, K, R, R)


@triton.jit
def pool_kernel(
    p_halo, p_shift, p_out, V, H, W, K,
    R: tl.constexpr, AHEAD: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """max_ν ψ_AHEAD(ν)·h(ν): haloed [B, V, H + 2R, W + 2R, K] → haloed [B, H + 2R, W + 2R, K]."""
    i_b, i_p, i_k = program(H * W, BP)
    b_p = i_p * BP + tl.arange(0, BP)
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask, m_k = b_p < H * W, (b_k < K)[None, :]
    b_y, b_x = b_p // W, b_p % W
    row = W + 2 * R
    size = (H + 2 * R) * row * K
    b_best = tl.full((BP, BK), float("-inf"), tl.float32)
    for i_v in tl.range(V, num_stages=STAGES):
        y, x = b_y, b_x
        if AHEAD != 0:
            y = wrap(y - tl.load(p_shift + 2 * i_v), H)
            x = wrap(x - tl.load(p_shift + 2 * i_v + 1), W)
        o_h = (((y + R) * row + x + R) * K)[:, None] + b_k[None, :]
        p_image = p_halo + (i_b * V + i_v) * size
        b_h = tl.load(p_image + o_h, mask=b_mask[:, None] & m_k, other=0.0).to(tl.float32)
        b_best = tl.where((b_h > b_best) | (b_h != b_h), b_h, b_best)
    b_o = b_best.to(p_out.dtype.element_ty)
    _store_halo(p_out + i_b * size, b_o, b_y, b_x, b_k, b_mask, m_k, H, W, K, R, R)


def pack(weight: Tensor, dtype: torch.dtype, block: int) -> Tensor:
    """A kernel [K, C, k, k] as [k·k, C, K], filled up with zeros to whole blocks of K."""
    return _filled(weight.permute(2, 3, 1, 0).flatten(0, 1).to(dtype), block)


def _filled(x: Tensor, block: int) -> Tensor:
    return F.pad(x, (0, -x.shape[-1] % block)).contiguous()


class Convolution:
    """A convolution of `images` haloed images at a time, with what follows it; see `conv_kernel`.

    `inner` [K, CI, k, k] makes it a step of the recurrence, which reads a frame and moves every
    image; `bias` makes it a layer of a decoder, the last of which gives plain images.
    """

    def __init__(
        self,
        weight: Tensor,
        dtype: torch.dtype,
        images: int,
        pixels: int,
        *,
        bias: Tensor | None = None,
        inner: Tensor | None = None,
        last: bool = False,
    ) -> None:
        self.channels, source = weight.shape[:2]
        block = min(128, max(16, 1 << (self.channels - 1).bit_length()))
        if images * pixels >= 64 * _FILLED:
            rows, warps, stages = 128, 4, 3
        else:  # a few channels each, so that there are more programs
            rows, block, warps, stages = 64, min(block, 32), 4, 4
        slab = min(_SLAB, source & -source)
        self.weight, still = pack(weight, dtype, block), weight.new_zeros(0)
        self.bias = still if bias is None else _filled(bias.float(), block)
        self.inner = still
        if inner is not None:
            self.inner = _filled(inner.flatten(2).permute(1, 2, 0).float(), block)
        self.grid = images * -(-pixels // rows), self.weight.shape[2] // block
        ieee = dtype == torch.float32 and not torch.backends.cudnn.allow_tf32
        self.options = {
            "C": source,
            "R": weight.shape[-1] // 2,
            "CI": 0 if inner is None else inner.shape[1],
            "RI": 0 if inner is None else inner.shape[-1] // 2,
            "DRIVEN": inner is not None,
            "LAST": last,
            "PRECISION": "ieee" if ieee else "tf32",
            "BP": rows,
            "BK": block,
            "BC": slab,
            "STAGES": stages,
            "num_warps": warps,
        }

    def __call__(self, x: Tensor, out: Tensor, frame: Tensor, shift: Tensor) -> None:
        height, width = frame.shape[-2:]
        with device_of(x):
            conv_kernel[self.grid](
                x, self.weight, self.bias, frame, self.inner, shift, out,
                len(shift), height, width, self.channels, **self.options,
            )  # fmt: skip


def pool(halo: Tensor, shift: Tensor, out: Tensor, radius: int, ahead: int) -> None:
    """max_ν ψ_ahead(ν)·h(ν) of a haloed state [B, V, H + 2r, W + 2r, K], with a halo as well."""
    batch, velocities, tall, wide, channels = halo.shape
    height, width = tall - 2 * radius, wide - 2 * radius
    block = min(64, 1 << (channels - 1).bit_length())
    with device_of(halo):
        pool_kernel[(batch * -(-height * width // 4), -(-channels // block))](
            halo, shift, out, velocities, height, width, channels,
            R=radius, AHEAD=ahead, BP=4, BK=block, STAGES=4, num_warps=1,
        )  # fmt: skip
