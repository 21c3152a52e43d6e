"""Attention over time on a GPU: frames in, the output out, no key or value in memory.

Memory plan. Keys and values are convolutions of frames with few channels, k_s = U_k p_s and
v_s = U_v p_s for the taps p_s of frame s at a pixel. So for every head

    q·k_s = p_T · (U_qᵀ U_k) p_s,        Σ_s w_s v_s = U_v Σ_s w_s p_s:

two small matrices, taps by taps and taps by channels, stand for the projections of all frames.
A program owns a few pixels, gathers their taps from the frames, which the caches hold, and keeps
scores, softmax and the mixed taps of all heads in registers, one frame after the other. The output
is written, and a number for each pixel and head: the log of the softmax's sum. With that and the
frames, which are all that is kept, the backward pass goes over them once more, reads the gradient
and sums those of both matrices. autograd carries them on to the weights.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fernn.ops._backend import low_dtype
from fernn.ops._launch import device_of, operator
from fernn.ops.comoving_step._passes import columns_of
from fernn.ops.pixel_attention import _kernels

_PIXELS, _CHANNELS = 32, 128  # of a block, at most
_BYTES = 1 << 15  # of U_v in a block: small devices have 99 KiB for it and for what is summed
_PROGRAMS = 1056  # that sum gradients, each over many blocks: eight for a processor


def pixel_attention(frames: Tensor, qkv: Tensor, heads: int, recency: bool) -> Tensor:
    dtype = low_dtype(frames)
    with torch.autocast(frames.device.type, enabled=False):
        scores, values = (x.to(dtype).contiguous() for x in _matrices(qkv, heads))
    out: Tensor = _attend(frames.contiguous(), scores, values, qkv.shape[-1], recency)[0]
    return out.permute(0, 3, 1, 2)


def _matrices(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """U_kᵀ U_q/√d, [BT·heads, BT], and U_v, [BT·heads, K], where a head has its own channels.

    Taps and heads are filled up to powers of two, with zeros.
    """
    taps = columns_of(qkv).unflatten(1, (3, heads, -1))  # [BT, 3, heads, d]
    query, key, value = taps.unbind(1)
    more = (1 << (heads - 1).bit_length()) - heads
    scores = torch.einsum("mhd,nhd->mhn", key, query) / math.sqrt(query.shape[2])
    own = torch.eye(heads, dtype=qkv.dtype, device=qkv.device)
    values = (value[:, :, None] * own[None, :, :, None]).flatten(2)  # [BT, heads, K]
    filled = (F.pad(x, (0, 0, 0, more)).flatten(0, 1) for x in (scores, values))
    return next(filled), next(filled)


@operator("fernn::pixel_attention")
def _attend(
    frames: Tensor, scores: Tensor, values: Tensor, side: int, recency: bool
) -> tuple[Tensor, Tensor]:
    """The output [N, H, W, K], and the log of the softmax's sum, [N, heads, H, W]."""
    out, log = _outputs(frames, scores, values, side, recency)
    tiles, options = _plan(out, scores, side, recency)
    grid, sizes = (tiles, -(-out.shape[3] // options["BK"])), (*out.shape[1:], frames.shape[2])
    with device_of(out):
        _kernels.forward_kernel[grid](
            frames, scores, values, out, log, frames.shape[1], *sizes, **options
        )
    return out, log


@_attend.register_fake
def _outputs(
    frames: Tensor, scores: Tensor, values: Tensor, side: int, recency: bool
) -> tuple[Tensor, Tensor]:
    images, canvas = frames.shape[0], frames.shape[3:]
    heads = scores.shape[0] // scores.shape[1]
    log = values.new_empty(images, heads, *canvas, dtype=torch.float32)
    return values.new_empty(images, *canvas, values.shape[1]), log


@operator("fernn::pixel_attention_backward")
def _attend_backward(
    grad: Tensor,
    frames: Tensor,
    scores: Tensor,
    values: Tensor,
    log: Tensor,
    side: int,
    recency: bool,
) -> tuple[Tensor, Tensor]:
    tiles, options = _plan(grad, scores, side, recency)
    grid = min(tiles, _PROGRAMS), -(-grad.shape[3] // options["BK"])
    sizes = tiles, frames.shape[1], *grad.shape[1:], frames.shape[2]
    sums = [
        grad.new_empty(many, *x.shape, dtype=torch.float32)
        for many, x in ((grid[0] * grid[1], scores), (grid[0], values))
    ]
    with device_of(grad):
        _kernels.backward_kernel[grid](grad, frames, scores, values, log, *sums, *sizes, **options)
    return sums[0].sum(0).to(scores.dtype), sums[1].sum(0).to(values.dtype)


@_attend_backward.register_fake
def _(
    grad: Tensor, frames: Tensor, scores: Tensor, values: Tensor, *_: object
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores), torch.empty_like(values)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.side, ctx.recency = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 5
    gradients = _attend_backward(grad.contiguous(), *ctx.saved_tensors, ctx.side, ctx.recency)
    return None, *gradients, None, None


_attend.register_autograd(_backward, setup_context=_setup_context)


def _plan(out: Tensor, scores: Tensor, side: int, recency: bool) -> tuple[int, dict[str, int]]:
    """How many blocks of pixels there are, and what the kernels must know to be compiled."""
    images, height, width, channels = out.shape
    mixed, taps = scores.shape
    room = _BYTES // (mixed * scores.element_size())
    block = max(16, min(_CHANNELS, 1 << (channels - 1).bit_length(), room))
    many = block > 64 or mixed > 64  # values, which the registers of four warps do not hold
    shape = {"NH": mixed // taps, "BT": taps, "BP": _PIXELS, "BK": block, "SIDE": side}
    options = {"RECENCY": int(recency), "num_warps": 8 if many else 4, "num_stages": 1}
    return images * -(-height * width // _PIXELS), options | shape
