"""Convolutions between channels-last states and their halo buffers, by the library underneath."""

import torch
from torch import Tensor

_FEW = 8
_LAST = torch.channels_last


def kernel_of(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    """[K, C, ky, kx] as a convolution reads it."""
    return kernel.to(dtype).contiguous(memory_format=_LAST)


def adjoint_of(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    """The same for the gradient of its input: [C, K, ky, kx], flipped."""
    return kernel_of(kernel.transpose(0, 1).flip(2, 3), dtype)


def convolve(halo: Tensor, weight: Tensor) -> Tensor:
    """[B, V, H + 2r, W + 2r, C] → [B, V, H, W, K], without padding."""
    conv = torch.conv2d(_images(halo), weight).permute(0, 2, 3, 1).contiguous()
    return conv.reshape(*halo.shape[:2], *conv.shape[1:])


def correlate(h: Tensor, halo: Tensor, like: Tensor) -> Tensor:
    """Σ_q h(q) halo(q + τ) for every τ of a kernel shaped as `like`: [C, K, ky, kx]."""
    if halo.shape[-1] <= _FEW:  # cuDNN has no fast weight gradient for a few channels
        (ky, kx), (height, width) = like.shape[2:], h.shape[2:4]
        taps = [halo[:, :, y : y + height, x : x + width] for y in range(ky) for x in range(kx)]
        product = h.flatten(0, 3).T @ torch.cat(taps, -1).flatten(0, 3)
        return product.reshape(len(like), ky, kx, -1).permute(0, 3, 1, 2)
    none, ones, zeros = [False, True, False], [1, 1], [0, 0]
    gradient: Tensor = torch.ops.aten.convolution_backward(
        _images(h), _images(halo), like, None, ones, zeros, ones, False, zeros, 1, none
    )[1]
    return gradient


def _images(x: Tensor) -> Tensor:
    """[B, V, H, W, C] → [B·V, C, H, W] in place, channels-last."""
    return x.flatten(0, 1).permute(0, 3, 1, 2)
